package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
)

// laneEndpoint is an endpoint whose connections the test has.
func laneEndpoint(t *testing.T) (address string, accepted <-chan *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	far, over := make(chan *net.TCPConn), make(chan struct{})
	var accepting sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		close(over)
		accepting.Wait()
	})
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() }) // it is not closed before, though the test may have forgotten it
			select {
			case far <- c.(*net.TCPConn):
			case <-over: // a check of the endpoint's
			}
		}
	})
	return l.Addr().String(), far
}

// leavesFor has messages pass both ways until the session has left user space.
func (r *rig) leavesFor(t *testing.T, a, b *net.TCPConn) {
	t.Helper()
	r.Until("the session has left", func() bool {
		passes(t, a, b)
		s := r.session(t)
		return s != nil && s.Engine == admin.EngineLane
	})
}

// passes has a message pass each way between both ends of a session.
func passes(t *testing.T, a, b *net.TCPConn) {
	t.Helper()
	for _, way := range [2][2]*net.TCPConn{{a, b}, {b, a}} {
		_ = way[1].SetReadDeadline(time.Now().Add(condition.Patience))
		sends(t, way[0], "a message")
		receives(t, way[1], "a message")
	}
}

// laneQuestion is a session that has left user space, and whose client has asked its endpoint something since.
func laneQuestion(t *testing.T) (r *rig, c, server *net.TCPConn) {
	t.Helper()
	endpoint, far := laneEndpoint(t)
	r = start(t, laneConfig(endpoint, "lane: auto"))
	c = client(t, r.At("l"))
	server = <-far
	r.leavesFor(t, c, server)
	sends(t, c, "a question")
	receives(t, server, "a question")
	return r, c, server
}

// TestLaneGentleEnd: a session in the lane is ended gently when its endpoint has answered and all is acknowledged, and not before.
func TestLaneGentleEnd(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r, c, server := laneQuestion(t)
	gently := admin.EndQuery{All: true, Quiet: 50 * time.Millisecond, Grace: 300 * time.Millisecond}
	if ended, err := r.EndSessions(context.Background(), gently, "test"); err != nil || ended.Ended != 0 || ended.Kept != 1 {
		t.Fatal(ended, err)
	}
	sends(t, server, "an answer")
	receives(t, c, "an answer")
	gently.Grace = condition.Patience
	if ended, err := r.EndSessions(context.Background(), gently, "test"); err != nil || ended.Ended != 1 {
		t.Error(ended, err)
	}
	isReset(t, c)
}

// TestLaneEndpointEnded: a session in the lane whose endpoint has ended is quiet, though its client was the last to send.
func TestLaneEndpointEnded(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r, c, server := laneQuestion(t)
	must(t, server.CloseWrite())
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		t.Fatal(b, err)
	}
	gently := admin.EndQuery{All: true, Quiet: 50 * time.Millisecond, Grace: condition.Patience}
	if ended, err := r.EndSessions(context.Background(), gently, "test"); err != nil || ended.Ended != 1 {
		t.Error(ended, err)
	}
}

// socketBetween returns the descriptor of this process's socket between two addresses; ok: there is one now.
func socketBetween(t *testing.T, local, peer net.Addr) (fd int, ok bool) {
	t.Helper()
	at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, entry := range list {
		fd, _ := strconv.Atoi(entry.Name())
		from, err := sys.LocalName(fd)
		if err != nil || from.AddrPort != at(local) {
			continue
		}
		if to, err := sys.PeerName(fd); err == nil && to.AddrPort == at(peer) {
			return fd, true
		}
	}
	return -1, false
}

// A socketOption is one that a socket has.
type socketOption struct {
	name         string
	level, value int
}

