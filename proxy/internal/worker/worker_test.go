package worker_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

func TestMain(m *testing.M) { leak.Main(m) }

// tableSlots is the size of the loop's table for the two sockets of a session.
const tableSlots = 2 * 24

// laneTables is the size of a session's places in the tables of the lane, see TestMillionSessions and TestPortsSize there.
const laneTables = 13

// holding is the size of a connection in the table of its source, see limit.Sources.
const holding = 20

func TestSizeOfAnIdleSession(t *testing.T) {
	t.Parallel()

	all, relays := worker.ConnSize()
	t.Logf("%d bytes, %d of them the relay's", all, relays)
	if all+tableSlots+holding > 388 {
		t.Errorf("a session takes %d bytes, %d of the loop's table and %d of that of its source, want at most 388", all, tableSlots, holding)
	}
	t.Logf("%d bytes until it is joined", worker.DialingSize())
	if n := worker.LaneSize(); n > 144 {
		t.Errorf("its part in the lane takes %d bytes, more than a size class", n)
	}
	if n := all - relays + worker.LaneSize() + laneTables; n > 197 {
		t.Errorf("a session that has left user space takes %d bytes, %d of them in the lane's tables, want at most 197", n, laneTables)
	}
	if all-relays > 40 {
		t.Errorf("a session takes %d bytes beside the relay's", all-relays)
	}
	if sessions, conns := worker.SlabSizes(); sessions > 8<<10-8 || conns > 8<<10-8 {
		t.Errorf("slabs take %d and %d bytes, more than a size class with its header", sessions, conns)
	}
}

// TestUnusedIsSmall: the list of unused places is small again when those of a peak are used.
func TestUnusedIsSmall(t *testing.T) {
	t.Parallel()

	const n = 20_000
	if gone, again := worker.UnusedRoom(n); gone < n || again > 1000 {
		t.Errorf("there is room for %d, and with as many again for %d", gone, again)
	}
}

// witness is a host that keeps its notifications.
type witness struct {
	mu      sync.Mutex
	full    []bool
	refused []error
	closed  atomic.Int64
	left    atomic.Int64
	fd      int // owned until it is closed
	trims   atomic.Int64
	pauses  atomic.Int64

	records      atomic.Bool // are kept
	sampler      uint8
	began, ended []record.Record
	lasted       []record.Record
}

func (w *witness) Left(l *worker.Listening) {
	if p, ok := l.Of.(*place); ok {
		close(p.left)
		return
	}
	w.left.Add(1)
}

func (w *witness) Closed(l *worker.Listening) {
	if p, ok := l.Of.(*place); ok {
		syscall.Close(p.fd)
		p.had = l.Clients()
		close(p.closed)
		return
	}
	if w.closed.Add(1) == 1 {
		syscall.Close(w.fd)
	}
}

func (w *witness) Full(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = append(w.full, full)
}

func (w *witness) Refused(_ *worker.Listening, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, cause)
}

func (w *witness) causes() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

func (w *witness) Paused(*worker.Listening, error, int64, int64) { w.pauses.Add(1) }

func (w *witness) Trim() int { w.trims.Add(1); return 0 }

func (w *witness) Judge(_ worker.Binding, sample *verdict.Sample) verdict.Verdict {
	return verdict.Of(sample)
}

func (w *witness) Records(string, record.ID) bool { return w.records.Load() }

func (w *witness) Traces(record.ID) uint8 { return w.sampler }

func (w *witness) Began(_ *worker.Listening, _ worker.Binding, r *record.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = append(w.began, *r)
}

func (w *witness) Lasts(_ *worker.Listening, _ worker.Binding, r *record.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lasted = append(w.lasted, *r)
}

func (w *witness) Ended(_ *worker.Listening, _ worker.Binding, r *record.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, *r)
}

// rig is a group in front of an echo.
type rig struct {
	*worker.Group
	*witness
	addr   net.Addr
	served chan error
}

// A setup is the configuration of a rig, and its first socket.
type setup struct {
	worker.Config
	first worker.Listener
}

// newRig makes a group; change may change its configuration.
func newRig(t *testing.T, change func(*setup)) *rig {
	t.Helper()
	return newRigOn(t, "tcp", change)
}

