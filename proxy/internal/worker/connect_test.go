package worker_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// stuckResolver answers when its caller does not want to know any more.
func stuckResolver(ctx context.Context, _ string, _ time.Duration) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAbandon: a connection that is being made, and a name that is being resolved, are given up when the
// search says so, and not before; then the search goes on.
func TestAbandon(t *testing.T) {
	t.Parallel()

	stuck, well := connectTo(sockets.Silent(t)), echo(t)
	for name, first := range map[string]worker.Step{
		"connect": stuck,
		"resolve": {Action: worker.Resolve, Resolver: stuckResolver},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			first.Recheck = time.Millisecond
			d := &director{
				next: func(_ *worker.Client, n int) worker.Step {
					if n == 1 {
						return first
					}
					return connectTo(well)
				},
				abandon: func() bool { return asked.Add(1) == 3 },
			}
			r := directed(t, d, nil)
			r.serve(t)
			talk(t, r.dial(t))
			if n := asked.Load(); n != 3 {
				t.Errorf("it was asked %d times", n)
			}
			if got := d.failed(); name == "connect" && (len(got) != 1 || !errors.Is(got[0], record.ErrAbandoned)) {
				t.Errorf("failures: %v", got)
			}
		})
	}
}

// TestClientLeavesBeforeItsStepIsAbandoned: nothing is asked about a client that has left.
func TestClientLeavesBeforeItsStepIsAbandoned(t *testing.T) {
	t.Parallel()

	step := connectTo(sockets.Silent(t))
	step.Recheck = 5 * time.Millisecond
	var asked atomic.Int64
	d := &director{
		next:    func(*worker.Client, int) worker.Step { return step },
		abandon: func() bool { asked.Add(1); return false },
	}
	r := directed(t, d, nil)
	r.serve(t)
	c := r.dial(t)
	eventually(t, func() bool { return asked.Load() > 1 })
	reset(c)
	eventually(t, func() bool { return r.Active() == 0 })
	if s := r.Summary(); s.Left != 1 || s.Refused != 0 {
		t.Errorf("%d have left, %d were refused", s.Left, s.Refused)
	}
	n := asked.Load()
	time.Sleep(50 * time.Millisecond)
	if now := asked.Load(); now != n {
		t.Errorf("asked %d times afterwards", now-n)
	}
}

// TestClientLeavesBetweenRefusals: connects that are refused within their calls do not keep the loop from noticing
// that the client has left.
func TestClientLeavesBetweenRefusals(t *testing.T) {
	t.Parallel()

	// A connect to a unix socket that nobody has fails within its call, one of TCP does not.
	refuses := worker.Step{Action: worker.Connect, Address: loop.Address{Path: sockets.Dir(t) + "/none"}}
	at, left := make(chan struct{}), make(chan struct{})
	d := &director{next: func(_ *worker.Client, n int) worker.Step {
		switch n {
		case 10:
			close(at)
			<-left
		case 10_000:
			return worker.Step{Action: worker.GiveUp}
		}
		return refuses
	}}
	r := directed(t, d, nil)
	r.serve(t)
	c := r.dial(t)
	<-at
	reset(c)
	close(left)
	eventually(t, func() bool { return r.Active() == 0 })
	if s := r.Summary(); s.Left != 1 || s.Refused != 0 {
		t.Errorf("%d have left, %d were refused after %d connects", s.Left, s.Refused, len(d.failed()))
	}
}

// A hall is where a director's clients are parked, as long as it is closed.
type hall struct {
	mu     sync.Mutex
	open   bool
	wakers []worker.Waker
}

// parking returns a director of searches that park in h until it is open.
func (h *hall) parking(addr string, timeout time.Duration) *director {
	return &director{next: func(c *worker.Client, n int) worker.Step {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.open {
			return connectTo(addr)
		}
		if n > 1 && timeout > 0 {
			return worker.Step{Action: worker.GiveUp}
		}
		h.wakers = append(h.wakers, c.Waker())
		return worker.Step{Action: worker.Park, Timeout: timeout}
	}}
}

func (h *hall) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.wakers)
}

func (h *hall) wake() {
	h.mu.Lock()
	h.open = true
	wakers := h.wakers
	h.mu.Unlock()
	var work sync.WaitGroup
	for _, w := range wakers {
		work.Go(w.Wake)
	}
	work.Wait()
}

