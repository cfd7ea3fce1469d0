package server_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestAddresses: one listener has several addresses, TCP and unix.
func TestAddresses(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "s")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: ["127.0.0.1:0", "127.0.0.2:0", "unix:%s?mode=0640"], upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, path, named(t, "a")))
	at := r.Status().Listeners[0].Addresses
	if len(at) != 3 || !strings.HasPrefix(at[1], "127.0.0.2:") || !strings.HasSuffix(at[2], path) {
		t.Fatalf("%q", at)
	}
	for _, a := range at[:2] {
		if got := whose(t, a); got != "a" {
			t.Errorf("%s: %s", a, got)
		}
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if got := line(t, c); got != "a" {
		t.Errorf("%s: %s", path, got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestRoutesByPort: a listener with several ports routes by port.
func TestRoutesByPort(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	one, two := sockets.Port(t), sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: ["127.0.0.1:%s", "127.0.0.1:%s"], routes: [{match: {port: %[2]s}, upstream: b}], upstream: a}]
upstreams: [{name: a, endpoints: [%[3]q]}, {name: b, endpoints: [%[4]q]}]`, one, two, a, b))
	for i, want := range []string{"a", "b"} {
		if got := whose(t, r.Status().Listeners[0].Addresses[i]); got != want {
			t.Errorf("port %d: %s", i, got)
		}
	}
}

// TestRates: clients beyond the rate wait to be accepted; those beyond the rate of one source are
// refused.
func TestRates(t *testing.T) {
	t.Parallel()

	const rate, clients = 10, 15
	a := named(t, "a")
	text := `
limits: {per_second: %d}
listeners:
  - {name: listener, bind: "127.0.0.1:0", upstream: u, limits: {per_second: %d}}
  - {name: source, bind: "127.0.0.1:0", upstream: u, limits: {per_source_per_second: 1}}
upstreams: [{name: u, endpoints: [%q]}]`
	for name, text := range map[string]string{"process": fmt.Sprintf(text, rate, 0, a), "listener": fmt.Sprintf(text, 0, rate, a)} {
		r := start(t, text)
		began := time.Now()
		for range clients {
			if got := whose(t, r.At("listener")); got != "a" {
				t.Error(got)
			}
		}
		// As many as a second gives may come at once.
		if took, least := time.Since(began), (clients-rate-1)*time.Second/rate; took < least {
			t.Errorf("%s: %d clients were served within %v", name, clients, took)
		}
		r.End()
	}
	r := start(t, fmt.Sprintf(text, 0, 0, a))
	whose(t, r.At("source"))
	refused(t, r.At("source"))
	r.Until("the refusal is counted", func() bool { return r.Refused("source", "per_source_per_second") == 1 })
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", r.At("source"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	line(t, c) // of another source
}

// TestDeniedClientsUseNoRate: clients that a rule refuses do not use up the rates of the process
// and the listener.
func TestDeniedClientsUseNoRate(t *testing.T) {
	t.Parallel()

	for _, at := range []string{"process", "listener"} {
		rate := map[string]int{at: 1}
		r := start(t, fmt.Sprintf(`
limits: {per_second: %d}
listeners:
  - {name: public, bind: "127.0.0.1:0", upstream: u, allow: [127.0.0.9], limits: {per_second: %d}}
  - {name: database, bind: "127.0.0.1:0", upstream: u}
upstreams: [{name: u, endpoints: [%q]}]`, rate["process"], rate["listener"], named(t, "a")))
		for range 200 { // which would use up the rate of 200 s
			refused(t, r.At("public"))
		}
		served := r.At("database")
		if at == "listener" {
			served = r.At("public")
		}
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", served)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		line(t, c)
		c.Close()
		r.End()
	}
}

// TestProcessLimit: at the limit of the process clients of each listener wait.
func TestProcessLimit(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
limits: {connections: 2}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	one, two, three := client(t, r.At("l")), client(t, r.At("m")), client(t, r.At("m"))
	line(t, one)
	_ = three.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	line(t, two)
	if _, err := sockets.ReadLine(three); !errors.Is(err, errTimeout) {
		t.Errorf("%v, want it to wait", err)
	}
	one.Close()
	_ = three.SetReadDeadline(time.Now().Add(patience))
	line(t, three)
}

// TestProcessLimitBeyondDescriptors: a limit beyond the available descriptors is logged; fewer
// clients are served.
func TestProcessLimitBeyondDescriptors(t *testing.T) {
	t.Parallel()

	r := startWith(t, 7, `
limits: {connections: 8}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`)
	if got := r.Log.String(); !strings.Contains(got, "connections=8 allowed=7") {
		t.Errorf("the log says %q", got)
	}
}

// TestBandwidthPerConnection: each session has a limit of its own.
func TestBandwidthPerConnection(t *testing.T) {
	t.Parallel()

	const size, rate = 3 << 20, 4 << 20
	up := streams(t, size)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, limits: {bandwidth_per_connection: 4MiB}}]
upstreams: [{name: u, endpoints: [%q]}]`, up))
	took := make(chan time.Duration, 2)
	began := time.Now()
	for range cap(took) {
		c := client(t, r.At("l"))
		go func() {
			stream(t, c, nil, size)
			took <- time.Since(began)
		}()
	}
	for range cap(took) {
		// The bytes of a tenth of a second may pass at once, and the other direction may be late.
		if d, least := <-took, (size-rate/10)*time.Second/rate; d < least || d > 20*least {
			t.Errorf("it took %v, want at least %v", d, least)
		}
	}
}

