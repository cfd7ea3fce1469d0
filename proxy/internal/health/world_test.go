package health_test

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/relay"
)

// A world is a model of the clients and endpoints of an upstream on a clock of its own, with
// an Unanswered that judges the endpoints: everything but the bytes.
type world struct {
	*rand.Rand
	clock     *clock
	keeper    *health.Scheduler
	outlier   *health.OutlierDetector
	judge     *health.Unanswered
	cfg       health.UnansweredConfig
	endpoints []*server
	events    events
	sessions  int // ever
	turn      int
	period    time.Duration // between two rounds
	stall     time.Duration // delay of the next one
	last      int64         // clock, of the last one
	blind     int64         // clock, until when this process is stopped
}

// A server is an endpoint.
type server struct {
	world   *world
	target  target
	answers health.Answers
	member  *health.OutlierMonitor
	live    []*session

	frozen  int64 // clock, until when it is stopped
	hung    int64 // clock, until when it answers no client, but ends sessions that a client has ended
	held    []func()
	deaf    bool // it never closes a connection that was half-closed
	slow    bool // it answers late
	refuses bool
	absent  bool // it gets no clients yet
	drained bool // and no more
	times   int  // that it was ejected
}

// A session is a client at an endpoint, as package relay sees it.
type session struct {
	*server
	began        int64
	at           int // in live; negative: it is over
	moved        int64
	last         relay.Side
	saidA, saidB bool
	spoke, known bool
	asking       bool
	asked        int64
	sentA        bool
	ended        bool // by the client, and not by the endpoint yet
	source       health.Source
}

type event struct {
	at  int64
	seq int
	do  func()
}

type events struct {
	list []event
	seq  int
}

func (e *events) Len() int { return len(e.list) }
func (e *events) Less(i, j int) bool {
	a, b := &e.list[i], &e.list[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (e *events) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }
func (e *events) Push(x any)    { e.list = append(e.list, x.(event)) }
func (e *events) Pop() any {
	last := len(e.list) - 1
	x := e.list[last]
	e.list[last] = event{}
	e.list = e.list[:last]
	return x
}

func newWorld(seed uint64, endpoints int, after time.Duration) *world {
	keeper, clock := idle(0)
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 4711)), clock: clock, keeper: keeper, judge: health.NewUnanswered(context.Background(), func(probe func()) { probe() }),
		cfg: health.UnansweredConfig{After: after}, period: 500 * time.Millisecond,
	}
	w.outlier = health.NewOutlierDetector(keeper, &health.OutlierConfig{
		ConsecutiveFailures: 5, Window: 30 * time.Second, MinVolume: 20,
		BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 5 * time.Minute, MaxEjected: 0.5,
	})
	for i := range endpoints {
		s := &server{world: w}
		s.target.onEject = func(on bool) {
			if on {
				s.times++
			}
		}
		s.member = w.outlier.Add(fmt.Sprint("e", i), &s.target)
		w.endpoints = append(w.endpoints, s)
	}
	w.after(w.period, w.round)
	return w
}

func (w *world) now() int64 { return w.clock.Now() }

// after schedules f.
func (w *world) after(d time.Duration, do func()) {
	w.events.seq++
	heap.Push(&w.events, event{w.now() + int64(max(d, 0)), w.events.seq, do})
}

// run advances the time.
func (w *world) run(d time.Duration) {
	w.until(w.now()+int64(d), func() bool { return false })
}

// until advances the time to an end, or until a condition holds.
func (w *world) until(end int64, yes func() bool) {
	for len(w.events.list) > 0 && w.events.list[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.clock.now.Store(e.at)
		if e.do(); yes() {
			return
		}
	}
	w.clock.now.Store(end)
}

// round does the load balancer's work of a round.
func (w *world) round() {
	w.keeper.Step()
	now := w.now()
	all := make([]health.Watched, len(w.endpoints))
	for i, s := range w.endpoints {
		for _, c := range s.live {
			t := c.look(now)
			s.answers.Watch(c.from(), &t, now)
		}
		all[i] = health.Watched{Answers: &s.answers, Judge: s.member, Probe: s, Away: s.drained}
	}
	late := now-w.last > int64(2*w.period)
	w.last = now
	w.judge.Round(now, &w.cfg, all, late)
	w.after(w.period+w.stall, w.round)
	if w.stall > 0 {
		w.blind, w.stall = w.now()+int64(w.period+w.stall), 0
	}
}

// stalls reports whether the load balancer is stopped. If so, do is scheduled for when it
// continues; a round comes first.
func (w *world) stalls(do func()) bool {
	if w.now() > w.blind {
		return false
	}
	w.after(time.Duration(w.blind-w.now())+time.Millisecond, do)
	return true
}

