package worker_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A place is a further socket that a rig listens on.
type place struct {
	*worker.Listening
	fd     int   // owned until Closed
	had    int64 // clients when it was closed
	addr   string
	closed chan struct{}
	left   chan struct{}
}

// openPlace makes a listening socket from which no process accepts yet.
func openPlace(t *testing.T) *place {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{addr: ln.Addr().String(), closed: make(chan struct{}), left: make(chan struct{})}
	if p.fd, err = loop.Take(ln.(syscall.Conn)); err != nil {
		t.Fatal(err)
	}
	return p
}

// listen has a rig that serves listen on a further socket.
func (r *rig) listen(t *testing.T, s *worker.Service) *place {
	t.Helper()
	p := openPlace(t)
	var err error
	p.Listening, err = r.Listen(worker.Listener{FD: p.fd, TCP: true, Service: s, Of: p}) // its backlog is not known
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		<-p.closed
	})
	return p
}

func (p *place) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(condition.Patience))
	return c
}

// Each client that connects while sockets come and go under load is served, including those
// in a queue when their socket closes. The host is notified of each socket once, when it is
// closed and when its last client has left.
func TestListenersComeAndGo(t *testing.T) {
	t.Parallel()

	r := newRig(t, func(c *setup) { c.MaxConnections = 1000 })
	r.serve(t)
	target := echo(t)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 10 {
				p := r.listen(t, serviceOf(t, straight(target)))
				stays := p.dial(t)
				var conns []net.Conn
				for range 20 {
					conns = append(conns, p.dial(t))
				}
				p.Close()
				<-p.closed
				if p.had != int64(len(conns)+1) {
					t.Errorf("it had %d clients when it was closed", p.had)
				}
				select {
				case <-p.left:
					t.Error("notified that all have left while they are there")
				default:
				}
				for _, c := range append(conns, stays) {
					talk(t, c)
					if p.Clients() == 0 {
						t.Error("it has no clients")
					}
				}
				for _, c := range append(conns, stays) {
					c.Close()
				}
				<-p.left
				if n := p.Clients(); n != 0 {
					t.Errorf("%d clients are left", n)
				}
			}
		})
	}
	for range 4 {
		work.Go(func() {
			for range 50 {
				if err := r.hello(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	if sum := r.Summary(); sum.Refused != 0 {
		t.Errorf("the summary is %+v", sum)
	}
}

// A client keeps the service under which it was accepted. Later clients get the new one,
// and no client is refused.
func TestServiceIsReplaced(t *testing.T) {
	t.Parallel()

	r := newRig(t, func(c *setup) { c.MaxConnections = 1000 })
	r.serve(t)
	type edition struct {
		*counted
		service *worker.Service
	}
	target := echo(t)
	newEdition := func() *edition {
		e := &edition{counted: new(counted), service: serviceOf(t, straight(target))}
		e.service.Admitter = e.counted
		return e
	}
	first := newEdition()
	r.First().Replace(first.service)
	old := r.dial(t)
	talk(t, old)
	editions := []*edition{first}
	var over atomic.Bool
	var work sync.WaitGroup
	for range 6 {
		work.Go(func() {
			for !over.Load() {
				if err := r.hello(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		e := newEdition()
		editions = append(editions, e)
		r.First().Replace(e.service)
		eventually(t, func() bool { return e.in.Load() > 0 })
	}
	over.Store(true)
	work.Wait()
	if r.First().Service() != editions[len(editions)-1].service {
		t.Error("another service is in force")
	}
	eventually(t, func() bool { return r.Active() == 1 })
	for i, e := range editions[1:] {
		if e.in.Load() != e.left.Load() {
			t.Errorf("edition %d: %d were admitted, and %d have left", i+1, e.in.Load(), e.left.Load())
		}
	}
	if first.in.Load() != first.left.Load()+1 {
		t.Errorf("%d were admitted first, and %d have left", first.in.Load(), first.left.Load())
	}
	talk(t, old)
	old.Close()
	eventually(t, func() bool { return first.in.Load() == first.left.Load() })
}

// A group without any socket continues to serve, until it has to end; then it takes none.
func TestNoListener(t *testing.T) {
	t.Parallel()

	r := newRig(t, nil)
	r.begin()
	first := r.First()
	first.Close()
	eventually(t, func() bool { return r.witness.left.Load() == 1 && r.witness.closed.Load() == 1 })
	p := openPlace(t)
	l, err := r.Listen(worker.Listener{FD: p.fd, TCP: true, Service: to(t, echo(t)), Of: p})
	if err != nil {
		t.Fatal(err)
	}
	p.Listening = l
	c := p.dial(t)
	talk(t, c)
	r.Drain()
	<-p.closed
	if _, err := r.Listen(worker.Listener{FD: r.anyFD(t), Service: l.Service()}); !errors.Is(err, worker.ErrEnding) || !strings.HasPrefix(err.Error(), "the process drains and ends: ") {
		t.Errorf("listening in the end: %v", err)
	}
	talk(t, c)
	c.Close()
	if err := <-r.served; err != nil {
		t.Error(err)
	}
	<-p.left
}

// anyFD returns a non-blocking descriptor.
func (r *rig) anyFD(t *testing.T) int {
	t.Helper()
	p := openPlace(t)
	t.Cleanup(func() { syscall.Close(p.fd) })
	return p.fd
}

// A socket that cannot be listened on is refused with a reason.
func TestListenErrors(t *testing.T) {
	t.Parallel()

	r := newRig(t, nil)
	r.serve(t)
	blocking := r.anyFD(t)
	if err := syscall.SetNonblock(blocking, false); err != nil {
		t.Fatal(err)
	}
	s := to(t, echo(t))
	for name, l := range map[string]worker.Listener{
		"blocking":   {FD: blocking, Service: s},
		"no service": {FD: r.anyFD(t)},
		"no socket":  {FD: 1 << 20, Service: s},
	} {
		if _, err := r.Listen(l); err == nil {
			t.Errorf("%s: it is listened on", name)
		}
	}
}

// A loop that cannot accept from a socket reports it, and tries again.
func TestListenThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()

	r := newRig(t, nil)
	r.serve(t)
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[1])
	regular, err := syscall.Open(t.TempDir()+"/file", syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(pair[0])
	p := openPlace(t)
	l, err := r.Listen(worker.Listener{FD: regular, TCP: true, Service: to(t, echo(t)), Of: p})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return r.pauses.Load() >= 2 }) // epoll takes no regular files
	if err := syscall.Dup3(p.fd, regular, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	syscall.Close(p.fd)
	p.fd = regular
	talk(t, p.dial(t))
	l.Close()
	<-p.closed
}

// connectedTo returns the sockets of this process that are connected to an address.
func connectedTo(addr netip.AddrPort) (fds []int) {
	for fd := range leak.Take() {
		if peer, err := sys.PeerName(fd); err == nil && peer.AddrPort == addr {
			fds = append(fds, fd)
		}
	}
	return fds
}

// The options that matter to lasting connections are set on those, and cost the others
// nothing.
func TestLastingConnectionsGetTheirOptions(t *testing.T) {
	target := echo(t)
	r := newRig(t, func(c *setup) {
		c.first.Service = to(t, target)
		c.first.Service.Options = sockopt.Options{KeepAlive: 41 * time.Second, UserTimeout: 43 * time.Second}
	})
	r.serve(t)
	const sessions = 5
	conns := r.dials(t, sessions)
	for _, c := range conns {
		talk(t, c)
	}
	fds := connectedTo(netip.MustParseAddrPort(target))
	if len(fds) != sessions {
		t.Fatalf("%d sockets are connected to the target, want %d", len(fds), sessions)
	}
	has := func(fd, level, option int) int {
		n, err := sys.GetsockoptInt(fd, level, option)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if has(fds[0], sys.SOL_SOCKET, sys.SO_KEEPALIVE) != 0 {
		t.Log("a second has gone by already")
	}
	for _, fd := range fds {
		eventually(t, func() bool { return has(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT) == 43_000 })
		if has(fd, sys.SOL_SOCKET, sys.SO_KEEPALIVE) != 1 || has(fd, sys.IPPROTO_TCP, sys.TCP_KEEPIDLE) != 41 {
			t.Errorf("socket %d has not all of its options", fd)
		}
	}
}
