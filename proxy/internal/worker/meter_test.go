package worker_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A gauge is a tie that is a meter.
type gauge struct {
	tie
	mu    sync.Mutex
	moved worker.Bytes
	told  int
}

func (g *gauge) Moved(b worker.Bytes) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moved.Add(b)
	g.told++
}

func (g *gauge) all() worker.Bytes {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moved
}

// metered is all that was moved by binding, of sessions that have ended and of those that run.
func metered(g *worker.Group, gauges ...*gauge) (of []worker.Bytes, sum worker.Summary) {
	g.Metered(func(s worker.Summary, running map[worker.Binding]*worker.Bytes) {
		sum = s
		for _, b := range gauges {
			bytes := b.all()
			if more := running[b]; more != nil {
				bytes.Add(*more)
			}
			of = append(of, bytes)
		}
	})
	return of, sum
}

func total(b worker.Bytes) int64 {
	return b.ClientToEndpoint.Spliced + b.ClientToEndpoint.Copied + b.EndpointToClient.Spliced + b.EndpointToClient.Copied
}

// The bytes that sessions have moved are reported by binding, while they run and when they
// have ended.
func TestMetered(t *testing.T) {
	t.Parallel()

	b := [2]*gauge{{}, {}}
	limits := [2]*relay.Limits{{Of: b[0]}, {Of: b[1]}}
	d := straight(echo(t))
	var turn atomic.Int64
	d.reached = func() (*relay.Limits, error) { return limits[turn.Add(1)%2], nil }
	r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.MaxConnections = 1000 })
	r.serve(t)
	const clients = 300
	var conns []net.Conn
	for range clients {
		conns = append(conns, r.dial(t))
		talk(t, conns[len(conns)-1])
	}
	const each = clients / 2 * 5
	check := func(when string) {
		t.Helper()
		got, sum := metered(r.Group, b[:]...)
		for i, g := range got {
			if to, from := g.ClientToEndpoint, g.EndpointToClient; to.Spliced+to.Copied != each || from.Spliced+from.Copied != each {
				t.Errorf("%s: binding %d has moved %+v, want %d both ways", when, i, g, each)
			}
		}
		if of := sum.Totals; of.ClientToEndpoint.Spliced != got[0].ClientToEndpoint.Spliced+got[1].ClientToEndpoint.Spliced {
			t.Errorf("%s: %+v in all, and by binding %+v", when, of, got)
		}
	}
	check("while they run")
	for _, c := range conns[:clients/2] {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == clients/2 })
	check("when half have ended")
	for _, c := range conns[clients/2:] {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == 0 })
	check("when all have ended")
	if now := total(b[0].all()) + total(b[1].all()); now != 4*each {
		t.Errorf("the meters were given %d bytes, want %d", now, 4*each)
	}
}

// No answer has less than the one before, however sessions end meanwhile, and each is
// counted once. Some that stay have the walks take several turns.
func TestMeteredUnderLoad(t *testing.T) {
	t.Cleanup(worker.SetSlabSize(1))
	b := new(gauge)
	d := straight(echo(t))
	limits := &relay.Limits{Of: b}
	d.reached = func() (*relay.Limits, error) { return limits, nil }
	const stay = 100
	r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.MaxConnections = stay + 100 })
	r.serve(t)
	for range stay {
		talk(t, r.dial(t))
	}
	var over atomic.Bool
	var asking, work sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for last := int64(0); !over.Load(); {
				got, sum := metered(r.Group, b)
				now := total(got[0])
				if all := total(worker.Bytes{ClientToEndpoint: sum.Totals.ClientToEndpoint, EndpointToClient: sum.Totals.EndpointToClient}); now < last || now != all {
					t.Errorf("%d bytes after %d, and %d in all", now, last, all)
					return
				}
				last = now
			}
		})
	}
	const clients, each = 6, 300
	for range clients {
		work.Go(func() {
			for range each {
				if err := r.hello(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	over.Store(true)
	asking.Wait()
	eventually(t, func() bool { return r.Active() == stay })
	if got, want := total(b.all()), int64(clients*each*2*5); got != want {
		t.Errorf("the meter was given %d bytes, want %d", got, want)
	}
}

// A client on goroutines is metered like the others.
func TestMeteredHanded(t *testing.T) {
	t.Parallel()

	b := new(gauge)
	x := newHand(t, nil)
	x.limits = &relay.Limits{Of: b}
	d := x.director()
	r := directed(t, d, nil)
	r.serve(t)
	c := r.dial(t)
	talk(t, c)
	eventually(t, func() bool { // the reader of the bytes may be faster than their counter
		got, _ := metered(r.Group, b)
		return total(got[0]) == 10
	})
	got, _ := metered(r.Group, b)
	if total(got[0]) != 10 || total(b.all()) != 0 {
		t.Errorf("while it runs: %+v, of which the meter was given %+v", got[0], b.all())
	}
	c.Close()
	eventually(t, func() bool { return r.Active() == 0 })
	if got, _ := metered(r.Group, b); total(got[0]) != 10 || total(b.all()) != 10 {
		t.Errorf("when it has ended: %+v, of which the meter was given %+v", got[0], b.all())
	}
}