// Clients that are parked are served when they are woken, each one once. Waking again does
// not affect the next client in that place.
func TestParkedAreWoken(t *testing.T) {
	t.Parallel()

	h := new(hall)
	d := h.parking(echo(t), 0)
	r := directed(t, d, func(c *setup, _ *worker.Service) { c.MaxConnections = 1000 })
	r.serve(t)
	const clients = 300
	conns := r.dials(t, clients)
	eventually(t, func() bool { return h.waiting() == clients })
	h.wakers[0].Wake() // it parks again
	eventually(t, func() bool { return h.waiting() == clients+1 })
	h.wake()
	for _, c := range conns {
		talk(t, c)
	}
	for _, c := range conns[:clients/2] {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == clients/2 })
	h.wake()
	h.mu.Lock()
	h.open = false
	h.mu.Unlock()
	again := r.dial(t) // in a place that was used before
	eventually(t, func() bool { return h.waiting() == clients+2 })
	for _, w := range h.wakers[:clients+1] {
		w.Wake()
	}
	r.Turn()
	if n := h.waiting(); n != clients+2 {
		t.Errorf("a stale waker has woken a client: %d were parked", n)
	}
	h.wake()
	talk(t, again)
	if n := d.joined.Load(); n != clients+1 {
		t.Errorf("%d were joined", n)
	}
}

// Parking has a timeout, after which the search is called again.
func TestParkedForTooLong(t *testing.T) {
	t.Parallel()

	h := new(hall)
	r, pass := clocked(t, h.parking(echo(t), 3*time.Second), nil)
	c := r.dial(t)
	eventually(t, func() bool { return h.waiting() == 1 })
	pass(2900 * time.Millisecond)
	if len(r.causes()) != 0 {
		t.Fatal("it was given up before its time")
	}
	pass(200 * time.Millisecond)
	wasReset(t, c)
	eventually(t, func() bool { return len(r.causes()) == 1 })
	if got := r.causes()[0]; got != errGivenUp || r.Summary().Refused != 1 {
		t.Errorf("refused for %v", got)
	}
}

// A pause passes, and no client that leaves meanwhile is waited for.
func TestPause(t *testing.T) {
	t.Parallel()

	addr := echo(t)
	var paused atomic.Int64
	d := &director{next: func(_ *worker.Client, n int) worker.Step {
		if n <= 2 {
			paused.Add(1)
			return worker.Step{Action: worker.Pause, Timeout: time.Second}
		}
		return connectTo(addr)
	}}
	r, pass := clocked(t, d, nil)
	c, gone := r.dial(t), r.dial(t)
	eventually(t, func() bool { return paused.Load() == 2 })
	reset(gone)
	eventually(t, func() bool { return r.Active() == 1 })
	for i := range 2 {
		pass(1100 * time.Millisecond)
		eventually(t, func() bool { return paused.Load() == int64(min(3+i, 3)) })
	}
	talk(t, c)
}

// waitFor waits until the only client that is listed is in a state.
func (r *rig) waitFor(t *testing.T, state worker.State) {
	t.Helper()
	eventually(t, func() bool {
		for s := range r.Sessions(context.Background(), new(worker.Query)) {
			if s.State == state && s.Listener == "first" && s.Client != "" {
				return true
			}
		}
		return false
	})
}

