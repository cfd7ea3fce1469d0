package health_test

import (
	"time"
)

// A protocol is a set of clients of a world with healthy endpoints, however they may look.
type protocol struct {
	name string
	run  func(w *world)
}

const second = time.Second

// protocols are those in which silence of an endpoint is normal, or in which the normal
// behavior changes.
var protocols = []protocol{
	{"one request, one answer", func(w *world) { w.come(25, w.request) }},
	{"the server speaks first", func(w *world) { w.come(25, w.mail) }},
	{"idle clients", func(w *world) { w.come(25, w.idle) }},
	{"a pool of connections, mostly idle", func(w *world) { w.come(25, w.pooled) }},
	{"long polls of 30 to 60 s, one a session", func(w *world) {
		w.come(25, func(c *session) { c.answer(w.between(30*second, 60*second), c.leave) })
	}},
	{"long polls of minutes, again and again", func(w *world) { w.come(25, w.polls) }},
	{"long polls that one event answers", func(w *world) { w.broadcast(w.pick) }},
	{"logs, one way", func(w *world) { w.come(25, w.logs) }},
	{"one message, one way, and close", func(w *world) {
		w.come(25, func(c *session) { c.ask(); w.after(w.exp(2*second), c.leave) })
	}},
	{"a greeting, then one way", func(w *world) {
		w.come(25, func(c *session) { c.answer(w.quick(), func() { w.logs(c) }) })
	}},
	{"slow answers, 2 s in the mean", func(w *world) {
		w.come(25, func(c *session) { c.answer(w.exp(2*second), c.leave) })
	}},
	{"requests, a tenth long polls", func(w *world) { w.come(25, w.mixed(0.1)) }},
	{"requests, a tenth long polls, in bursts", func(w *world) { w.bursts(w.mixed(0.1)) }},
	{"requests, a hundredth one way, in bursts", func(w *world) {
		w.come(0.5, w.logs)
		w.bursts(w.request)
	}},
	{"requests of uploads of up to 30 s", func(w *world) { w.come(25, w.upload) }},
	{"requests, and a source of garbage", func(w *world) { w.garbage() }},
	{"an endpoint ten times as slow", func(w *world) {
		w.come(25, func(c *session) {
			took := w.quick()
			if c.server == w.theOdd() {
				took = 10*took + 20*time.Millisecond
			}
			c.answer(took, c.leave)
		})
	}},
	{"endpoints that pause for up to 2 s", func(w *world) {
		w.come(25, w.request)
		w.every(5*second, func() { w.anyone().freeze(w.between(0, 2*second)) })
	}},
	{"all endpoints are slow together, for 20 s", func(w *world) { w.slowTogether() }},
	{"all endpoints stop together, for 20 s", func(w *world) {
		w.come(25, w.request)
		w.every(100*second, func() {
			for _, s := range w.endpoints {
				s.hang(20 * second)
			}
		})
	}},
	{"the load changes", func(w *world) { w.tides() }},
	{"an endpoint has no requests for a time, but long polls", func(w *world) { w.roles() }},
	{"workers that wait come to one endpoint", func(w *world) { w.workers() }},
	{"one endpoint after the other turns to long polls", func(w *world) { w.turns(0, 0) }},
	{"the same, and a third of the clients give up", func(w *world) { w.turns(0, 0.33) }},
	{"the same, and it is away for 2 s", func(w *world) { w.turns(2*second, 0) }},
	{"bursts, at endpoints that pause for up to 2 s", func(w *world) {
		w.bursts(w.request)
		w.every(3*second, func() { w.anyone().freeze(w.between(0, 2*second)) })
	}},
}