func newRigOn(t *testing.T, network string, change func(*setup)) *rig {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = sockets.Dir(t) + "/proxy"
	}
	r := &rig{witness: new(witness), served: make(chan error, 1)}
	rel := relayOf(t, relay.EngineCopy)
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	r.addr = ln.Addr()
	fd, err := loop.Take(ln.(syscall.Conn))
	if err != nil {
		t.Fatal(err)
	}
	r.fd = fd
	t.Cleanup(func() {
		if r.closed.Load() == 0 {
			syscall.Close(fd)
		}
	})
	cfg := &setup{
		Config: worker.Config{Loops: 2, Relay: rel, MaxConnections: 100, Host: r.witness},
		first:  worker.Listener{FD: fd, TCP: network == "tcp", Service: to(t, echo(t))},
	}
	if change != nil {
		change(cfg)
	}
	cfg.first.Service.Name = "first"
	if r.Group, err = worker.New(&cfg.Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := r.Listen(cfg.first); err != nil {
		t.Fatal(err)
	}
	return r
}

// begin lets it serve, until served has the result.
func (r *rig) begin() { go func() { r.served <- r.Serve() }() }

// serve lets it serve until the test ends.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	r.begin()
	t.Cleanup(func() {
		r.Cut(errors.New("the test is over"))
		if err := <-r.served; err != nil {
			t.Error(err)
		}
	})
}

// to returns the service that connects to one address once.
func to(t *testing.T, spec string) *worker.Service {
	t.Helper()
	addr, err := sockopt.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	step := worker.Step{Action: worker.Connect, Address: loop.Address{Path: addr.Name}}
	if addr.Network != "unix" {
		step = connectTo(addr.Name)
	}
	return serviceOf(t, &director{next: func(_ *worker.Client, n int) worker.Step {
		if n > 1 {
			return worker.Step{Action: worker.GiveUp}
		}
		return step
	}})
}

// echo serves until the test ends, and returns where.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, ln, sockets.Echo)
	return ln.Addr().String()
}

// dials connects n clients.
func (r *rig) dials(t *testing.T, n int) (conns []net.Conn) {
	t.Helper()
	for range n {
		conns = append(conns, r.dial(t))
	}
	return conns
}

func (r *rig) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial(r.addr.Network(), r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(condition.Patience))
	return c
}

// hello sends a message over a connection of its own, and waits for it to come back.
func (r *rig) hello() error {
	c, err := net.Dial(r.addr.Network(), r.addr.String())
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	return chat(c)
}

// chat sends a message, and waits for it to come back.
func chat(c net.Conn) error {
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		return fmt.Errorf("got %q, %w", got, err)
	}
	return nil
}

func talk(t *testing.T, c net.Conn) {
	t.Helper()
	if err := chat(c); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the condition is true.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	condition.Await(t, "what it waits for happens", what)
}

// Connections that live long are spread over the loops, however they come.
func TestBalance(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ clients, most int64 }{{8, 6}, {64, 38}} {
		for name, together := range map[string]bool{"one by one": false, "together": true} {
			r := newRig(t, nil)
			if !together {
				r.serve(t)
			}
			var conns []net.Conn
			for range c.clients {
				conns = append(conns, r.dial(t))
				if !together {
					talk(t, conns[len(conns)-1])
				}
			}
			if together {
				r.serve(t)
			}
			for _, conn := range conns {
				talk(t, conn)
			}
			sum := r.Summary()
			for i, l := range sum.Loops {
				if l.Active > c.most {
					t.Errorf("%s: loop %d has %d of %d clients: %+v", name, i, l.Active, c.clients, sum.Loops)
				}
			}
			if sum.Active != c.clients || sum.Accepted != c.clients {
				t.Errorf("%s: %d clients of %d are active, %d accepted", name, sum.Active, c.clients, sum.Accepted)
			}
		}
	}
}

// A client that gets no descriptor for its target waits, is tried again, and is reset in
// time. Meanwhile no other client is accepted.
func TestClientWithoutADescriptorIsRefusedInTime(t *testing.T) {
	t.Parallel()

	var clock, tries atomic.Int64
	clock.Store(1)
	r := newRig(t, func(c *setup) { c.Now, c.Loops = clock.Load, 1 })
	r.SetControl(func() error { tries.Add(1); return syscall.EMFILE })
	r.serve(t)
	first := r.dial(t)
	eventually(t, func() bool { return tries.Load() >= 2 }) // the second with the spare
	second := r.dial(t)
	for passed := time.Duration(0); passed < 5*time.Second; passed += 100 * time.Millisecond {
		before := tries.Load()
		clock.Add(int64(100 * time.Millisecond))
		r.Wake()
		eventually(t, func() bool { return tries.Load() > before })
	}
	if n := len(r.causes()); n != 0 {
		t.Fatalf("refused after less than five seconds: %v", r.causes())
	}
	if got := r.Summary(); got.Accepted != 1 {
		t.Errorf("%d clients are accepted while one lacks a descriptor", got.Accepted)
	}
	r.SetControlNow(func() error {
		if tries.Add(1); len(r.causes()) == 0 {
			return syscall.EMFILE
		}
		return nil
	})
	clock.Add(int64(200 * time.Millisecond))
	r.Wake()
	wasReset(t, first)
	eventually(t, func() bool { return len(r.causes()) > 0 }) // it is reported right after
	if causes := r.causes(); len(causes) != 1 || !worker.LacksDescriptor(causes[0]) {
		t.Errorf("refused for %v", causes)
	}
	talk(t, second)
	if r.trims.Load() == 0 {
		t.Error("nothing was called to give descriptors back")
	}
}