// Wherever a client is waiting when it goes, its place is free at once, and everything that was taken for it is given back.
// Only a client that has ended in the middle of its first bytes is refused.
func TestClientLeavesWhileItWaits(t *testing.T) {
	t.Parallel()

	hello, header := helloOf(t, "gone.example"), worker.Preread{Header: &proxyproto.Policy{}}
	part, park := []byte("PROXY TCP4 1.2.3.4"), worker.Step{Action: worker.Park, Timeout: time.Hour}
	stuck, responds := connectTo(sockets.Silent(t)), worker.Step{Action: worker.Respond, Timeout: time.Hour}
	long := worker.Step{Action: worker.Respond, Bytes: make([]byte, 64<<20), Timeout: time.Hour}
	closes := func(c net.Conn) { c.Close() }
	ends := func(c net.Conn) { c.(*net.TCPConn).CloseWrite() }
	first, half := worker.Preread{First: new(hosts)}, []byte("GET / HTTP/1.1\r\nHost: a")
	for name, x := range map[string]struct {
		preread worker.Preread
		sent    []byte
		step    worker.Step
		state   worker.State
		leave   func(net.Conn)
		ended   int64 // of those, that are refused because they ended
	}{
		"tcp/hello/reset":        {worker.Preread{Hello: true}, nil, stuck, worker.Prereading, reset, 0},
		"tcp/hello/part/reset":   {worker.Preread{Hello: true}, hello[:100], stuck, worker.Prereading, reset, 0},
		"tcp/hello/end":          {worker.Preread{Hello: true}, nil, stuck, worker.Prereading, closes, 0},
		"tcp/hello/part/end":     {worker.Preread{Hello: true}, hello[:100], stuck, worker.Prereading, closes, 1},
		"tcp/hello/half/end":     {worker.Preread{Hello: true}, hello[:3], stuck, worker.Prereading, ends, 1},
		"tcp/header/reset":       {header, part, stuck, worker.Prereading, reset, 0},
		"tcp/header/end":         {header, part, stuck, worker.Prereading, closes, 1},
		"tcp/data/reset":         {worker.Preread{Data: true}, nil, stuck, worker.Prereading, reset, 0},
		"tcp/data/end":           {worker.Preread{Data: true}, nil, stuck, worker.Prereading, closes, 0},
		"tcp/first bytes/end":    {first, half, stuck, worker.Prereading, ends, 1},
		"tcp/header, hello/part": {worker.Preread{Header: &proxyproto.Policy{}, Hello: true}, []byte("PROXY UNKNOWN\r\n\x16"), stuck, worker.Prereading, closes, 1},
		"tcp/dialing/reset":      {worker.Preread{}, nil, stuck, worker.Dialing, reset, 0},
		"tcp/dialing/sent":       {worker.Preread{}, []byte("x"), stuck, worker.Dialing, reset, 0},
		"tcp/dialing/ended":      {worker.Preread{}, nil, stuck, worker.Dialing, func(c net.Conn) { ends(c); reset(c) }, 0},
		"unix/dialing/closed":    {worker.Preread{}, nil, stuck, worker.Dialing, closes, 0},
		"unix/dialing/ended":     {worker.Preread{}, nil, stuck, worker.Dialing, func(c net.Conn) { c.(*net.UnixConn).CloseWrite(); c.Close() }, 0},
		"tcp/parked/reset":       {worker.Preread{}, nil, worker.Step{Action: worker.Park}, worker.Waiting, reset, 0},
		"tcp/pausing/reset":      {worker.Preread{}, nil, worker.Step{Action: worker.Pause, Timeout: time.Hour}, worker.Waiting, reset, 0},
		"unix/parked/closed":     {worker.Preread{}, nil, park, worker.Waiting, closes, 0},
		"tcp/responding/reset":   {worker.Preread{}, nil, long, worker.Responding, reset, 0},
		"tcp/lingering/reset":    {worker.Preread{}, nil, responds, worker.Responding, reset, 0},
		"tcp/lingering/ended":    {worker.Preread{}, nil, responds, worker.Responding, ends, 0},
		"unix/lingering/closed":  {worker.Preread{}, nil, responds, worker.Responding, closes, 0},
		"tcp/lingering/sends":    {worker.Preread{}, nil, responds, worker.Responding, func(c net.Conn) { _, _ = c.Write(make([]byte, 1<<20)); c.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			network, _, _ := strings.Cut(name, "/")
			a, d := new(counted), &director{next: func(*worker.Client, int) worker.Step { return x.step }}
			r := directedOn(t, network, d, func(c *setup, s *worker.Service) { s.Preread, s.Admitter, c.MaxConnections = x.preread, a, 1 })
			r.serve(t)
			const clients = 3
			for range clients {
				c := r.dial(t)
				r.waitFor(t, x.state)
				mustWrite(t, c, x.sent)
				r.Turn()
				x.leave(c)
				eventually(t, func() bool { return r.Active() == 0 })
			}
			eventually(t, func() bool { return a.left.Load() == clients })
			if sum := r.Summary(); sum.Accepted != clients || sum.Refused != x.ended*clients || slices.ContainsFunc(r.causes(), func(err error) bool { return err != worker.ErrPrereadEnded && err != worker.ErrHeaderEnded }) {
				t.Errorf("the summary is %+v, for %v", sum, r.causes())
			} else if sum.Left > 0 && x.step.Action == worker.Respond && x.step.Bytes == nil {
				t.Errorf("%d have left, although all had their response", sum.Left)
			}
		})
	}
}

