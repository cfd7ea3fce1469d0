package worker_test

import (
	"errors"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A director decides the steps of searches, and counts the calls to them.
type director struct {
	// next returns the step of a search's n-th call.
	next    func(c *worker.Client, n int) worker.Step
	reached func() (*relay.Limits, error)
	header  []byte
	abandon func() bool // asked of a step that is under way; nil: never given up
	// overruled is asked of a connection that was made; nil: it is used.
	overruled func() bool

	begun, closed, joined atomic.Int64
	mu                    sync.Mutex
	failures              []error
}

// serviceOf returns the service of a director, whose counts are checked when the test is
// over.
func serviceOf(t *testing.T, d *director) *worker.Service {
	t.Cleanup(func() {
		if d.begun.Load() != d.closed.Load() {
			t.Errorf("%d searches have begun, and %d were closed", d.begun.Load(), d.closed.Load())
		}
	})
	return &worker.Service{NewSearch: func() worker.Search { return &actor{director: d} }}
}

func (d *director) failed() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failures
}

// An actor is a search that takes the steps of its director.
type actor struct {
	*director
	bare
	client *worker.Client
	asked  int
}

func (a *actor) Begin(c *worker.Client, _ int64) {
	if a.client != nil {
		panic("a search begins twice")
	}
	a.client, a.asked = c, 0
	a.begun.Add(1)
}

func (a *actor) Next(int64) worker.Step {
	a.asked++
	return a.next(a.client, a.asked)
}

func (a *actor) Overruled() bool    { return a.overruled != nil && a.overruled() }
func (a *actor) Abandon(int64) bool { return a.abandon != nil && a.abandon() }

func (a *actor) Resolved([]netip.Addr, error) {}

func (a *actor) Failed(err error, _ int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = append(a.failures, err)
}

func (a *actor) ProxyHeader(b []byte) []byte { return append(b, a.director.header...) }

func (a *actor) Reached(int64) (*relay.Limits, error) {
	a.joined.Add(1)
	if a.reached == nil {
		return nil, nil
	}
	return a.reached()
}

// A bare has no circle, no mirror and no rewriter.
type bare struct{}

func (bare) Circle(int, bool) error      { return nil }
func (bare) Mirror(int64) *worker.Mirror { return nil }
func (bare) Rewritten() relay.Side       { return relay.SideNone }
func (bare) Rewrite(*relay.Socket)       {}

func (a *actor) Err() error { return errGivenUp }

func (a *actor) Close() {
	if a.client == nil {
		panic("a search is closed twice")
	}
	a.client = nil
	a.closed.Add(1)
}

var errGivenUp = errors.New("given up")

// connectTo is a step.
func connectTo(addr string) worker.Step {
	return worker.Step{Action: worker.Connect, Address: loop.Address{AddrPort: netip.MustParseAddrPort(addr)}}
}

// straight returns a director whose searches connect to an address.
func straight(addr string) *director {
	return &director{next: func(*worker.Client, int) worker.Step { return connectTo(addr) }}
}

// directed makes a rig of a service that a director directs; change may change it.
func directed(t *testing.T, d *director, change func(*setup, *worker.Service)) *rig {
	t.Helper()
	return directedOn(t, "tcp", d, change)
}

func directedOn(t *testing.T, network string, d *director, change func(*setup, *worker.Service)) *rig {
	t.Helper()
	return newRigOn(t, network, func(c *setup) {
		s := serviceOf(t, d)
		c.first.Service = s
		if change != nil {
			change(c, s)
		}
	})
}

// clocked is directed with a clock of the test's, and serves. pass has time pass, and the loops look.
func clocked(t *testing.T, d *director, change func(*setup, *worker.Service)) (r *rig, pass func(time.Duration)) {
	t.Helper()
	clock := new(atomic.Int64)
	clock.Store(1)
	r = directed(t, d, func(c *setup, s *worker.Service) {
		if c.Now = clock.Load; change != nil {
			change(c, s)
		}
	})
	r.serve(t)
	return r, func(d time.Duration) {
		clock.Add(int64(d))
		r.Wake()
		r.Turn()
	}
}

// counted is an admitter that counts the clients that are in.
type counted struct {
	room            func() error
	admit, source   func(c *worker.Client) error
	asked, in, left atomic.Int64
	rooms           atomic.Int64
	mu              sync.Mutex
	sources         []source.Source
	tickets         []uint64
}

func (a *counted) NextSlotIn(int64) time.Duration { return 0 }

func (a *counted) CanAccept(int64) error {
	a.rooms.Add(1)
	if a.room == nil {
		return nil
	}
	return a.room()
}

func (a *counted) Admit(c *worker.Client, identified bool, now int64) error {
	a.asked.Add(1)
	if identified && !c.Source().Known() {
		return source.ErrUnknown
	}
	if a.admit != nil {
		if err := a.admit(c); err != nil {
			return err
		}
	}
	if identified {
		if err := a.AdmitSource(c, now); err != nil {
			return err
		}
	}
	a.in.Add(1)
	return nil
}

func (a *counted) AdmitSource(c *worker.Client, _ int64) error {
	a.mu.Lock()
	a.sources = append(a.sources, c.Source())
	a.mu.Unlock()
	if a.source != nil {
		return a.source(c)
	}
	return nil
}

func (*counted) Uncounted(uint64) func(source.Source, int64) uint64 { return nil }

// tokenOf returns an admission token of a client's source.
func tokenOf(s source.Source) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s.String())
	return h.Sum64()
}

func (a *counted) Released(admissionToken uint64) {
	a.left.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tickets = append(a.tickets, admissionToken)
}

// reset closes a connection by a reset.
func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}