// TestReloadKeepsTheQueue: connections in the accept queue at a reload are served under the new
// configuration, by the same socket.
func TestReloadKeepsTheQueue(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := `
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: %s, limits: {connections: %d}}]
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]`
	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(text, port, "a", 1, a, b))
	first := client(t, r.At("l"))
	line(t, first)
	var queue []*net.TCPConn
	for range 50 {
		queue = append(queue, client(t, r.At("l")))
	}
	if n := r.Status().Connections.Accepted; n > 2 {
		t.Errorf("%d were accepted, want them in the queue", n)
	}
	for range 10 { // the waiting connections are not affected
		r.Reload(fmt.Sprintf(text, port, "a", 1, b, a))
	}
	r.Reload(fmt.Sprintf(text, port, "b", 0, a, b))
	served := map[string]int{}
	for _, c := range queue {
		served[line(t, c)]++
		echoes(t, c, "from the queue")
	}
	if served["b"] < len(queue)-2 { // each of two loops may have had one client already
		t.Errorf("%v, want them served by b", served)
	}
	echoes(t, first, "still here")
	if s := r.Summary(); s.Connections.Refused != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTimeouts: sessions end by their listener's timeouts, and by no other's.
func TestTimeouts(t *testing.T) {
	t.Parallel()

	over := make(chan struct{})
	a, held := named(t, "a"), sockets.Server(t, func(c net.Conn) {
		_, _ = sockets.ReadLine(c)
		<-over // neither side sends or closes
	})
	t.Cleanup(func() { close(over) })
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: idle, bind: "127.0.0.1:0", upstream: u, timeouts: {idle: 200ms}}
  - {name: half_close, bind: "127.0.0.1:0", upstream: v, timeouts: {half_close: 200ms}}
  - {name: lifetime, bind: "127.0.0.1:0", upstream: u, timeouts: {lifetime: 400ms, lifetime_jitter: 0.5}}
  - {name: none, bind: "127.0.0.1:0", upstream: u}
upstreams: [{name: u, endpoints: [%q]}, {name: v, endpoints: [%q]}]`, a, held))
	other := client(t, r.At("none"))
	line(t, other)
	for name, least := range map[string]time.Duration{"idle": 200 * time.Millisecond, "half_close": 200 * time.Millisecond, "lifetime": 200 * time.Millisecond} {
		began := time.Now()
		c := client(t, r.At(name))
		switch name {
		case "half_close":
			_ = c.CloseWrite()
			gone(t, c)
		case "lifetime": // though it is never idle
			line(t, c)
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if _, err := c.Write([]byte("x")); err != nil {
					break
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					break
				}
			}
		default:
			line(t, c)
			gone(t, c)
		}
		if took := time.Since(began); took < least || took > 10*time.Second {
			t.Errorf("%s: the end took %v", name, took)
		}
	}
	echoes(t, other, "still here")
}