// Every client that is waiting when all are cut is reset.
func TestCutWhileTheyWait(t *testing.T) {
	t.Parallel()

	for state, x := range map[worker.State]struct {
		preread worker.Preread
		step    worker.Step
	}{
		worker.Prereading: {preread: worker.Preread{Data: true, Timeout: time.Hour}},
		worker.Waiting:    {step: worker.Step{Action: worker.Park}},
		worker.Responding: {step: worker.Step{Action: worker.Respond, Bytes: make([]byte, 64<<20), Timeout: time.Hour}},
	} {
		t.Run(string(state), func(t *testing.T) {
			a := new(counted)
			d := &director{next: func(*worker.Client, int) worker.Step { return x.step }}
			r := directed(t, d, func(_ *setup, s *worker.Service) { s.Preread, s.Admitter = x.preread, a })
			r.begin()
			r.dial(t)
			r.waitFor(t, state)
			r.Cut(errNotAdmitted)
			if err := <-r.served; err != nil {
				t.Error(err)
			}
			if sum := r.Summary(); sum.Canceled != 1 || sum.Active != 0 || a.left.Load() != 1 {
				t.Errorf("the summary is %+v, %d have left", sum, a.left.Load())
			}
		})
	}
}

// earlyRig is a group of one place in front of a unix socket whose accept queue is full,
// until the test accepts from it.
func earlyRig(t *testing.T, network string) (r *rig, target net.Listener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "target")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	if target, err = loop.GiveListener(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	first, err := net.Dial("unix", path) // the one that fits, and stays in the queue
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	r = newRigOn(t, network, func(c *setup) { c.first.Service, c.MaxConnections = to(t, "unix:"+path), 1 })
	r.serve(t)
	return r, target
}

// answer lets the target take the clients that wait for it, reads the next one's
// request to its end, and answers.
func answer(t *testing.T, target net.Listener) (request string) {
	t.Helper()
	for range 2 {
		c := accept(t, target)
		defer c.Close()
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("answer"))
		request = string(got)
	}
	return request
}

// A client that has sent its end of file still wants the answer. The bytes of a client that
// has closed are still delivered.
func TestClientThatSendsAndWaits(t *testing.T) {
	t.Parallel()

	for _, network := range []string{"tcp", "unix"} {
		for _, x := range []struct {
			request string
			closes  bool
		}{{"", false}, {"request", false}, {"request", true}} {
			t.Run(fmt.Sprintf("%s/%q/closes=%v", network, x.request, x.closes), func(t *testing.T) {
				r, target := earlyRig(t, network)
				client := r.dial(t)
				eventually(t, func() bool { return r.Active() == 1 })
				mustWrite(t, client, []byte(x.request))
				if x.closes {
					client.Close()
				} else {
					_ = client.(interface{ CloseWrite() error }).CloseWrite()
				}
				r.Turn() // in which the loops get its event
				if n := r.Active(); n != 1 {
					t.Fatalf("%d clients have a place", n)
				}
				if got := answer(t, target); got != x.request {
					t.Fatalf("the target gets %q", got)
				}
				if x.closes {
					return
				}
				if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
					t.Errorf("the client gets %q, %v", got, err)
				}
			})
		}
	}
}

// responding returns a director whose searches respond.
func responding(b []byte, timeout time.Duration) *director {
	return &director{next: func(*worker.Client, int) worker.Step {
		return worker.Step{Action: worker.Respond, Bytes: b, Timeout: timeout}
	}}
}

// A response arrives whole and ends properly, whatever unread bytes the client has sent,
// and whatever its size.
func TestRespond(t *testing.T) {
	t.Parallel()

	for name, size := range map[string]int{"small": 20, "large": 8 << 20, "none": 0} {
		t.Run(name, func(t *testing.T) {
			response := bytes.Repeat([]byte("sorry "), size/6)
			r := directed(t, responding(response, time.Minute), nil)
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, make([]byte, 100_000))
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, response) {
				t.Errorf("got %d bytes of %d, %v", len(got), len(response), err)
			}
			if r.Active() != 1 {
				t.Error("it was closed before the client has ended")
			}
			mustWrite(t, c, make([]byte, 100_000)) // no reset answers it
			r.Turn()
			c.Close()
			eventually(t, func() bool { return r.Active() == 0 })
			if sum := r.Summary(); sum.Refused != 0 {
				t.Errorf("the summary is %+v", sum)
			}
		})
	}
}

// One that neither reads nor ends has its time.
func TestRespondToOneWhoStays(t *testing.T) {
	t.Parallel()

	for name, size := range map[string]int{"not read": 32 << 20, "not ended": 10} {
		t.Run(name, func(t *testing.T) {
			r, pass := clocked(t, responding(make([]byte, size), 7*time.Second), nil)
			r.dial(t)
			eventually(t, func() bool { return r.Active() == 1 })
			r.Turn()
			pass(6 * time.Second)
			if r.Active() != 1 {
				t.Fatal("it was closed before its time")
			}
			pass(2 * time.Second)
			eventually(t, func() bool { return r.Active() == 0 })
		})
	}
}

