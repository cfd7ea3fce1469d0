package server_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	socketlistener "github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// hammer connects clients continuously until it is stopped, each at least once. No connection may
// be refused or reset.
func hammer(t *testing.T, at string, clients int) (stop func()) {
	t.Helper()
	var over atomic.Bool
	done := make(chan struct{})
	for range clients {
		go func() {
			served := 0
			for ; served == 0 || !over.Load(); served++ {
				c, err := net.Dial("tcp", at)
				if err == nil {
					_ = c.SetDeadline(time.Now().Add(condition.Patience))
					_, err = sockets.ReadLine(c)
					c.Close()
				}
				if err != nil {
					t.Errorf("after %d clients: %v", served, err)
					break
				}
			}
			done <- struct{}{}
		}()
	}
	return func() {
		over.Store(true)
		for range clients {
			<-done
		}
	}
}

// TestAddressesThatTakeOver: addresses take over from each other in one reload: wider ones,
// narrower ones, and the same in another protocol. No client is refused or reset.
func TestAddressesThatTakeOver(t *testing.T) {
	t.Parallel()

	port, up := sockets.Port(t), named(t, "a")
	text := func(bind string, mptcp bool) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: [%s], upstream: u, socket: {mptcp: %v}}]
upstreams: [{name: u, endpoints: [%q], drain_timeout: 1s}]`, strings.ReplaceAll(bind, "P", port), mptcp, up)
	}
	binds := []string{`"127.0.0.1:P"`, `":P"`, `"0.0.0.0:P"`, `"0.0.0.0:P", "[::]:P"`, `"[::1]:P", "127.0.0.1:P"`, `"localhost:P", "127.0.0.2:P"`, `":P"`}
	r := start(t, text(binds[0], false))
	at := "127.0.0.1:" + port
	first := client(t, at)
	line(t, first)
	stop := hammer(t, at, 8)
	for i := range 60 {
		r.Reload(text(binds[(i+1)%len(binds)], i/len(binds)%2 == 1))
	}
	stop()
	if log := r.Log.String(); strings.Contains(log, "level=WARN") {
		t.Error(log)
	}
	r.Reload(text(`"127.0.0.1:P"`, false))
	time.Sleep(1500 * time.Millisecond) // longer than the drain timeout of a removed listener
	echoes(t, first, "still here")
	if s := r.Summary(); s.Connections.Refused != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// TestAddressesOfOthers: an address that another process has in part, or another listener, is not taken. Afterwards no other socket can share
// the listener's own.
func TestAddressesOfOthers(t *testing.T) {
	t.Parallel()

	port := sockets.Port(t)
	other, err := net.Listen("tcp", "127.0.0.2:"+port)
	must(t, err)
	defer other.Close()
	text := `