// socketOptionsRead are those that the program or a listening socket of it sets, and some that it leaves alone, see tcp(7),
// socket(7) and ip(7).
var socketOptionsRead = []socketOption{
	{"TCP_NODELAY", syscall.IPPROTO_TCP, syscall.TCP_NODELAY},
	{"SO_OOBINLINE", syscall.SOL_SOCKET, syscall.SO_OOBINLINE},
	{"SO_KEEPALIVE", syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
	{"TCP_KEEPIDLE", syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
	{"TCP_KEEPINTVL", syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
	{"TCP_KEEPCNT", syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},
	{"TCP_USER_TIMEOUT", syscall.IPPROTO_TCP, tcpUserTimeout},
	{"TCP_NOTSENT_LOWAT", syscall.IPPROTO_TCP, 25},
	{"SO_RCVLOWAT", syscall.SOL_SOCKET, syscall.SO_RCVLOWAT},
	{"SO_MARK", syscall.SOL_SOCKET, syscall.SO_MARK},
	{"SO_PRIORITY", syscall.SOL_SOCKET, syscall.SO_PRIORITY},
	{"IP_TOS", syscall.SOL_IP, syscall.IP_TOS},
	{"IP_TTL", syscall.SOL_IP, syscall.IP_TTL},
	{"SO_REUSEADDR", syscall.SOL_SOCKET, syscall.SO_REUSEADDR},
	{"TCP_CORK", syscall.IPPROTO_TCP, syscall.TCP_CORK},
}

// optionsOf reads the options of a socket.
func optionsOf(t *testing.T, fd int) map[string]string {
	t.Helper()
	got := make(map[string]string)
	for _, o := range socketOptionsRead {
		n, err := syscall.GetsockoptInt(fd, o.level, o.value)
		if err != nil {
			t.Errorf("%s: %v", o.name, err)
		}
		got[o.name] = strconv.Itoa(n)
	}
	name, err := sys.Congestion(fd)
	if err != nil {
		t.Error("TCP_CONGESTION:", err)
	}
	got["TCP_CONGESTION"] = name
	return got
}

// An optionsCase is a session, the options that its listener and its upstream write, and some that its sockets are to have.
type optionsCase struct {
	name, listener, upstream, reload string
	a, b                             map[string]string

	near, far *net.TCPConn
	before    [2]map[string]string
}

// optionsCases are those of TestLaneReturnsOptions.
func optionsCases(usual, another string) []*optionsCase {
	type values = map[string]string
	written := values{"TCP_KEEPIDLE": "31", "TCP_KEEPINTVL": "7", "TCP_USER_TIMEOUT": "7000", "TCP_CONGESTION": another}
	defaults := values{"TCP_KEEPIDLE": "60", "TCP_KEEPINTVL": "10", "TCP_USER_TIMEOUT": "30000", "TCP_CONGESTION": usual}
	off := values{"SO_KEEPALIVE": "0", "TCP_USER_TIMEOUT": "0"}
	return []*optionsCase{
		{name: "written", listener: "keepalive: 31s, user_timeout: 7s, congestion: " + another, upstream: "congestion: " + another, a: written, b: written},
		{name: "congestion of clients", listener: "congestion: " + another, a: values{"TCP_CONGESTION": another}, b: defaults},
		{name: "congestion of endpoints", upstream: "congestion: " + another, a: defaults, b: values{"TCP_CONGESTION": another, "TCP_KEEPIDLE": "60"}},
		{name: "defaults", a: defaults, b: defaults},
		{name: "off", listener: "keepalive: 0s, user_timeout: 0s", a: off, b: off},
		{
			name: "reload", listener: "keepalive: 31s", reload: "keepalive: 41s, user_timeout: 9s, congestion: " + another,
			a: values{"TCP_KEEPIDLE": "31", "TCP_USER_TIMEOUT": "30000", "TCP_CONGESTION": usual}, b: values{"TCP_KEEPIDLE": "31"},
		},
	}
}

// sockets returns the descriptors of the session's sockets in this process, to the client and to the endpoint.
func (c *optionsCase) sockets(t *testing.T) (fds [2]int) {
	t.Helper()
	condition.Await(t, "both sockets are there", func() bool {
		var a, b bool
		fds[0], a = socketBetween(t, c.near.RemoteAddr(), c.near.LocalAddr())
		fds[1], b = socketBetween(t, c.far.RemoteAddr(), c.far.LocalAddr())
		return a && b
	})
	return fds
}

// begin connects, and notes the options that the sockets have at first.
func (c *optionsCase) begin(t *testing.T, address string, accepted <-chan *net.TCPConn) {
	t.Helper()
	c.near, c.far = client(t, address), <-accepted
	fds := c.sockets(t)
	condition.Await(t, c.name+": the endpoint's socket has the options of one that lasts", func() bool {
		return matchOptions(c.b, optionsOf(t, fds[1])) == ""
	})
	c.before = [2]map[string]string{optionsOf(t, fds[0]), optionsOf(t, fds[1])}
	if miss := matchOptions(c.a, c.before[0]); miss != "" {
		t.Errorf("%s: the client's socket, at first: %s", c.name, miss)
	}
	c.before[1]["TCP_NODELAY"] = "1" // from the second write on
}

// TestLaneReturnsOptions: the sockets of a session that has come back have the options of those of before, and the endpoint's
// TCP_NODELAY; a reload does not change them.
func TestLaneReturnsOptions(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	cases := optionsCases(anotherCongestion(t))
	endpoint, far := laneEndpoint(t)
	text := func(reload bool) string {
		b := "lane: {devices: [lo], sessions: 64, after: 5ms}\nlisteners:\n"
		for i, c := range cases {
			options := c.listener
			if reload && c.reload != "" {
				options = c.reload
			}
			b += fmt.Sprintf("  - {name: l%d, bind: \"127.0.0.1:0\", upstream: u%d, lane: auto, socket: {%s}}\n", i, i, options)
		}
		b += "upstreams:\n"
		for i, c := range cases {
			b += fmt.Sprintf("  - {name: u%d, endpoints: [%q], health_check: off, socket: {%s}}\n", i, endpoint, c.upstream)
		}
		return b
	}
	r := start(t, text(false))
	for i, c := range cases {
		c.begin(t, r.At(fmt.Sprintf("l%d", i)), far)
	}
	r.Reload(text(true))
	for i, c := range cases {
		r.Until(c.name+": the session has left", func() bool {
			passes(t, c.near, c.far)
			return r.Status().Lane.Left == int64(i+1)
		})
	}
	if back, err := r.ReturnLane("test"); err != nil || back.Returned != len(cases) || r.Status().Lane.Active != 0 {
		t.Fatal(back, err)
	}
	for _, c := range cases {
		for i, fd := range c.sockets(t) {
			if miss := matchOptions(c.before[i], optionsOf(t, fd)); miss != "" {
				t.Errorf("%s: the socket to the %s, after the return: %s", c.name, [2]string{"client", "endpoint"}[i], miss)
			}
		}
		passes(t, c.near, c.far)
	}
}

// matchOptions returns how the options of a socket differ from those that are wanted; "": they do not.
func matchOptions(want, got map[string]string) (miss string) {
	for name, value := range want {
		if got[name] != value {
			miss += fmt.Sprintf("%s is %s, want %s; ", name, got[name], value)
		}
	}
	return miss
}

// TestLaneOdd: a session whose client sends data with options of IP stays in user space, but not for good: it leaves some time after the last of
// it, also one that has come back before.
func TestLaneOdd(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r := withLane(t, "lane: require")
	c := client(t, r.At("l"))
	raw, err := c.SyscallConn()
	must(t, err)
	options := func(text string) { // of the packets that it sends
		must(t, raw.Control(func(fd uintptr) {
			err = errors.Join(syscall.SetsockoptString(int(fd), syscall.IPPROTO_IP, syscall.IP_OPTIONS, text), syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1))
		}))
		must(t, err)
	}
	for range 2 {
		before := r.Status().Lane.Stays[lane.ResetSeen.String()]
		r.Until("packets with options have kept it in user space", func() bool {
			options("\x01\x01\x01\x01")
			sends(t, c, "there and back\n")
			options("") // the acknowledgement has none
			hears(t, c, "there and back")
			return r.Status().Lane.Stays[lane.ResetSeen.String()] > before
		})
		if r.session(t).Engine == admin.EngineLane {
			t.Fatal("it has left")
		}
		r.leaves(t, c)
		_, err := r.ReturnLane("test")
		must(t, err)
	}
}

// TestLaneUnrestored: a session of which the kernel refuses a socket cannot come back. Both sides are reset, and it is counted by the reason.
func TestLaneUnrestored(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	r := start(t, laneConfig(endpoint, "lane: auto"))
	near := client(t, r.At("l"))
	server := <-far
	r.leavesFor(t, near, server)
	r.Until("the sockets are closed", func() bool { return r.Status().Lane.Left == 1 })
	at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	fd, err := sys.Established(at(near.RemoteAddr()), at(near.LocalAddr()), 1, 1) // another socket has the connection to the client
	must(t, err)
	back, err := r.ReturnLane("test")
	must(t, errors.Join(err, sys.Close(fd)))
	if back.Returned != 0 || back.Reset != 1 {
		t.Errorf("%+v", back)
	}
	isReset(t, near)
	isReset(t, server)
	r.Until("the session has ended", func() bool { return r.Status().Connections.Active == 0 })
	if n := r.Status().Lane.Unrestored[lane.AddressTaken.String()]; n != 1 {
		t.Errorf("%d could not come back", n)
	}
}
