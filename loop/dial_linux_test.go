package loop_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// A dialer notes how its dials ended, and drops and closes what it got when the test
// ends.
type dialer struct {
	loop.Dial
	ends []end
	then func(end)
}

type end struct {
	fd     int
	id     loop.ID
	events loop.Events
	err    error
}

func (d *dialer) Connected(dial *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	if dial != &d.Dial {
		panic("told of another dial")
	}
	e := end{fd, id, events, err}
	d.ends = append(d.ends, e)
	if d.then != nil {
		d.then(e)
	}
}

func newDialer(t testing.TB, l *loop.Loop) *dialer {
	d := &dialer{}
	t.Cleanup(func() {
		d.Cancel()
		for _, e := range d.ends {
			l.Drop(e.id)
			if e.fd >= 0 {
				sys.Close(e.fd)
			}
		}
	})
	return d
}

// turnUntil makes turns that may sleep, until a condition holds.
func turnUntil(t testing.TB, l *loop.Loop, what string, holds func() bool) {
	t.Helper()
	alarm := time.AfterFunc(condition.Patience, func() { _ = l.Post(func() { t.Errorf("it never came: %s", what) }) })
	defer alarm.Stop()
	for !holds() && !t.Failed() {
		must.Do(t, l.Turn())
	}
	if t.Failed() {
		t.FailNow()
	}
}

func (d *dialer) one(t testing.TB, l *loop.Loop) end {
	t.Helper()
	turnUntil(t, l, "the end of a dial", func() bool { return len(d.ends) > 0 })
	if len(d.ends) != 1 {
		t.Fatalf("one dial has ended %d times", len(d.ends))
	}
	return d.ends[0]
}

// tcp and unix are addresses of listeners of package net.
func tcp(ln net.Listener) loop.Address {
	return loop.Address{AddrPort: ln.Addr().(*net.TCPAddr).AddrPort()}
}

// listenOn listens with package net; it skips the test for an address that this
// machine does not have.
func listenOn(t *testing.T, network, address string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), network, address)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skipf("this machine has no %s: %v", address, err)
	}
	must.Do(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestConnect(t *testing.T) {
	t.Parallel()

	path := filepath.Join(sockets.Dir(t), "s")
	abstract := "@penstock-loop-connect-" + filepath.Base(filepath.Dir(path))
	for name, test := range map[string]struct{ network, address, control string }{
		"IPv4":     {"tcp4", "127.0.0.1:0", "tcp4"},
		"IPv6":     {"tcp6", "[::1]:0", "tcp6"},
		"unix":     {"unix", path, "unix"},
		"abstract": {"unix", abstract, "unix"},
	} {
		t.Run(name, func(t *testing.T) {
			ln := listenOn(t, test.network, test.address)
			to := loop.Address{Path: test.address}
			if test.network != "unix" {
				to = tcp(ln)
			}
			l := newLoop(t, nil)
			d := newDialer(t, l)
			var controlled []string
			l.Connect(&d.Dial, 3, to, &loop.DialConfig{Timeout: time.Minute, Control: func(fd int, network string) error {
				controlled = append(controlled, network)
				return sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1)
			}}, d)
			e := d.one(t, l)
			if e.err != nil || e.events&loop.Writable == 0 || !slices.Equal(controlled, []string{test.control}) {
				t.Fatalf("%+v, controlled %v", e, controlled)
			}
			speak(t, l, ln, e)
		})
	}
}

// speak hands a connection to a handler of its own, which hears what the other end
// says.
func speak(t *testing.T, l *loop.Loop, ln net.Listener, e end) {
	t.Helper()
	heard := loop.Events(0)
	l.Hand(e.id, &scripted{then: func(which uint8, events loop.Events) {
		heard |= events
		if which != 3 {
			t.Errorf("which is %d, want 3", which)
		}
	}})
	c := must.Get(ln.Accept())(t)
	defer c.Close()
	must.Get(c.Write([]byte("hello")))(t)
	turnUntil(t, l, "what the other end says", func() bool { return heard&loop.Readable != 0 })
	var b [8]byte
	if n, err := sys.Recv(e.fd, b[:], sys.MSG_DONTWAIT); err != nil || string(b[:n]) != "hello" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
}