listeners: [{name: l, bind: %q, upstream: u}, {name: any, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`
	at := "127.0.0.1:" + port
	r := start(t, fmt.Sprintf(text, at))
	for bind, want := range map[string]string{":" + port: "ss -tanp sport = :" + port, r.At("any"): "listener any of this process has " + r.At("any")} {
		if err := r.Apply(t.Context(), r.Load(fmt.Sprintf(text, bind))); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bind, err, want)
		}
	}
	ln, err := socketlistener.Bind(t.Context(), sockopt.Address{Network: "tcp", Name: at}, nil)
	if err == nil && os.Getuid() == 0 { // else the kernel remembers, see ClearReusePort
		t.Errorf("another socket shares the address: %v", ln.Close())
	}
}

// TestHandshakeOverATakeover: a client whose TCP handshake began at the old socket is served as
// by the socket that has taken over. Here the SYN-ACK was sent, and the client's ACK is lost.
func TestHandshakeOverATakeover(t *testing.T) {
	t.Parallel()

	for _, to := range []string{":%s", "[::ffff:127.0.0.1]:%s"} {
		port, a, b := sockets.Port(t), named(t, "a"), named(t, "b")
		text := `
listeners: [{name: l, bind: %q, upstream: %s}]
upstreams: [{name: u, endpoints: [%q]}, {name: v, endpoints: [%q]}]`
		r := start(t, fmt.Sprintf(text, "127.0.0.1:"+port, "u", a, b))
		old, _ := listening(t, port)
		filter(t, old, syscall.SO_ATTACH_FILTER)
		c := client(t, "127.0.0.1:"+port)
		if !begun(t, port) {
			t.Fatal("the handshake is over")
		}
		r.Reload(fmt.Sprintf(text, fmt.Sprintf(to, port), "v", a, b))
		servedBy(t, "127.0.0.1:"+port, "b")
		filter(t, old, syscall.SO_DETACH_FILTER)
		hears(t, c, "b")
	}
}

// filter attaches or detaches a socket filter that passes only TCP segments with the flag SYN. A test of an ordinary user is
// skipped where the kernel leaves that to root.
func filter(t *testing.T, fd, option int) {
	t.Helper()
	onlySYN := []syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_B | syscall.BPF_ABS, K: 13},
		{Code: syscall.BPF_JMP | syscall.BPF_JSET | syscall.BPF_K, K: 2, Jf: 1},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: 1 << 16},
		{Code: syscall.BPF_RET | syscall.BPF_K},
	}
	program := syscall.SockFprog{Len: uint16(len(onlySYN)), Filter: &onlySYN[0]}
	raw := unsafe.String((*byte)(unsafe.Pointer(&program)), unsafe.Sizeof(program))
	err := syscall.SetsockoptString(fd, syscall.SOL_SOCKET, option, raw)
	runtime.KeepAlive(onlySYN)
	if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
		t.Skip("this kernel lets only root put a filter on a socket")
	}
	must(t, err)
}

// begun reports whether a handshake with a port of 127.0.0.1 is under way.
func begun(t *testing.T, port string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	must(t, err)
	n, _ := strconv.Atoi(port)
	return slices.ContainsFunc(strings.Split(string(text), "\n"), func(l string) bool {
		f := strings.Fields(l)
		return len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && f[3] == "03" // SYN_RECV
	})
}

// TestListenersSwapAddresses: listeners swap addresses in one reload: TCP addresses, and a path
// that is written in another way. Each socket stays.
func TestListenersSwapAddresses(t *testing.T) {
	t.Parallel()

	a, b, path := named(t, "a"), named(t, "b"), filepath.Join(t.TempDir(), "s")
	one, two := sockets.Port(t), sockets.Port(t)
	text := `
listeners: [{name: l, bind: ["127.0.0.1:%s", %q], upstream: a}, {name: m, bind: ["127.0.0.1:%s", %q], upstream: b}]
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]`
	r := start(t, fmt.Sprintf(text, one, "unix:"+path, two, "unix:"+path+"2", a, b))
	stop := hammer(t, "127.0.0.1:"+one, 4)
	_, socket := listening(t, one)
	for i := range 20 {
		want := "ab"[(i+1)%2]
		if want == 'b' {
			r.Reload(fmt.Sprintf(text, two, "unix:"+path+"2", one, "unix:"+filepath.Dir(path)+"/x/../s", a, b))
		} else {
			r.Reload(fmt.Sprintf(text, one, "unix:"+path, two, "unix:"+path+"2", a, b))
		}
		if got := whose(t, "127.0.0.1:"+one); got != string(want) {
			t.Errorf("%s, want %c", got, want)
		}
		c := dialUnix(t, path)
		if got := line(t, c); got != string(want) {
			t.Errorf("%s: %s, want %c", path, got, want)
		}
		c.Close()
	}
	stop()
	if _, now := listening(t, one); now != socket {
		t.Error("another socket listens")
	}
}

// TestAnAddressIsSplitAmongListeners: each of several listeners gets a part of an address that one of them had, which keeps its sessions.
func TestAnAddressIsSplitAmongListeners(t *testing.T) {
	t.Parallel()

	port, up := sockets.Port(t), named(t, "a")
	text := func(listeners string) string {
		return fmt.Sprintf("listeners: [%s]\nupstreams: [{name: u, endpoints: [%q], drain_timeout: 0s}]", strings.ReplaceAll(listeners, "PORT", port), up)
	}
	r := start(t, text(`{name: l, bind: ":PORT", upstream: u}`))
	kept := client(t, "127.0.0.1:"+port)
	line(t, kept)
	r.Reload(text(`{name: m, bind: "127.0.0.2:PORT", upstream: u}, {name: l, bind: "127.0.0.1:PORT", upstream: u}`))
	servedBy(t, "127.0.0.2:"+port, "a")
	echoes(t, kept, "still here")
	must(t, r.DrainListener("l", "test"))
	isReset(t, kept)
}

// TestALostPathIsBoundAgain: the status says that the path of a listener's unix socket was removed or replaced, and a
// reload of the same file binds it again. Sessions stay, and clients that wait in the old socket's queue are served. A path
// that another process serves by now stays with it, and the rest of a reload is in force.
func TestALostPathIsBoundAgain(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "s")
	text := fmt.Sprintf(`
listeners: [{name: l, bind: %q, upstream: u, limits: {connections: 1}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, "unix:"+path, named(t, "a"))
	r := start(t, text)
	gone := func() bool { return r.Status().Listeners[0].Queues[0].Gone }
	for what, lose := range map[string]func(){
		"removed": func() { must(t, os.Remove(path)) },
		"replaced": func() {
			must(t, os.Remove(path))
			other, err := net.Listen("unix", path)
			must(t, err)
			r.Reload(strings.Replace(text, "connections: 1", "connections: 2", 1))
			r.Logs("cannot be bound again", "a process listens there")
			if !gone() {
				t.Error("the status does not say that another process listens there")
			}
			other.(*net.UnixListener).SetUnlinkOnClose(false)
			other.Close()
		},
	} {
		kept := dialUnix(t, path)
		hears(t, kept, "a")
		waits := dialUnix(t, path)
		if gone() {
			t.Errorf("%s: the path is gone before", what)
		}
		if lose(); !gone() {
			t.Errorf("%s: the status does not say so", what)
		}
		r.Reload(text)
		if gone() {
			t.Errorf("%s: a reload has not bound it", what)
		}
		echoes(t, kept, "still here")
		kept.Close()
		hears(t, waits, "a")
		waits.Close()
		c := dialUnix(t, path)
		hears(t, c, "a")
		c.Close()
	}
}

// TestTransparentOverReloads: the socket stays, and is transparent when configured so.
func TestTransparentOverReloads(t *testing.T) {
	t.Parallel()

	if os.Getuid() != 0 {
		t.Skip("IP_TRANSPARENT needs CAP_NET_ADMIN")
	}
	up := named(t, "a")
	port := sockets.Port(t)
	text := `
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u, transparent: %v}]
upstreams: [{name: u, endpoints: [%q]}]`
	r := start(t, fmt.Sprintf(text, port, true, up))
	_, socket := listening(t, port)
	for _, on := range []bool{true, false, true, false} {
		r.Reload(fmt.Sprintf(text, port, on, up))
		fd, now := listening(t, port)
		if set, err := syscall.GetsockoptInt(fd, syscall.SOL_IP, sys.IP_TRANSPARENT); err != nil || set != 0 != on || now != socket {
			t.Errorf("IP_TRANSPARENT %d, %v, want %v; the same socket: %v", set, err, on, now == socket)
		}
	}
}

// TestAbstractNameLikeAPort: an abstract socket stays under another listener's name, whatever its own name ends in.
func TestAbstractNameLikeAPort(t *testing.T) {
	t.Parallel()

	const text = "listeners: [{name: %s, bind: 'unix:@penstock-%d:0', upstream: u}]\nupstreams: [{name: u, endpoints: [%q], health_check: off}]\n"
	endpoint := named(t, "u")
	r := start(t, fmt.Sprintf(text, "a", os.Getpid(), endpoint))
	r.Reload(fmt.Sprintf(text, "b", os.Getpid(), endpoint))
	hears(t, dialUnix(t, fmt.Sprintf("@penstock-%d:0", os.Getpid())), "u")
}
