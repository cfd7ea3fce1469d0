package lb_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
)

var picture = flag.String("fleet", "", "simulate a whole fleet and write its picture to this `file`: an absolute path; see docs/balancing.md")

// TestFleet simulates a fleet: a small one that has to be balanced within bounds, or
// that of the documentation.
func TestFleet(t *testing.T) {
	f := &fleet{nodes: 40, endpoints: 300, sessions: 900, steps: 24, churn: 2, replaced: 0.02, ended: 0.1, lag: 3}
	clients := 5000
	if *picture != "" {
		f = &fleet{nodes: 1000, endpoints: 10_000, sessions: 10_000, steps: 60, churn: 10, replaced: 0.01, ended: 0.05, lag: 3}
		clients = 200_000
	}
	s := simulate(t, f, clients)
	s.check(t)
	if *picture != "" {
		if err := os.WriteFile(*picture, s.svg(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A line is figures by step, with a name.
type line struct {
	name string
	by   []float64
}

// A simulation is the result of a fleet, as the documentation shows it.
type simulation struct {
	*fleet
	spread, share, moved []line
	refused              map[string]int
}

func simulate(t *testing.T, f *fleet, clients int) *simulation {
	changes, universe, late := f.life()
	present := presence(changes, f.endpoints, universe)
	s := &simulation{fleet: f, refused: map[string]int{}}
	for _, c := range []lb.Config{
		{Policy: lb.RoundRobin},
		{Policy: lb.RandomTwo},
		{Policy: lb.LeastConn},
		{Policy: lb.LeastConn, SlowStart: time.Duration(f.steps / 6 * int(step))},
	} {
		began := time.Now()
		name := c.Policy.String()
		if c.SlowStart > 0 {
			name += ", slow_start"
		}
		out := f.run(&c)
		s.share = append(s.share, line{name, f.share(out.load, present, late)})
		if c.SlowStart == 0 {
			s.spread = append(s.spread, line{name, f.spread(out.load, present)})
		}
		for _, n := range out.refused {
			s.refused[name] += n
		}
		t.Logf("%s: %v", name, time.Since(began))
	}
	s.moved = append(s.moved, line{"ideal", f.ideal()}, line{"modulo", f.modulo(clients).moved(1)})
	t.Logf("modulo: astray %.5f", f.astray(f.modulo(clients)))
	for _, p := range keyed {
		h := f.history(p, clients)
		s.moved = append(s.moved, line{p.String(), h.moved(1)})
		s.spread = append(s.spread, line{p.String() + ", table", h.spread})
		t.Logf("%s: astray %.5f", p, f.astray(h))
	}
	s.log(t)
	return s
}

func (s *simulation) log(t *testing.T) {
	show := func(title string, lines []line, at ...int) {
		for _, l := range lines {
			var b strings.Builder
			for _, k := range at {
				k = min(k, s.steps-1)
				fmt.Fprintf(&b, " %.5f", l.by[k])
			}
			t.Logf("%s, %s, at %v:%s; most %.4f", title, l.name, at, b.String(), slices.Max(l.by[1:]))
		}
	}
	third := s.steps / 3
	show("busiest", s.spread, third-1, third, 2*third-1, 2*third, s.steps-1)
	show("late", s.share, 2*third, 2*third+1, 2*third+3, 2*third+6, 2*third+10, s.steps-1)
	show("moved", s.moved, 1, 2, third, 2*third)
	t.Logf("refused: %v", s.refused)
}

func (s *simulation) check(t *testing.T) {
	for _, l := range s.spread {
		if worst := slices.Max(l.by); worst > 2 {
			t.Errorf("%s: the busiest endpoint has %.2f times the mean", l.name, worst)
		}
	}
	ideal := s.moved[0].by
	for _, l := range s.moved[2:] {
		for i := 1; i < s.steps; i++ {
			if l.by[i] > 3*ideal[i]+0.01 {
				t.Errorf("%s: %.4f of the clients moved at step %d, %.4f had to", l.name, l.by[i], i, ideal[i])
			}
		}
	}
}

// A fleet is the object of the simulation: proxy nodes that know nothing of each other,
// in front of the same endpoints. Time goes in steps. In each some sessions end and as
// many begin, a few endpoints go or come, and a few nodes are replaced by fresh ones,
// which get all their clients at once. At a third of the time a tenth of the endpoints
// goes, at two thirds as many new ones come.
type fleet struct {
	nodes, endpoints, sessions, steps int
	churn                             int     // endpoints that go, or come, in a step
	replaced                          float64 // part of the nodes, in a step
	ended                             float64 // part of the sessions, in a step
	lag                               int     // steps after which a node has heard of a change, at most
}

// A change is which endpoints of the universe go and come at the beginning of a step.
type change struct{ gone, come []int }

func (f *fleet) tenth() int { return f.endpoints / 10 }

// life returns the changes by step, the number of endpoints in all of time, and those
// that come at two thirds of it.
func (f *fleet) life() (changes []change, universe int, late []int) {
	rng := rand.New(rand.NewPCG(11, 12))
	var alive []int
	for i := range f.endpoints {
		alive = append(alive, i)
	}
	universe = f.endpoints
	changes = make([]change, f.steps)
	for t := 1; t < f.steps; t++ {
		c := &changes[t]
		out, in := f.churn, 0
		if t%2 == 0 {
			out, in = 0, f.churn
		}
		switch t {
		case f.steps / 3:
			out, in = f.tenth(), 0
		case 2 * f.steps / 3:
			out, in = 0, f.tenth()
		}
		for range out {
			k := rng.IntN(len(alive))
			c.gone = append(c.gone, alive[k])
			alive = slices.Delete(alive, k, k+1)
		}
		for range in {
			c.come = append(c.come, universe)
			alive = append(alive, universe)
			universe++
		}
		if t == 2*f.steps/3 {
			late = c.come
		}
	}
	return changes, universe, late
}

// presence returns, for each step, which endpoints are there.
func presence(changes []change, first, universe int) [][]bool {
	now := make([]bool, universe)
	for i := range first {
		now[i] = true
	}
	var by [][]bool
	for _, c := range changes {
		for _, i := range c.gone {
			now[i] = false
		}
		for _, i := range c.come {
			now[i] = true
		}
		by = append(by, slices.Clone(now))
	}
	return by
}

// A node is one proxy with its own endpoints, that is, its own idea of them.
type node struct {
	set       *lb.Set
	endpoints []*lb.Endpoint
	failures  []int          // in a row, by endpoint
	alive     []*lb.Endpoint // whose session it is
	clock     *atomic.Int64
}

// index returns which endpoint of the universe it is.
func index(e *lb.Endpoint) int { return e.Of.(int) }

// step is how long one takes by a node's clock.
const step = int64(time.Second)

var allNames []string

// namesOf returns the names of the first n endpoints.
func namesOf(n int) []string {
	for i := len(allNames); i < n; i++ {
		allNames = append(allNames, name(i))
	}
	return allNames[:n]
}

func (f *fleet) newNode(cfg *lb.Config, present []bool, at int) *node {
	n := &node{failures: make([]int, len(present)), clock: new(atomic.Int64)}
	n.clock.Store(int64(at+1) * step)
	names := namesOf(len(present))
	var ms []lb.Member
	for i, here := range present {
		e := lb.NewEndpoint(lb.EndpointConfig{ID: names[i], Now: n.clock.Load, Of: i})
		e.SetDraining(!here)
		n.endpoints = append(n.endpoints, e)
		ms = append(ms, lb.Member{Endpoint: e, Weight: 1})
	}
	n.set = lb.NewSet(ms, cfg, nil)
	n.set.Attach()
	return n
}

// hear applies a change to the node.
func (n *node) hear(c change) {
	for _, i := range c.gone {
		n.endpoints[i].SetDraining(true)
	}
	for _, i := range c.come {
		n.endpoints[i].Added()
		n.endpoints[i].SetDraining(false)
	}
}

// trim ends the sessions of endpoints that are gone, and a part of the others.
func (n *node) trim(present []bool, part float64, rng *rand.Rand) {
	n.alive = slices.DeleteFunc(n.alive, func(e *lb.Endpoint) bool {
		if present[index(e)] && rng.Float64() >= part {
			return false
		}
		e.Release()
		return true
	})
}

// inARow is the number of failures in a row that have an endpoint ejected, as outlier
// detection does by default.
const inARow = 5

// fill begins sessions until there are so many. An endpoint that is gone, which the
// node has not heard yet, refuses, and another one is tried. It returns how many did.
func (n *node) fill(sessions int, present []bool) (refused int) {
	var tried [8]*lb.Endpoint
	for len(n.alive) < sessions {
		req := lb.Request{Tried: tried[:0]}
		for {
			e, err := n.set.Pick(&req)
			if err != nil {
				panic(err) // nine tenths are there, and have no limits
			}
			if present[index(e)] {
				n.alive = append(n.alive, e)
				break
			}
			e.Release()
			refused++
			req.Tried = append(req.Tried, e)
			if n.failures[index(e)]++; n.failures[index(e)] == inARow {
				e.SetEjected(true)
			}
		}
	}
	return refused
}

// An outcome is the result of a policy: sessions of all nodes by step and endpoint, and
// attempts at endpoints that were gone by step.
type outcome struct {
	load    [][]int
	refused []int
}

// run lets all nodes live, one after the other: they do not know of each other.
func (f *fleet) run(cfg *lb.Config) *outcome {
	changes, universe, _ := f.life()
	present := presence(changes, f.endpoints, universe)
	out := &outcome{refused: make([]int, f.steps)}
	for range f.steps {
		out.load = append(out.load, make([]int, universe))
	}
	for i := range f.nodes {
		f.live(cfg, i, changes, present, out)
	}
	return out
}

func (f *fleet) live(cfg *lb.Config, i int, changes []change, present [][]bool, out *outcome) {
	rng := rand.New(rand.NewPCG(uint64(i), 13))
	lag := rng.IntN(f.lag + 1)
	n := f.newNode(cfg, present[0], 0)
	for t := range f.steps {
		n.clock.Store(int64(t+1) * step)
		if rng.Float64() < f.replaced {
			n = f.newNode(cfg, present[max(t-lag, 0)], t)
		} else if t-lag > 0 {
			n.hear(changes[t-lag])
		}
		n.trim(present[t], f.ended, rng)
		out.refused[t] += n.fill(f.sessions, present[t])
		for _, e := range n.alive {
			out.load[t][index(e)]++
		}
	}
}

// spread returns, by step, the load of the busiest endpoint that is there, as a
// multiple of the mean.
func (f *fleet) spread(load [][]int, present [][]bool) []float64 {
	var by []float64
	for t := range load {
		most, sum, n := 0, 0, 0
		for i, l := range load[t] {
			if present[t][i] {
				most, sum, n = max(most, l), sum+l, n+1
			}
		}
		by = append(by, float64(most)*float64(n)/float64(sum))
	}
	return by
}

// share returns, by step, the mean load of some endpoints as a multiple of that of all.
func (f *fleet) share(load [][]int, present [][]bool, some []int) []float64 {
	var by []float64
	for t := range load {
		sum, n, mine, m := 0, 0, 0, 0
		for i, l := range load[t] {
			if present[t][i] {
				sum, n = sum+l, n+1
			}
		}
		for _, i := range some {
			if present[t][i] {
				mine, m = mine+load[t][i], m+1
			}
		}
		by = append(by, float64(mine)/float64(max(m, 1))*float64(n)/float64(sum))
	}
	return by
}

// A history has, by step, the endpoint to which each of some clients belongs. All nodes
// that know all changes agree on it.
type history struct {
	owners [][]int32
	spread []float64 // the largest part of the table that an endpoint has, as a multiple of the mean
}

// history follows a consistent policy through a fleet's life.
func (f *fleet) history(p lb.Policy, clients int) *history {
	changes, universe, _ := f.life()
	h := new(history)
	for _, here := range presence(changes, f.endpoints, universe) {
		var ms []lb.Member
		for i := range here {
			if here[i] {
				e := lb.NewEndpoint(lb.EndpointConfig{ID: name(i), Of: i})
				ms = append(ms, lb.Member{Endpoint: e, Weight: 1})
			}
		}
		set := lb.NewSet(ms, &lb.Config{Policy: p}, nil)
		set.Attach()
		h.owners = append(h.owners, owned(set, clients))
		counts := make([]int, len(ms))
		most := 0
		for _, i := range set.Table() {
			counts[i]++
			most = max(most, counts[i])
		}
		h.spread = append(h.spread, float64(most)*float64(len(ms))/float64(len(set.Table())))
	}
	return h
}

func owned(set *lb.Set, clients int) []int32 {
	by := make([]int32, clients)
	for c := range by {
		req := client(c)
		e, err := set.Pick(&req)
		if err != nil {
			panic(err) // there are endpoints, and they have no limits
		}
		e.Release()
		by[c] = int32(e.Of.(int))
	}
	return by
}

// modulo is the history of a policy that takes the hash modulo the number of endpoints.
func (f *fleet) modulo(clients int) *history {
	changes, universe, _ := f.life()
	h := new(history)
	for _, here := range presence(changes, f.endpoints, universe) {
		var list []int32
		for i := range here {
			if here[i] {
				list = append(list, int32(i))
			}
		}
		by := make([]int32, clients)
		for c := range by {
			by[c] = list[lb.Mix(uint64(c)+1)%uint64(len(list))]
		}
		h.owners = append(h.owners, by)
	}
	return h
}

// moved returns the part of the clients whose owner differs from the one so many steps
// before.
func (h *history) moved(steps int) []float64 {
	by := make([]float64, len(h.owners))
	for t := steps; t < len(by); t++ {
		n := 0
		for c, who := range h.owners[t] {
			if who != h.owners[t-steps][c] {
				n++
			}
		}
		by[t] = float64(n) / float64(len(h.owners[t]))
	}
	return by
}

// ideal is the part that has to move: that of the endpoints that go, of all before, or
// that of the endpoints that come, of all after.
func (f *fleet) ideal() []float64 {
	changes, universe, _ := f.life()
	present := presence(changes, f.endpoints, universe)
	by := make([]float64, f.steps)
	for t := 1; t < f.steps; t++ {
		n := 0
		for _, here := range present[t] {
			if here {
				n++
			}
		}
		before := n + len(changes[t].gone) - len(changes[t].come)
		by[t] = float64(len(changes[t].gone))/float64(before) + float64(len(changes[t].come))/float64(n)
	}
	return by
}

// astray is the chance that a client that comes again through another node is sent to
// another endpoint, because one of the two nodes has not heard of a change yet: each
// has heard with a lag of its own from 0 to lag.
func (f *fleet) astray(h *history) float64 {
	sum, n := 0.0, 0
	for a := range f.lag + 1 {
		for b := range f.lag + 1 {
			apart := max(a, b) - min(a, b)
			for t, part := range h.moved(apart) {
				if apart > 0 && t < apart {
					continue
				}
				if apart == 0 {
					part = 0
				}
				sum, n = sum+part, n+1
			}
		}
	}
	return sum / float64(n)
}

// A panel is lines over the steps, drawn one below the other.
type panel struct {
	title string
	lines []line
	lo    float64
	hi    float64
	log   bool
	ticks []float64
	label func(float64) string
}

const (
	width, plotWidth    = 860, 560
	panelHeight, margin = 250, 60
)

var colours = map[string]string{
	"round_robin": "#1f77b4", "least_conn": "#d62728", "random_two": "#2ca02c", "maglev": "#9467bd",
	"source_ip": "#ff7f0e", "maglev, table": "#9467bd", "source_ip, table": "#ff7f0e", "least_conn, slow_start": "#e377c2", "ideal": "#333333", "modulo": "#8c8c8c",
}

func (s *simulation) svg() []byte {
	times := func(v float64) string { return fmt.Sprintf("%.4g×", v) }
	percent := func(v float64) string { return fmt.Sprintf("%.4g %%", v*100) }
	panels := []panel{
		{title: "Sessions of the busiest endpoint, times the mean", lines: s.spread, lo: 1, hi: 1.6, ticks: []float64{1, 1.2, 1.4, 1.6}, label: times},
		{title: fmt.Sprintf("Sessions of the %d endpoints that come at step %d, times the mean", s.tenth(), 2*s.steps/3), lines: s.share, lo: 0, hi: 1.2, ticks: []float64{0, 0.5, 1}, label: times},
		{title: "Clients sent to another endpoint than in the step before", lines: s.moved, lo: 3e-4, hi: 1, log: true, ticks: []float64{0.001, 0.01, 0.1, 1}, label: percent},
	}
	var b strings.Builder
	height := 40 + len(panels)*panelHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15">%d nodes, %d endpoints, %d sessions: simulated</text>`+"\n", margin, s.nodes, s.endpoints, s.nodes*s.sessions)
	for i := range panels {
		panels[i].draw(&b, 40+i*panelHeight, s.steps)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func (p *panel) draw(b *strings.Builder, top, steps int) {
	const plotHeight = panelHeight - 70
	y := func(v float64) float64 {
		at := (v - p.lo) / (p.hi - p.lo)
		if p.log {
			at = math.Log(max(v, p.lo)/p.lo) / math.Log(p.hi/p.lo)
		}
		return float64(top+30+plotHeight) - plotHeight*min(max(at, 0), 1)
	}
	x := func(step int) float64 { return margin + plotWidth*float64(step)/float64(steps-1) }
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="13">%s</text>`+"\n", margin, top+18, p.title)
	for _, v := range p.ticks {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%s</text>`+"\n",
			margin, y(v), margin+plotWidth, margin-6, y(v)+4, p.label(v))
	}
	for step := 0; step < steps; step += 10 {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%d</text>`+"\n", x(step), top+46+plotHeight, step)
	}
	for i, l := range p.lines {
		var path strings.Builder
		for step := 1; step < steps; step++ {
			if p.log && l.by[step] == 0 {
				continue
			}
			fmt.Fprintf(&path, "%.1f,%.1f ", x(step), y(l.by[step]))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>`+"\n", strings.TrimSpace(path.String()), colours[l.name])
		key := top + 40 + 18*i
		fmt.Fprintf(b, `<path d="M%d %dh18" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n",
			margin+plotWidth+16, key, colours[l.name], margin+plotWidth+40, key+4, l.name)
	}
}
