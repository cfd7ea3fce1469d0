package worker_test

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

var errNotAdmitted = errors.New("not admitted")

// A client that is not admitted is reset, and the admitter's counts are right: for each
// client that it has admitted, it is notified once that it has left, with the ticket.
func TestAdmission(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		admit, source func(*worker.Client) error
		in            int64
		served        bool
	}{
		"everybody":   {nil, nil, 1, true},
		"nobody":      {func(*worker.Client) error { return errNotAdmitted }, nil, 0, false},
		"not from it": {nil, func(*worker.Client) error { return errNotAdmitted }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &counted{admit: x.admit, source: func(c *worker.Client) error {
				c.AdmissionToken = tokenOf(c.Source())
				if x.source != nil {
					return x.source(c)
				}
				return nil
			}}
			r := directed(t, straight(echo(t)), func(_ *setup, s *worker.Service) { s.Admitter = a })
			r.serve(t)
			source, err := r.try()
			if x.served && err != nil || !x.served && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client gets %v", err)
			}
			eventually(t, func() bool { return r.Active() == 0 && a.left.Load() == x.in })
			if x.in > 0 && !slices.Equal(a.tickets, []uint64{tokenOf(source)}) {
				t.Errorf("the tickets are %v, want %v", a.tickets, source)
			}
			if sum := r.Summary(); a.in.Load() != x.in || (sum.Refused == 0) != x.served {
				t.Errorf("%d were admitted, %d refused", a.in.Load(), sum.Refused)
			}
		})
	}
}

// try has a client come from an address that it returns, and send hello. One that is reset
// may learn of that while it connects.
func (r *rig) try() (from source.Source, err error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = sys.Bind(int(fd), netip.MustParseAddrPort("127.0.0.1:0"), 0)
			name, _ := sys.LocalName(int(fd))
			from = source.TCP(name.AddrPort)
		})
	}}
	c, err := d.Dial("tcp", r.addr.String())
	if err != nil {
		return from, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	return from, chat(c)
}

// While there is no room, no client is accepted at that socket, which does not affect
// others. When a client leaves, the next one is accepted, at once.
func TestRoom(t *testing.T) {
	t.Parallel()

	var places atomic.Int64
	places.Store(2)
	a := new(counted)
	a.room = func() error {
		if a.in.Load()-a.left.Load() >= places.Load() {
			return errNotAdmitted
		}
		return nil
	}
	r := directed(t, straight(echo(t)), func(c *setup, s *worker.Service) { s.Admitter, c.Loops = a, 1 })
	r.serve(t)
	other := r.listen(t, serviceOf(t, straight(echo(t))))
	conns := r.dials(t, 6)
	talk(t, conns[0])
	talk(t, conns[1])
	talk(t, other.dial(t))
	rooms := a.rooms.Load()
	eventually(t, func() bool { return a.rooms.Load() > rooms+1 }) // it is called now and then
	if n := a.in.Load(); n != 2 {
		t.Fatalf("%d were admitted", n)
	}
	for i, c := range conns[:4] {
		c.Close()
		talk(t, conns[i+2])
	}
	if n := a.in.Load() - a.left.Load(); n > 2 {
		t.Errorf("%d are in at a time", n)
	}
	rest := r.dial(t)
	places.Store(100)
	r.First().Wake()
	talk(t, rest)
}

// A paced admitter has room from a certain time on.
type paced struct {
	counted
	from atomic.Int64
}

func (p *paced) CanAccept(now int64) error {
	if p.rooms.Add(1); now < p.from.Load() {
		return errNotAdmitted
	}
	return nil
}

func (p *paced) NextSlotIn(now int64) time.Duration { return time.Duration(p.from.Load() - now) }

// An admitter that knows when there will be room is called then, and not before.
func TestRoomTimer(t *testing.T) {
	t.Parallel()

	p := new(paced)
	p.from.Store(int64(50 * time.Millisecond))
	r, pass := clocked(t, straight(echo(t)), func(c *setup, s *worker.Service) { c.Loops, s.Admitter = 1, p })
	c := r.dial(t)
	eventually(t, func() bool { return p.rooms.Load() == 1 })
	pass(40 * time.Millisecond)
	if n := p.rooms.Load(); n != 1 || p.in.Load() != 0 {
		t.Errorf("called %d times, %d were admitted", n, p.in.Load())
	}
	pass(11 * time.Millisecond)
	talk(t, c)
}

