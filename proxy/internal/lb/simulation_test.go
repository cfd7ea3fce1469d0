package lb_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
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