// mixedUpstreams are upstreams with healthy endpoints that differ: one has never answered a
// client, correctly.
var mixedUpstreams = []protocol{
	{"a log sink", func(w *world) { w.odd(w.logs) }},
	{"a log sink, a line and close", func(w *world) {
		w.odd(func(c *session) { c.ask(); w.after(w.exp(2*second), c.leave) })
	}},
	{"a log sink, two lines in 10 minutes", func(w *world) {
		w.odd(func(c *session) {
			c.ask()
			w.after(w.between(0, 300*second), c.ask)
			w.after(w.between(300*second, 600*second), c.leave)
		})
	}},
	{"clients that send a line and stay for some time, one endpoint never confirms", func(w *world) {
		w.come(25, w.indifferent(func() time.Duration { return w.exp(4 * second) }))
	}},
	{"the same, of 3 s", func(w *world) { w.come(25, w.indifferent(func() time.Duration { return 3 * second })) }},
	{"the same, of up to 5 minutes", func(w *world) {
		w.come(25, w.indifferent(func() time.Duration { return w.between(2*second, 300*second) }))
	}},
	{"clients that send lines, one endpoint never confirms them", func(w *world) { w.come(25, w.confirmed) }},
	{"a standby that accepts and waits", func(w *world) {
		w.theOdd().hang(10 * 60 * second)
		w.come(25, w.request)
	}},
	{"a standby, its clients were routed there", func(w *world) {
		w.theOdd().hang(10 * 60 * second)
		w.odd(w.request)
	}},
	{"an endpoint that warms up for 20 s", func(w *world) {
		w.theOdd().hang(20 * second)
		w.come(25, w.request)
	}},
	{"long polls", func(w *world) {
		w.odd(func(c *session) { c.answer(w.between(30*second, 60*second), c.leave) })
	}},
	{"long polls of 5 minutes", func(w *world) {
		w.odd(func(c *session) { c.answer(w.between(240*second, 300*second), c.leave) })
	}},
	{"long polls of 5 minutes, a tenth gives up", func(w *world) {
		w.odd(func(c *session) {
			if w.IntN(10) == 0 {
				w.after(w.between(0, 300*second), c.leave)
			}
			c.answer(w.between(240*second, 300*second), c.leave)
		})
	}},
	{"idle clients", func(w *world) { w.odd(w.idle) }},
	{"a source of garbage", func(w *world) {
		w.odd(func(c *session) {
			c.source = 1<<63 | 99998
			c.ask()
			w.after(5*second, c.leave)
		})
	}},
}

// theOdd is the endpoint that differs from the others.
func (w *world) theOdd() *server { return w.endpoints[len(w.endpoints)-1] }

// odd sends requests to all endpoints but the last, and others to that.
func (w *world) odd(serve func(*session)) {
	w.theOdd().absent = true
	w.come(17, w.request)
	w.comeTo(8, w.theOdd, serve)
}

// indifferent sends a line and leaves after a time, whether or not the line is confirmed. The
// last endpoint does not confirm any.
func (w *world) indifferent(stay func() time.Duration) func(*session) {
	return func(c *session) {
		c.confirm()
		w.after(stay(), c.leave)
	}
}

// confirmed sends lines, which all but the last endpoint confirm.
func (w *world) confirmed(c *session) { w.lines(c, c.confirm) }

// confirm sends a line, which is confirmed.
func (c *session) confirm() {
	if c.ask(); c.server != c.world.theOdd() {
		c.does(c.world.quick(), c.say)
	}
}

// pauses stops an endpoint for a time now and then, which is not healthy then.
var pauses = protocol{"endpoints that pause for up to 4 s", func(w *world) {
	w.come(25, w.request)
	w.every(10*second, func() { w.anyone().freeze(w.between(0, 4*second)) })
}}

// mail is a server that greets, and answers some requests.
func (w *world) mail(c *session) {
	c.does(w.quick(), func() {
		c.say()
		w.talk(c, 5, func() time.Duration { return w.exp(300 * time.Millisecond) })
	})
}

// talk makes some requests, with times between.
func (w *world) talk(c *session, n int, pause func() time.Duration) {
	w.after(pause(), func() {
		if n == 0 {
			c.leave()
			return
		}
		c.answer(w.quick(), func() { w.talk(c, n-1, pause) })
	})
}

func (w *world) idle(c *session) { w.after(w.between(0, 60*second), c.leave) }

// pooled logs in, and sends a request now and then.
func (w *world) pooled(c *session) {
	c.answer(w.quick(), func() { w.talk(c, 3, func() time.Duration { return w.exp(20 * second) }) })
}

// polls polls several times on one session, after it was greeted.
func (w *world) polls(c *session) {
	c.answer(w.quick(), func() { w.poll(c, 3) })
}

func (w *world) poll(c *session, n int) {
	if n == 0 {
		c.leave()
		return
	}
	c.answer(w.exp(60*second), func() { w.poll(c, n-1) })
}

// logs sends lines.
func (w *world) logs(c *session) { w.lines(c, c.ask) }

// lines makes a client send lines for a time, and leave.
func (w *world) lines(c *session, send func()) {
	ends := w.now() + int64(w.between(5*second, 60*second))
	var line func()
	line = func() {
		if w.now() > ends {
			c.leave()
			return
		}
		send()
		w.after(w.exp(3*second), line)
	}
	line()
}

// mixed makes requests of which a part are long polls.
func (w *world) mixed(part float64) func(*session) {
	return func(c *session) {
		took := w.quick()
		if w.Float64() < part {
			took = w.between(30*second, 60*second)
		}
		c.answer(took, c.leave)
	}
}