// With one place for the clients of many sockets, each gets it in its turn.
func TestManyListenersAtTheLimit(t *testing.T) {
	t.Parallel()

	const sockets = 200
	r := newRig(t, func(c *setup) { c.MaxConnections = 1 })
	r.serve(t)
	s := to(t, echo(t))
	var conns []net.Conn
	for range sockets {
		conns = append(conns, r.listen(t, s).dial(t))
	}
	var work sync.WaitGroup
	for _, c := range conns {
		work.Go(func() {
			if err := chat(c); err != nil {
				t.Error(err)
			}
			c.Close()
		})
	}
	work.Wait()
	eventually(t, func() bool { return r.Active() == 0 })
	if sum := r.Summary(); sum.Accepted != sockets || sum.Refused != 0 {
		t.Errorf("the summary is %+v", sum)
	}
}

// In each phase only the client that needs a descriptor lacks it. The client is served when
// descriptors are free. A client that leaves meanwhile is forgotten.
func TestNoDescriptorAfterPreread(t *testing.T) {
	t.Parallel()

	var tries atomic.Int64
	r := directed(t, straight(echo(t)), func(c *setup, s *worker.Service) {
		c.Loops, s.Preread, s.Admitter = 1, worker.Preread{Hello: true}, new(counted)
	})
	r.SetControl(func() error { tries.Add(1); return syscall.EMFILE })
	r.serve(t)
	hello := helloOf(t, "starved.example")
	stays, leaves, waits := r.dial(t), r.dial(t), r.dial(t)
	eventually(t, func() bool { return r.Active() == 3 })
	mustWrite(t, stays, hello)
	mustWrite(t, leaves, hello)
	eventually(t, func() bool { return tries.Load() >= 4 })
	reset(leaves)
	eventually(t, func() bool { return r.Active() == 2 })
	later := r.dial(t)
	mustWrite(t, later, hello)
	time.Sleep(time.Millisecond)
	if n := r.Active(); n != 2 {
		t.Errorf("%d clients are served while one lacks a descriptor", n)
	}
	r.SetControlNow(func() error { return nil })
	for _, c := range []net.Conn{stays, later} {
		mustRead(t, c, hello)
	}
	mustWrite(t, waits, hello)
	mustRead(t, waits, hello)
}

// TestAcceptingGoesOnWithoutADescriptor: once a client that has lacked a descriptor waits for something else, others are
// accepted.
func TestAcceptingGoesOnWithoutADescriptor(t *testing.T) {
	t.Parallel()

	for name, step := range map[string]worker.Step{
		"park":    {Action: worker.Park},
		"pause":   {Action: worker.Pause, Timeout: time.Hour},
		"look":    {Action: worker.Look, Need: 1, Most: 1},
		"respond": {Action: worker.Respond, Bytes: []byte("sorry"), Timeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int64
			var waits atomic.Bool
			to := connectTo(echo(t))
			r := directed(t, &director{next: func(*worker.Client, int) worker.Step {
				if tries.Load() > 8 && !waits.Swap(true) { // all spare descriptors were tried
					return step
				}
				return to
			}}, nil)
			r.SetControl(func() error {
				if tries.Add(1); waits.Load() {
					return nil
				}
				return syscall.EMFILE
			})
			r.serve(t)
			r.dial(t)
			eventually(t, waits.Load)
			talk(t, r.dial(t))
		})
	}
}