func TestConnectRefused(t *testing.T) {
	t.Parallel()

	ln := listenOn(t, "tcp4", "127.0.0.1:0")
	closed := tcp(ln)
	ln.Close()
	control := errors.New("no such option")
	for name, test := range map[string]struct {
		to   loop.Address
		cfg  *loop.DialConfig
		want error
		call string
	}{
		"TCP":         {closed, nil, syscall.ECONNREFUSED, "connect"},
		"mapped":      {loop.Address{AddrPort: netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), closed.AddrPort.Port())}, nil, syscall.ECONNREFUSED, "connect"},
		"no path":     {loop.Address{Path: filepath.Join(sockets.Dir(t), "none")}, nil, syscall.ENOENT, "connect"},
		"a long path": {loop.Address{Path: string(make([]byte, 200))}, nil, syscall.EINVAL, "connect"},
		"abstract":    {loop.Address{Path: "@penstock-loop-nobody-listens"}, nil, syscall.ECONNREFUSED, "connect"},
		"source":      {closed, &loop.DialConfig{Source: netip.MustParseAddr("192.0.2.1")}, syscall.EADDRNOTAVAIL, "bind"},
		"control":     {closed, &loop.DialConfig{Control: func(int, string) error { return control }}, control, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, nil)
			d := newDialer(t, l)
			l.Connect(&d.Dial, 0, test.to, test.cfg, d)
			e := d.one(t, l)
			var syscallErr *os.SyscallError
			if !errors.Is(e.err, test.want) || e.fd != -1 || e.id != 0 {
				t.Fatalf("%+v, want %v", e, test.want)
			}
			if test.call != "" && (!errors.As(e.err, &syscallErr) || syscallErr.Syscall != test.call) {
				t.Fatalf("%v does not name %s", e.err, test.call)
			}
		})
	}
}

func TestConnectFromSource(t *testing.T) {
	t.Parallel()

	ln := listenOn(t, "tcp4", "127.0.0.1:0")
	l := newLoop(t, nil)
	d := newDialer(t, l)
	l.Connect(&d.Dial, 0, tcp(ln), &loop.DialConfig{Source: netip.MustParseAddr("127.0.0.2")}, d)
	if e := d.one(t, l); e.err != nil {
		t.Fatal(e.err)
	}
	c := must.Get(ln.Accept())(t)
	defer c.Close()
	if from := c.RemoteAddr().(*net.TCPAddr).IP.String(); from != "127.0.0.2" {
		t.Fatalf("it came from %s", from)
	}
}

// TestConnectFromLinkLocal: the zone of a source says at which interface the address is.
func TestConnectFromLinkLocal(t *testing.T) {
	t.Parallel()

	own := linkLocal(t)
	ln := listenOn(t, "tcp6", netip.AddrPortFrom(own, 0).String())
	l := newLoop(t, nil)
	d := newDialer(t, l)
	l.Connect(&d.Dial, 0, tcp(ln), &loop.DialConfig{Source: own}, d)
	if e := d.one(t, l); e.err != nil {
		t.Error(e.err)
	}
}

// linkLocal returns a link-local address of this machine. It skips the test if there is none.
func linkLocal(t *testing.T) netip.Addr {
	t.Helper()
	for _, i := range must.Get(net.Interfaces())(t) {
		for _, a := range must.Get(i.Addrs())(t) {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				return p.Addr().WithZone(i.Name)
			}
		}
	}
	t.Skip("no interface has a link-local address of IPv6")
	return netip.Addr{}
}

// fullTCP is a listener whose queue is full: the kernel drops the SYNs of others
// (net/ipv4/tcp_input.c, tcp_conn_request).
func fullTCP(t *testing.T) loop.Address {
	t.Helper()
	ln, fd := socket(t)
	must.Do(t, sys.Listen(fd, 0)) // one more than 0 may wait
	dial(t, ln, 1)
	return tcp(ln)
}