// bursts makes clients come for a while, and then none.
func (w *world) bursts(serve func(*session)) {
	on := true
	var change func()
	change = func() {
		on = !on
		w.after(w.between(5*second, 60*second), change)
	}
	change()
	w.come(50, func(c *session) {
		if !on {
			c.over() // it was not sent
			w.sessions--
			return
		}
		serve(c)
	})
}

// broadcast is sessions that wait for messages to all at once, greeted at first.
func (w *world) broadcast(pick func() *server) {
	var waiting []*session
	w.comeTo(25, pick, func(c *session) {
		waiting = append(waiting, c)
		c.answer(w.quick(), c.ask)
		w.after(w.between(60*second, 240*second), c.leave)
	})
	var tell func()
	tell = func() {
		for _, c := range waiting {
			if c.at >= 0 {
				c.does(w.quick(), func() { c.say(); c.ask() })
			}
		}
		waiting = waiting[len(waiting)/3:] // those that are older have left, for the most part
		w.after(w.exp(20*second), tell)
	}
	tell()
}

// upload sends for some time before it is answered.
func (w *world) upload(c *session) {
	ends := w.now() + int64(w.exp(5*second))
	var piece func()
	piece = func() {
		if w.now() > ends {
			c.answer(w.quick(), c.leave)
			return
		}
		c.ask()
		w.after(w.exp(100*time.Millisecond), piece)
	}
	piece()
}

// garbage is a source of requests that no server answers, at one endpoint, beside others.
func (w *world) garbage() {
	w.come(25, w.request)
	w.comeTo(10, func() *server { return w.endpoints[0] }, func(c *session) {
		c.source = 1<<63 | 99999
		c.ask()
		w.after(w.exp(5*second), c.leave)
	})
}

// slowTogether makes all endpoints answer late now and then: a shared dependency is slow.
func (w *world) slowTogether() {
	slow := false
	w.every(60*second, func() {
		slow = true
		w.after(20*second, func() { slow = false })
	})
	w.come(25, func(c *session) {
		took := w.quick()
		if slow {
			took += w.exp(5 * second)
		}
		c.answer(took, c.leave)
	})
}

// tides is a load that is high and low, of all endpoints and of one.
func (w *world) tides() {
	rate := 25.0
	w.every(30*second, func() { rate = []float64{0.5, 5, 25, 200}[w.IntN(4)] })
	var next func()
	next = func() {
		w.mixed(0.02)(w.connect(w.pick()))
		w.after(w.exp(time.Duration(float64(second)/rate)), next)
	}
	next()
	w.comeTo(10, func() *server { return w.endpoints[0] }, func(c *session) {
		if w.now()/int64(40*second)%2 == 0 {
			c.over()
			w.sessions--
			return
		}
		w.pooled(c)
	})
}

// roles gives one endpoint after the other nothing but long polls for a time.
func (w *world) roles() {
	only := -1
	w.every(60*second, func() { only = w.IntN(len(w.endpoints)+1) - 1 })
	w.come(25, func(c *session) {
		if only >= 0 && c.server == w.endpoints[only] {
			c.over()
			c = w.connect(w.endpoints[(only+1)%len(w.endpoints)])
			w.sessions--
		}
		w.request(c)
	})
	w.come(1, func(c *session) { c.answer(w.between(30*second, 60*second), c.leave) })
}

// workers makes clients that wait for work come to one endpoint, all at once, when the
// requests stop there.
func (w *world) workers() {
	stopped := -1
	w.come(25, func(c *session) {
		if stopped >= 0 && c.server == w.endpoints[stopped] {
			c.over()
			w.sessions--
			return
		}
		w.request(c)
	})
	w.every(60*second, func() {
		stopped = w.IntN(len(w.endpoints))
		for range 20 {
			c := w.connect(w.endpoints[stopped])
			c.answer(w.between(20*second, 40*second), c.leave)
		}
		w.after(20*second, func() { stopped = -1 })
	})
}

// turns deploys another program to one endpoint after the other, and back. It answers
// questions after 30 to 60 s, for which a part of the clients does not wait.
func (w *world) turns(away time.Duration, leave float64) {
	slow := make([]bool, len(w.endpoints))
	next := 0
	w.every(100*second, func() {
		i := next % len(slow)
		next++
		if s := w.endpoints[i]; away > 0 {
			for len(s.live) > 0 {
				s.live[0].end()
			}
			s.refuses = true
			_ = w.connect(s)
			w.after(away, func() { s.refuses = false })
		}
		slow[i] = !slow[i]
	})
	w.come(25, func(c *session) {
		took := w.quick()
		for i, s := range w.endpoints {
			if c.server == s && slow[i] {
				took = w.between(30*second, 60*second)
			}
		}
		if took > second && w.Float64() < leave {
			w.after(w.between(0, took), c.leave)
		}
		c.answer(took, c.leave)
	})
}