// Everything that a service may want of a client leaves nothing to the collector.
func TestChurnOfAServiceMakesNoGarbage(t *testing.T) {
	server := plainServer(t)
	step := connectTo(server)
	step.ProxyHeader = true
	binding, who := new(tie), &counted{source: func(c *worker.Client) error { c.AdmissionToken = 1; return nil }}
	limits := &relay.Limits{IdleTimeout: time.Minute, Of: binding}
	d := &director{
		header: []byte("p"), next: func(*worker.Client, int) worker.Step { return step },
		reached: func() (*relay.Limits, error) { return limits, nil },
	}
	r := directed(t, d, func(c *setup, s *worker.Service) {
		c.Loops, s.Admitter, s.Preread = 1, who, worker.Preread{Header: &proxyproto.Policy{}, Data: true}
	})
	r.serve(t)
	at := netip.MustParseAddrPort(r.addr.String())
	to := &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	sent := []byte("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\nx")
	const clients = 500
	churn := func() {
		for range clients {
			prefacedClient(t, to, sent)
		}
		eventually(t, func() bool { return r.Active() == 0 })
	}
	churn()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	churn()
	runtime.ReadMemStats(&after)
	if n := float64(after.Mallocs-before.Mallocs) / clients; n > 0.5 && !race.Enabled {
		t.Errorf("%.2f allocations for each connection, %d bytes", n, (after.TotalAlloc-before.TotalAlloc)/clients)
	}
	if sum := r.Summary(); sum.Refused != 0 || sum.Accepted != 2*clients || binding.ended() != 2*clients || who.in.Load() != 2*clients || who.left.Load() != 2*clients {
		t.Errorf("the summary is %+v; %d have ended, %d of %d left", sum, binding.ended(), who.left.Load(), who.in.Load())
	}
}

// prefacedClient sends a header and a byte, and has one byte returned, without garbage.
func prefacedClient(t *testing.T, to syscall.Sockaddr, sent []byte) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(fd, sent); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if n, err := syscall.Read(fd, b[:]); n != 1 || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
}

// The limit may be changed while clients wait for it.
func TestSetMaxConnections(t *testing.T) {
	t.Parallel()

	r := newRig(t, func(c *setup) { c.MaxConnections = 1 })
	r.serve(t)
	conns := r.dials(t, 5)
	talk(t, conns[0])
	if n := r.Active(); n != 1 {
		t.Errorf("%d are active under a limit of 1", n)
	}
	r.SetMaxConnections(5)
	for _, c := range conns {
		talk(t, c)
	}
	r.SetMaxConnections(2) // those that are there stay
	for _, c := range conns {
		talk(t, c)
	}
	waits := r.dial(t)
	for _, c := range conns[:3] {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == 2 })
	conns[3].Close()
	talk(t, waits)
}

// A client of TCP without an address is reset before its bytes are looked at and before any
// rule is checked. It is counted by that reason, and takes no place.
func TestClientWithoutSource(t *testing.T) {
	t.Parallel()

	for name, p := range map[string]worker.Preread{
		"plain":          {},
		"header":         {Header: new(proxyproto.Policy)},
		"header of some": {Header: &proxyproto.Policy{From: source.NewSet([]source.Rule{source.All()})}},
		"hello":          {Hello: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, d := new(counted), straight(echo(t))
			r := directed(t, d, func(c *setup, s *worker.Service) { c.Loops, s.Preread, s.Admitter = 1, p, a })
			r.serve(t)
			c, far := sockets.TCPPair(t)
			mustWrite(t, c, []byte("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\nhello"))
			fd, err := loop.Take(far)
			if err != nil {
				t.Fatal(err)
			}
			r.Accepted(fd, netip.AddrPort{})
			wasReset(t, c)
			eventually(t, func() bool { return a.asked.Load() == 1 && r.Active() == 0 })
			if sum := r.Summary(); sum.Refused != 1 {
				t.Errorf("%d were refused", sum.Refused)
			}
			if r.causes()[0] != source.ErrUnknown {
				t.Errorf("the cause is %v", r.causes())
			}
			if a.in.Load() > 0 || a.left.Load() > 0 || d.begun.Load() > 0 {
				t.Error("it was admitted, or served")
			}
		})
	}
}

// plainServer answers one byte to each connection and waits for its end, in one
// goroutine and without garbage.
func plainServer(t *testing.T) (addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 16); err != nil {
		t.Fatal(err)
	}
	name, err := sys.LocalName(fd)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = sys.ShutdownBoth(fd)
		<-ended
		syscall.Close(fd)
	})
	go func() {
		defer close(ended)
		var b [1]byte
		for {
			conn, _, err := sys.AcceptSocket(fd)
			if err != nil {
				return
			}
			_ = syscall.SetNonblock(conn, false)
			_, _ = syscall.Read(conn, b[:])
			_, _ = syscall.Write(conn, b[:])
			_, _ = syscall.Read(conn, b[:])
			syscall.Close(conn)
		}
	}()
	return name.AddrPort.String()
}
