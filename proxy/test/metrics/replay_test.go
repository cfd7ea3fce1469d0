package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/tally"
)

const day = 24 * time.Hour

// A replay is the history of endpoints over a day, of which each is up at first.
type replay struct {
	endpoints []history
	outages   []outage
	flapping  []episode
}

// A history is an endpoint with the times at which it goes down and comes up again, in turns.
type history struct {
	upstream, name string
	changes        []time.Duration
}

// An outage is a time in which an endpoint, or with name "" every endpoint of an upstream, is down.
type outage struct {
	upstream, name string
	from, to       time.Duration
}

// An episode is a time in which an endpoint comes and goes.
type episode struct {
	upstream, name string
	from, to       time.Duration
}

const (
	upstreams   = 6
	perUpstream = 4
)

// newReplay draws a day: endpoints that come and go for hours, short failures, long ones, and of two upstreams
// all endpoints at once.
func newReplay(seed uint64) *replay {
	random := rand.New(rand.NewPCG(seed, 1))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(most-least)))
	}
	r := new(replay)
	down := make(map[string][][2]time.Duration)
	for u := range upstreams {
		for e := range perUpstream {
			h := history{upstream: fmt.Sprint("u", u), name: fmt.Sprint("e", e)}
			var times [][2]time.Duration
			for range 8 { // short failures
				at := between(0, day-time.Hour)
				times = append(times, [2]time.Duration{at, at + between(10*time.Second, time.Minute)})
			}
			switch e {
			case 0: // comes and goes
				from := between(time.Hour, day-8*time.Hour)
				to := from + between(2*time.Hour, 6*time.Hour)
				r.flapping = append(r.flapping, episode{h.upstream, h.name, from, to})
				for at := from; at < to; at += between(30*time.Second, 4*time.Minute) {
					end := at + between(20*time.Second, 3*time.Minute)
					times = append(times, [2]time.Duration{at, end})
					at = end
				}
			case 1: // fails for long
				at := between(time.Hour, day-3*time.Hour)
				out := outage{h.upstream, h.name, at, at + between(40*time.Minute, 2*time.Hour)}
				r.outages = append(r.outages, out)
				times = append(times, [2]time.Duration{out.from, out.to})
			}
			down[h.upstream+h.name] = times
			r.endpoints = append(r.endpoints, h)
		}
	}
	for u := range 2 {
		at := between(time.Hour, day-2*time.Hour)
		out := outage{fmt.Sprint("u", u), "", at, at + between(15*time.Minute, 30*time.Minute)}
		r.outages = append(r.outages, out)
		for i := range r.endpoints {
			if h := &r.endpoints[i]; h.upstream == out.upstream {
				down[h.upstream+h.name] = append(down[h.upstream+h.name], [2]time.Duration{out.from, out.to})
			}
		}
	}
	for i := range r.endpoints {
		h := &r.endpoints[i]
		h.changes = union(down[h.upstream+h.name])
	}
	return r
}

func union(list [][2]time.Duration) (borders []time.Duration) {
	slices.SortFunc(list, func(a, b [2]time.Duration) int { return int(a[0] - b[0]) })
	for _, one := range list {
		if n := len(borders); n > 0 && one[0] <= borders[n-1] {
			borders[n-1] = max(borders[n-1], one[1])
			continue
		}
		borders = append(borders, one[0], one[1])
	}
	return borders
}

func (r *replay) transitions() (n int) {
	for _, h := range r.endpoints {
		n += len(h.changes)
	}
	return n
}

func (r *replay) sample(m *metrics.Sample, at time.Duration) {
	m.Config = metrics.Config{LastOK: true, LastSuccess: time.Now(), File: metrics.FileSame}
	for u := range upstreams {
		m.Upstreams = append(m.Upstreams, metrics.Upstream{Upstream: admin.Upstream{Name: fmt.Sprint("u", u)}, States: make(map[admin.State]int64)})
	}
	for i, h := range r.endpoints {
		n := 0
		for n < len(h.changes) && h.changes[n] <= at {
			n++
		}
		p := metrics.Endpoint{Upstream: h.upstream, Endpoint: admin.Endpoint{Name: h.name, State: admin.Up, EndpointCounts: tally.EndpointCounts{Transitions: int64(n)}, Weight: 1}}
		if n%2 == 1 {
			p.State = admin.Down
		}
		m.Upstreams[i/perUpstream].States[p.State]++
		m.Endpoints = append(m.Endpoints, p)
	}
}