// Each client that comes at the limit, the group's or an admitter's own, is served, in its turn, and none is forgotten.
func TestChurnAtTheLimit(t *testing.T) {
	t.Parallel()

	for name, places := range map[string]int{"the group's": 2, "an admitter's": 100} {
		t.Run(name, func(t *testing.T) {
			a := new(counted)
			a.room = func() error {
				if a.in.Load()-a.left.Load() >= 2 {
					return errNotAdmitted
				}
				return nil
			}
			r := directed(t, straight(echo(t)), func(c *setup, s *worker.Service) {
				if c.MaxConnections = places; places > 2 {
					s.Admitter = a
				}
			})
			r.serve(t)
			const clients, turns = 16, 25
			var work sync.WaitGroup
			for range clients {
				work.Go(func() {
					for range turns {
						if err := r.hello(); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			work.Wait()
			eventually(t, func() bool { return r.Active() == 0 })
			if sum := r.Summary(); sum.Accepted != clients*turns || sum.Refused != 0 || sum.Active != 0 {
				t.Errorf("the summary is %+v", sum)
			}
			if places > 2 {
				eventually(t, func() bool { return a.left.Load() == clients*turns })
				return
			}
			eventually(t, func() bool { told := r.witness.told(); return len(told) > 0 && !told[len(told)-1] })
		})
	}
}

// Wherever clients are when the group ends, between the listener and their end, it ends,
// and no client is left behind.
func TestEndInTheMiddle(t *testing.T) {
	t.Parallel()

	for i := range 12 {
		r := newRig(t, func(c *setup) { c.MaxConnections = 3 + i*8 })
		r.begin()
		var work sync.WaitGroup
		var talked atomic.Int64
		for range 24 {
			work.Go(func() {
				for r.hello() == nil {
					talked.Add(1)
				}
			})
		}
		eventually(t, func() bool { return talked.Load() > 100 })
		var asking sync.WaitGroup
		asking.Go(func() { _ = r.Summary() })
		if i%2 == 0 {
			r.Drain()
		}
		if i%2 != 0 || i%3 == 0 {
			r.Cut(errors.New("enough"))
		}
		work.Wait()
		if err := <-r.served; err != nil {
			t.Error(err)
		}
		asking.Wait()
		if sum := r.Summary(); sum.Active != 0 || r.Active() != 0 {
			t.Errorf("a client is left: %+v", sum)
		}
	}
}

// A summary may be requested while the group is closed, and after that.
func TestSummaryAtTheEnd(t *testing.T) {
	t.Parallel()

	for range 5 {
		t.Run("", func(t *testing.T) {
			var over atomic.Bool
			var asking sync.WaitGroup
			t.Cleanup(func() { // after the group was closed
				over.Store(true)
				asking.Wait()
			})
			r := newRig(t, nil)
			r.serve(t)
			asking.Go(func() {
				for !over.Load() {
					if sum := r.Summary(); len(sum.Loops) != 2 {
						t.Errorf("a summary of %d loops", len(sum.Loops))
					}
				}
			})
			talk(t, r.dial(t))
		})
	}
}

// The reached limit is reported once for all clients that wait in turn. Room is reported
// when no client waits any more.
func TestFullIsToldWhenItChanges(t *testing.T) {
	t.Parallel()

	r := newRig(t, func(c *setup) { c.MaxConnections, c.Loops = 1, 1 })
	for round := range 3 {
		var conns []net.Conn
		for range 20 {
			conns = append(conns, r.dial(t)) // in the accept queue, or waiting for it
		}
		if round == 0 {
			r.serve(t)
		}
		for _, c := range conns {
			talk(t, c)
			c.Close()
		}
		eventually(t, func() bool { told := r.witness.told(); return len(told) > 0 && !told[len(told)-1] })
	}
	if got, want := r.witness.told(), []bool{true, false, true, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("reported %v, want %v", got, want)
	}
}

func (w *witness) told() []bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.full)
}