// fullUnix likewise; connect fails with EAGAIN (unix(7)). drain makes room.
func fullUnix(t *testing.T) (to loop.Address, drain func()) {
	t.Helper()
	listener := must.Get(sys.UnixStreamSocket())(t)
	t.Cleanup(func() { sys.Close(listener) })
	name := filepath.Join(sockets.Dir(t), "s")
	must.Do(t, syscall.Bind(listener, &syscall.SockaddrUnix{Name: name}))
	must.Do(t, sys.Listen(listener, 0))
	client := must.Get(sys.UnixStreamSocket())(t)
	t.Cleanup(func() { sys.Close(client) })
	must.Do(t, sys.ConnectUnix(client, name))
	return loop.Address{Path: name}, func() {
		fd, _, err := sys.AcceptSocket(listener)
		must.Do(t, err)
		sys.Close(fd)
	}
}

// TestConnectTimeout: by an injected clock, at its time and not before.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()

	for name, to := range map[string]func(*testing.T) loop.Address{
		"TCP":  fullTCP,
		"unix": func(t *testing.T) loop.Address { to, _ := fullUnix(t); return to },
	} {
		t.Run(name, func(t *testing.T) {
			c := clock{now: 1}
			l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
			d := newDialer(t, l)
			const timeout = 3 * time.Second
			l.Connect(&d.Dial, 0, to(t), &loop.DialConfig{Timeout: timeout}, d)
			for range 100 {
				c.now += int64(timeout) / 100
				if c.now > int64(timeout) {
					c.now = int64(timeout)
				}
				turn(t, l)
			}
			if len(d.ends) != 0 {
				t.Fatalf("it has ended early: %+v", d.ends)
			}
			c.now += 2e6
			turn(t, l)
			turn(t, l) // a unix socket's last attempt is one tick later
			c.now += 2e6
			turn(t, l)
			if len(d.ends) != 1 || !errors.Is(d.ends[0].err, os.ErrDeadlineExceeded) || d.ends[0].fd != -1 {
				t.Fatalf("%+v, want os.ErrDeadlineExceeded", d.ends)
			}
		})
	}
}

// TestConnectFollowsNoForeignLink: neither at once nor on the goroutine that looks for the file system.
func TestConnectFollowsNoForeignLink(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	dir := sockets.Dir(t)
	path, link := filepath.Join(dir, "s"), filepath.Join(dir, "link")
	listenOn(t, "unix", path)
	must.Do(t, os.Symlink("s", link))
	l := newLoop(t, nil)
	connect := func() error {
		d := newDialer(t, l)
		l.Connect(&d.Dial, 0, loop.Address{Path: link}, nil, d)
		return d.one(t, l).err
	}
	must.Do(t, connect())
	must.Do(t, os.Lchown(link, 65534, 65534))
	for range 3 {
		if err := connect(); !errors.Is(err, sys.ErrLink) {
			t.Error(err)
		}
	}
	must.Do(t, os.Lchown(path, 65534, 65534))
	must.Do(t, connect())
}

// TestConnectWaitsForRoom: a unix listener's queue is full for a while.
func TestConnectWaitsForRoom(t *testing.T) {
	t.Parallel()

	c := clock{now: 1}
	l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
	to, drain := fullUnix(t)
	d := newDialer(t, l)
	l.Connect(&d.Dial, 0, to, &loop.DialConfig{Timeout: time.Second}, d)
	turnUntil(t, l, "the path was looked up", func() bool { return !d.LooksUp() })
	for range 5 {
		c.now += 1e7
		turn(t, l)
	}
	if len(d.ends) != 0 {
		t.Fatalf("%+v, although there is no room", d.ends)
	}
	drain()
	for range 10 {
		c.now += 1e7
		turn(t, l)
	}
	if len(d.ends) != 1 || d.ends[0].err != nil {
		t.Fatalf("%+v, want a connection", d.ends)
	}
	c.now += 2e9
	turn(t, l)
	if len(d.ends) != 1 {
		t.Fatal("the timeout came after the connection")
	}
}