// Probe implements [health.Prober].
func (s *server) Probe(context.Context) error {
	switch {
	case s.refuses:
		return errIll
	case s.deaf || s.frozen > s.world.now()+int64(s.world.cfg.Probe()):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// freeze stops it for a time.
func (s *server) freeze(d time.Duration) {
	s.frozen = max(s.frozen, s.world.now()+int64(d))
	s.world.after(d, s.goOn)
}

// hang makes it answer no client for a time, though it lives: a dependency of it does not.
func (s *server) hang(d time.Duration) {
	s.hung = max(s.hung, s.world.now()+int64(d))
	s.world.after(d, s.goOn)
}

// stands reports whether it does nothing for clients now.
func (s *server) stands() bool { return max(s.frozen, s.hung) > s.world.now() }

// goOn does the delayed work, if it is not stopped any more.
func (s *server) goOn() {
	if s.stands() {
		return
	}
	held := s.held
	s.held = nil
	for _, do := range held {
		do()
	}
}

// does schedules work after a time. If it is stopped then, the work is done when it continues.
func (s *server) does(after time.Duration, do func()) {
	s.world.after(after, func() {
		if s.stands() {
			s.held = append(s.held, do)
			return
		}
		do()
	})
}

// pick returns the endpoint of the next client.
func (w *world) pick() *server {
	for range w.endpoints {
		w.turn++
		if s := w.endpoints[w.turn%len(w.endpoints)]; !s.target.ejected.Load() && !s.refuses && !s.absent && !s.drained {
			return s
		}
	}
	return w.endpoints[w.turn%len(w.endpoints)]
}

// connect is a client that comes.
func (w *world) connect(s *server) *session {
	w.sessions++
	c := &session{server: s, began: w.now(), moved: w.now(), at: len(s.live), source: health.Source(1<<63 | w.Uint64N(1000))}
	if s.refuses {
		c.at = -1
		s.answers.Refused()
		return c
	}
	s.live = append(s.live, c)
	return c
}

// ask is a request of the client.
func (c *session) ask() {
	if c.at < 0 || c.world.stalls(c.ask) {
		return
	}
	c.moved, c.last, c.saidA, c.sentA = c.world.now(), relay.SideA, true, true
}

// say is an answer of the endpoint.
func (c *session) say() {
	if c.at < 0 {
		return
	}
	now := c.world.now()
	if !c.spoke {
		c.answers.First(time.Duration(now-c.moved), c.sentA, now)
		c.member.GotData(c.from(), now)
	}
	c.moved, c.last, c.saidB, c.spoke = now, relay.SideB, true, true
}

// answer sends a request, makes the endpoint answer after a time, and then continues.
func (c *session) answer(took time.Duration, then func()) {
	c.ask()
	c.does(took, func() { c.reply(then) })
}

func (c *session) reply(then func()) {
	if c.world.stalls(func() { c.reply(then) }) {
		return
	}
	if c.say(); c.at >= 0 && then != nil {
		then()
	}
}

func (c *session) over() bool {
	if c.at < 0 {
		return true
	}
	if c.spoke {
		c.answers.Served(time.Duration(c.world.now() - c.began))
	}
	last := len(c.live) - 1
	c.live[c.at] = c.live[last]
	c.live[c.at].at = c.at
	c.live = c.live[:last]
	c.at = -1
	return false
}

// from returns its source, if it is one of the sample.
func (c *session) from() health.Source {
	if c.source%2 == 0 {
		return health.UnsampledSource
	}
	return c.source
}

// leave is the end by the client. The endpoint ends as well, or when it continues.
func (c *session) leave() {
	if c.at >= 0 && c.stands() && c.frozen > c.world.now() {
		c.ended, c.moved = true, c.world.now()
		c.held = append(c.held, func() { c.over() })
		return
	}
	if c.over() || c.spoke || !c.sentA {
		return
	}
	now := c.world.now()
	c.answers.Left(c.from(), time.Duration(now-c.began), now)
}

// end is the end by the endpoint.
func (c *session) end() {
	if !c.over() {
		c.answers.Ended(c.world.now())
	}
}

// look is [relay.Driven.Look].
func (c *session) look(now int64) relay.Turn {
	t := relay.Turn{Last: c.last, Quiet: time.Duration(now - c.moved), Spoke: c.known}
	if t.Answered = c.saidB && (c.asking || c.saidA); t.Answered && c.asking {
		t.Waited = time.Duration(now - c.asked)
	}
	if c.last == relay.SideA && (!c.asking || c.saidB) {
		c.asked = c.moved
	}
	switch c.asking = c.last == relay.SideA; {
	case c.asking:
		t.Asked = time.Duration(now - c.asked)
	case c.last == relay.SideNone:
		t.Asked = t.Quiet
	}
	c.saidA, c.saidB, c.known = false, false, c.spoke
	t.Ended = c.ended
	return t
}

// Distributions of times.

// exp is exponentially distributed.
func (w *world) exp(mean time.Duration) time.Duration {
	return time.Duration(w.ExpFloat64() * float64(mean))
}

// between is uniformly distributed.
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.Int64N(int64(b-a)))
}

// quick is the time of a healthy answer: 2 ms, some ten times that, few a hundred times.
func (w *world) quick() time.Duration {
	d := w.exp(2 * time.Millisecond)
	switch n := w.IntN(1000); {
	case n == 0:
		return 100 * d
	case n < 20:
		return 10 * d
	}
	return d
}

// anyone returns a random endpoint.
func (w *world) anyone() *server { return w.endpoints[w.IntN(len(w.endpoints))] }

// alarms returns how often an endpoint was found to be silent, and the first of these.
func (w *world) alarms() (n int, first health.Transition) {
	for _, t := range w.keeper.Told() {
		if t.Kind == health.Answering && t.Bad {
			if n++; n == 1 {
				first = t
			}
		}
	}
	return n, first
}

// come makes clients come, so many a second, for as long as the world runs.
func (w *world) come(perSecond float64, serve func(c *session)) { w.comeTo(perSecond, w.pick, serve) }

func (w *world) comeTo(perSecond float64, pick func() *server, serve func(c *session)) {
	var next func()
	next = func() {
		serve(w.connect(pick()))
		w.after(w.exp(time.Duration(float64(time.Second)/perSecond)), next)
	}
	next()
}

// every repeats f.
func (w *world) every(d time.Duration, do func()) {
	var next func()
	next = func() {
		do()
		w.after(d, next)
	}
	w.after(d, next)
}

// request sends one request, is answered, and leaves.
func (w *world) request(c *session) { c.answer(w.quick(), c.leave) }

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
