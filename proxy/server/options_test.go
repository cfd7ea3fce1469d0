package server_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// Options of TCP that package syscall does not name, see tcp(7).
const (
	tcpKeepIdle    = 4
	tcpUserTimeout = 18
	tcpFastOpen    = 23
)

// listening finds the socket of this process that listens at a port.
func listening(t *testing.T, port string) (fd int, inode uint64) {
	t.Helper()
	want, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		fd, _ := strconv.Atoi(entry.Name())
		accepts, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		if err != nil || accepts == 0 {
			continue
		}
		var stat syscall.Stat_t
		at, err := syscall.Getsockname(fd)
		if v4, ok := at.(*syscall.SockaddrInet4); ok && err == nil && v4.Port == want && syscall.Fstat(fd, &stat) == nil {
			return fd, stat.Ino
		}
	}
	t.Fatalf("no socket listens at %s", port)
	return -1, 0
}

// TestSocketOptions: the configured options are set; a reload sets them on the same socket.
func TestSocketOptions(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u, socket: {keepalive: %ds, user_timeout: %ds, fastopen: true}}]
upstreams: [{name: u, endpoints: [%q]}]`
	port, up := sockets.Port(t), named(t, "a")
	r := start(t, fmt.Sprintf(text, port, 30, 5, up))
	var socket uint64
	for i, want := range [][2]int{{30, 5}, {40, 7}, {0, 0}, {50, 8}} {
		if i > 0 {
			r.Reload(fmt.Sprintf(text, port, want[0], want[1], up))
		}
		fd, inode := listening(t, port)
		if i > 0 && inode != socket {
			t.Error("the reload opened another socket")
		}
		socket = inode
		asks, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		if err != nil || (asks != 0) != (want[0] != 0) {
			t.Errorf("keepalive %v, %v, want %v", asks != 0, err, want[0] != 0)
		}
		idle, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpKeepIdle)
		if err != nil || asks != 0 && idle != want[0] {
			t.Errorf("keepalive %d, %v", idle, err)
		}
		timeout, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpUserTimeout)
		if err != nil || timeout != want[1]*1000 {
			t.Errorf("user_timeout %d, %v", timeout, err)
		}
		queue, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpFastOpen)
		if err != nil || queue == 0 {
			t.Errorf("fastopen %d, %v", queue, err)
		}
	}
	if got := whose(t, r.At("l")); got != "a" {
		t.Error(got)
	}
}

// TestMultipath: a client that uses Multipath TCP is served with it if the listener allows it.
func TestMultipath(t *testing.T) {
	t.Parallel()

	if b, err := os.ReadFile("/proc/sys/net/mptcp/enabled"); err != nil || len(b) == 0 || b[0] != '1' {
		t.Skipf("this kernel has no Multipath TCP, or it is off: %v", err)
	}
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, socket: {mptcp: true}}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	for name, want := range map[string]bool{"l": true, "m": false} {
		var d net.Dialer
		d.SetMultipathTCP(true)
		c, err := d.Dial("tcp", r.At(name))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := line(t, c); got != "a" {
			t.Error(got)
		}
		if got, err := c.(*net.TCPConn).MultipathTCP(); got != want || err != nil {
			t.Errorf("%s: multipath %v, %v", name, got, err)
		}
	}
}

// TestOptionsAreTakenAway: a reload removes options from the socket that stays, and changes the
// mode of a path.
func TestOptionsAreTakenAway(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: ["127.0.0.1:%s", "unix:%s?mode=%s"], upstream: u, socket: {fastopen: %v}}]
upstreams: [{name: u, endpoints: [%[5]q]}]`
	port, path, up := sockets.Port(t), filepath.Join(sockets.Dir(t), "l.sock"), named(t, "a")
	r := start(t, fmt.Sprintf(text, port, path, "0600", false, up))
	_, inode := listening(t, port)
	for _, on := range []bool{true, false} {
		mode := map[bool]os.FileMode{true: 0o660, false: 0o600}[on]
		r.Reload(fmt.Sprintf(text, port, path, fmt.Sprintf("%04o", mode), on, up))
		fd, now := listening(t, port)
		if now != inode {
			t.Error("the reload opened another socket")
		}
		if queue, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpFastOpen); err != nil || queue > 0 != on {
			t.Errorf("fastopen %d, %v, want %v", queue, err, on)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, mode)
		}
	}
	if got := whose(t, r.At("l")); got != "a" {
		t.Error(got)
	}
}

// TestBacklogThatGrows: a reload makes the backlog longer. All connections in the longer queue
// are served, also when the listener is removed.
func TestBacklogThatGrows(t *testing.T) {
	t.Parallel()

	up := named(t, "a")
	port := sockets.Port(t)
	text := `
listeners: [{name: other, bind: "127.0.0.1:0", upstream: u}%s]
upstreams: [{name: u, endpoints: [%q]}]`
	l := `, {name: l, bind: "127.0.0.1:%s", upstream: u, limits: {connections: 1}, socket: {backlog: %d}}`
	r := start(t, fmt.Sprintf(text, fmt.Sprintf(l, port, 1), up))
	first := client(t, r.At("l"))
	line(t, first)
	r.Reload(fmt.Sprintf(text, fmt.Sprintf(l, port, 100), up))
	var queue []*net.TCPConn
	for range 50 {
		queue = append(queue, client(t, "127.0.0.1:"+port))
	}
	r.Reload(fmt.Sprintf(text, "", up))
	first.Close()
	var served sync.WaitGroup
	for _, c := range queue { // one at a time, in any order
		served.Go(func() {
			if _, err := sockets.ReadLine(c); err != nil {
				t.Error(err)
			}
			c.Close()
		})
	}
	served.Wait()
}