// TestCancel: the connector is not told any more; that the socket is closed the end
// of the tests shows.
func TestCancel(t *testing.T) {
	t.Parallel()

	for name, to := range map[string]func(*testing.T) loop.Address{
		"TCP":   fullTCP,
		"unix":  func(t *testing.T) loop.Address { to, _ := fullUnix(t); return to },
		"ready": func(t *testing.T) loop.Address { return tcp(listenOn(t, "tcp4", "127.0.0.1:0")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := clock{now: 1}
			l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
			d := newDialer(t, l)
			d.Cancel() // nothing
			l.Connect(&d.Dial, 0, to(t), &loop.DialConfig{Timeout: time.Second}, d)
			d.Cancel()
			d.Cancel()
			c.now += 5e9
			turn(t, l)
			if len(d.ends) != 0 {
				t.Fatalf("it has ended: %+v", d.ends)
			}
		})
	}
}

// TestConnectNextTarget: a Dial is used again from within Connected; a later failure
// does no harm to the connection that an earlier use has brought.
func TestConnectNextTarget(t *testing.T) {
	t.Parallel()

	ln := listenOn(t, "tcp4", "127.0.0.1:0")
	refused := listenOn(t, "tcp4", "127.0.0.1:0")
	refused.Close()
	l := newLoop(t, nil)
	d := newDialer(t, l)
	targets := []loop.Address{{Path: "@penstock-loop-nobody"}, tcp(refused), tcp(ln), tcp(refused), {Path: "@penstock-loop-nobody"}}
	next := func() {
		to := targets[0]
		targets = targets[1:]
		l.Connect(&d.Dial, 3, to, &loop.DialConfig{Timeout: time.Minute}, d)
	}
	d.then = func(end) {
		if len(targets) > 0 {
			next()
		}
	}
	next()
	turnUntil(t, l, "five ends", func() bool { return len(d.ends) == 5 })
	for i, e := range d.ends {
		if (e.err == nil) != (i == 2) {
			t.Errorf("dial %d: %v", i, e.err)
		}
	}
	speak(t, l, ln, d.ends[2])
}

// TestConnectOutOfDescriptors: in a process of its own.
func TestConnectOutOfDescriptors(t *testing.T) {
	t.Parallel()

	if !privilege.InChild(t) {
		return
	}
	l := newLoop(t, nil)
	d := newDialer(t, l)
	spare, undo := exhaust(t)
	l.Connect(&d.Dial, 0, loop.Address{AddrPort: netip.MustParseAddrPort("127.0.0.1:1")}, nil, d)
	undo()
	sys.Close(spare)
	if len(d.ends) != 1 || !errors.Is(d.ends[0].err, syscall.EMFILE) {
		t.Fatalf("%+v, want EMFILE", d.ends)
	}
}

// TestConnectToItself: a socket that is connected to itself is refused, and leaves its port free.
func TestConnectToItself(t *testing.T) {
	t.Parallel()

	to := netip.MustParseAddrPort("127.0.0.1:" + sockets.Port(t))
	l := newLoop(t, nil)
	d := newDialer(t, l)
	l.Connect(&d.Dial, 0, loop.Address{AddrPort: to}, &loop.DialConfig{Control: func(fd int, _ string) error {
		return errors.Join(sys.SetsockoptInt(fd, sys.SOL_SOCKET, syscall.SO_REUSEADDR, 1), sys.Bind(fd, to, 0)) // the port that the kernel might choose
	}}, d)
	if e := d.one(t, l); !errors.Is(e.err, syscall.ECONNREFUSED) {
		t.Fatalf("descriptor %d, %v", e.fd, e.err)
	}
	must.Get(net.Listen("tcp4", to.String()))(t).Close()
}