// A header comes before the client's bytes, also if the endpoint takes it bit by bit or
// the client has sent nothing yet.
func TestPreface(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		network string
		size    int
		early   string
	}{
		"short": {"unix", 28, "hello"}, "long": {"unix", 4 << 20, "hello"},
		"tcp": {"tcp", 28, "hello"}, "tcp, long": {"tcp", 16 << 20, "hello"}, "silent": {"tcp", 28, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at := loop.Address{AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}
			if x.network == "unix" {
				at.Path = filepath.Join(t.TempDir(), "endpoint")
			}
			ln, err := net.Listen(x.network, cmp.Or(at.Path, "127.0.0.1:0"))
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			if x.network == "tcp" {
				at.AddrPort = ln.Addr().(*net.TCPAddr).AddrPort()
			}
			d := &director{header: bytes.Repeat([]byte("PROXY! "), x.size/7), next: func(*worker.Client, int) worker.Step {
				return worker.Step{Action: worker.Connect, Address: at, ProxyHeader: true}
			}}
			r := directed(t, d, func(_ *setup, s *worker.Service) { s.Preread.Data = x.early != "" })
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, []byte(x.early))
			e := accept(t, ln)
			mustRead(t, e, append(d.header, x.early...))
			for range 3 {
				mustWrite(t, c, []byte("request"))
				mustRead(t, e, []byte("request"))
				mustWrite(t, e, []byte("answer"))
				mustRead(t, c, []byte("answer"))
			}
		})
	}
}

// TestOverruledGetsNothing: an endpoint whose connection is overruled gets neither the header nor the first bytes, and the search goes on.
func TestOverruledGetsNothing(t *testing.T) {
	t.Parallel()

	for name, header := range map[string]bool{"first bytes": false, "a header, too": true} {
		t.Run(name, func(t *testing.T) {
			former, newer := listenOn(t), listenOn(t)
			asked := 0 // on the loop
			d := &director{header: []byte("PROXY! "), next: func(_ *worker.Client, n int) worker.Step {
				step := connectTo(newer.Addr().String())
				if n == 1 {
					step = connectTo(former.Addr().String())
				}
				step.ProxyHeader = header
				return step
			}, overruled: func() bool { asked++; return asked == 1 }}
			r := directed(t, d, func(_ *setup, s *worker.Service) { s.Preread.Data = true })
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, []byte("hello"))
			for _, ln := range []net.Listener{newer, former} {
				e := accept(t, ln)
				if ln == former {
					if b, err := io.ReadAll(e); len(b) > 0 || err == nil {
						t.Errorf("it gets %q, %v, want a reset", b, err)
					}
				} else if header {
					mustRead(t, e, []byte("PROXY! hello"))
				} else {
					mustRead(t, e, []byte("hello"))
				}
			}
		})
	}
}

// A client that leaves while the header is written leaves nothing behind. Nor does an
// endpoint that leaves, or takes nothing; that failure is reported to the search.
func TestPrefaceThatIsNotTaken(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		happens func(client, endpoint net.Conn, pass func(time.Duration))
		failed  bool
	}{
		"client leaves":   {func(c, _ net.Conn, _ func(time.Duration)) { reset(c) }, false},
		"endpoint resets": {func(_, e net.Conn, _ func(time.Duration)) { reset(e) }, true},
		"time is over":    {func(_, _ net.Conn, pass func(time.Duration)) { pass(6 * time.Second) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			ln := listenOn(t)
			d := &director{header: make([]byte, 32<<20), next: func(_ *worker.Client, n int) worker.Step {
				if n > 1 {
					return worker.Step{Action: worker.GiveUp}
				}
				step := connectTo(ln.Addr().String())
				step.ProxyHeader = true
				return step
			}}
			r, pass := clocked(t, d, nil)
			c := r.dial(t)
			e := accept(t, ln)
			if _, err := io.ReadFull(e, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			r.Turn()
			x.happens(c, e, pass)
			r.Wake()
			eventually(t, func() bool { return r.Active() == 0 })
			failures := d.failed()
			if (len(failures) > 0) != x.failed || d.joined.Load() != 0 {
				t.Errorf("failed by %v, joined %d", failures, d.joined.Load())
			}
		})
	}
}
