package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// served returns the name of the server that a new client of an address gets; "" if the client is
// refused.
func served(address string) string {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "" // reset before connect returned
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	got, _ := sockets.ReadLine(c)
	return got
}

// serverAt is a server at a port that sends its name. It listens until it is closed or the test
// ends.
func serverAt(t *testing.T, port, name string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, ln, func(c net.Conn) { fmt.Fprintln(c, name); sockets.Echo(c) })
	return ln
}

// TestDeadEndpointsLoseNobody: two of three endpoints are dead, and only the intervals of checks
// are configured. Each client is served, from the first one on.
func TestDeadEndpointsLoseNobody(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q, %q, %q], health_check: {interval: 2s, fast_interval: 400ms}}]`,
		sockets.Refusing(t), sockets.Refusing(t), named(t, "a")))
	for i := range 100 {
		if got := served(r.At("l")); got != "a" {
			t.Fatalf("client %d of the sequential ones was refused", i)
		}
	}
	var clients sync.WaitGroup
	var lost atomic.Int64
	for range 8 {
		clients.Go(func() {
			for range 50 {
				if served(r.At("l")) != "a" {
					lost.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if u := r.Status().Upstreams[0]; lost.Load() > 0 || u.Opened > 0 || len(u.Reasons) > 0 {
		t.Errorf("%d of 400 concurrent clients were refused, %+v", lost.Load(), u)
	}
}

// TestRestartIsNoticed: clients of a returning endpoint are served when a check has succeeded,
// whatever the breaker's open time. That holds also if no check has found the endpoint down.
func TestRestartIsNoticed(t *testing.T) {
	t.Parallel()

	for _, fall := range []int{2, 1000} {
		t.Run(fmt.Sprintf("fall %d", fall), func(t *testing.T) {
			port := sockets.Port(t)
			server := serverAt(t, port, "before")
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: "127.0.0.1:%s", name: a}], health_check: {interval: 100ms, timeout: 2s, fast_interval: 50ms, fall: %d}, queue: {hold: 0s}, retry: {backoff: 0s}, circuit_breaker: {min_volume: 5, open: 1h}}]`, port, fall))
			whose(t, r.At("l"))
			server.Close()
			r.Until("no client is let through", func() bool {
				served(r.At("l"))
				u := r.Status().Upstreams[0]
				return u.Opened > 0 || u.Endpoints[0].Opened > 0 || u.Endpoints[0].State == "down"
			})
			refused(t, r.At("l"))
			serverAt(t, port, "after")
			r.Until("clients are served", func() bool { return served(r.At("l")) == "after" })
			r.Until("the breakers are closed", func() bool {
				served(r.At("l"))
				u := r.Status().Upstreams[0]
				return u.Breaker == "closed" && u.Endpoints[0].Breaker == ""
			})
			for range 10 {
				whose(t, r.At("l"))
			}
		})
	}
}

// TestAllEndpointsFail: the breaker of an upstream opens when clients are not served. Then it
// refuses clients without a try, or the fallback serves them. When its time is over trials close
// it.
func TestAllEndpointsFail(t *testing.T) {
	t.Parallel()

	ports := []string{sockets.Port(t), sockets.Port(t)}
	text := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - &u {name: u, endpoints: ["127.0.0.1:%s", "127.0.0.1:%s"], health_check: off, outlier_detection: off, queue: {hold: 0s}, retry: {backoff: 0s}, circuit_breaker: {min_volume: 5, open: 1500ms, trial_connections: 2}}
  - {<<: *u, name: v, fallback: {respond: sorry.txt}}`, ports[0], ports[1])
	r := start(t, text, "sorry.txt", "sorry\n")
	for i := range 5 {
		refused(t, r.At("l"))
		if got := whose(t, r.At("m")); got != "sorry" {
			t.Fatal(got)
		}
		if u := r.Status().Upstreams[0]; u.Opened != int64(i/4) {
			t.Fatalf("after %d clients that were not served, with %d retries, the breaker has opened %d times", i+1, u.Retries, u.Opened)
		}
	}
	tried, began := r.Status(), time.Now()
	for range 10 {
		refused(t, r.At("l"))
		if got := whose(t, r.At("m")); got != "sorry" {
			t.Error(got)
		}
	}
	const trialEvery = 50 * time.Millisecond // of the last resort
	st := r.Status()
	trials := 1 + int64(time.Since(began)/trialEvery)
	for i, u := range st.Upstreams {
		if u.Breaker != "open" && time.Since(began) < time.Second || u.Endpoints[0].Picked > tried.Upstreams[i].Endpoints[0].Picked+trials {
			t.Errorf("with its breaker open, after %d trials at most: %+v", trials, u)
		}
	}
	for _, port := range ports {
		serverAt(t, port, "back")
	}
	for _, l := range []string{"l", "m"} {
		r.Until("a trial succeeds", func() bool { return served(r.At(l)) == "back" })
	}
	r.Until("the breakers are closed", func() bool {
		served(r.At("l"))
		served(r.At("m"))
		st := r.Status()
		return st.Upstreams[0].Breaker == "closed" && st.Upstreams[1].Breaker == "closed"
	})
}

// TestPanicServesWhenTheyAreBack: endpoints die and come back while all are ejected and no check
// runs. They serve clients at once, and the panic is logged.
func TestPanicServesWhenTheyAreBack(t *testing.T) {
	t.Parallel()

	ports := []string{sockets.Port(t), sockets.Port(t)}
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:%s", "127.0.0.1:%s"], panic_below: 0.6, health_check: off, queue: {hold: 0s}, retry: {backoff: 0s}, outlier_detection: {max_ejected: 1, base_ejection_time: 1h, max_ejection_time: 1h}, circuit_breaker: {min_volume: 5, open: 1h}}]`, ports[0], ports[1]))
	for range 30 {
		refused(t, r.At("l"))
	}
	u := r.Status().Upstreams[0]
	if u.Breaker != "open" || !u.Panic || u.Panics != 1 || u.Endpoints[0].State != "ejected" || u.Endpoints[1].Breaker != "open" {
		t.Fatalf("%+v", u)
	}
	for _, port := range ports {
		serverAt(t, port, "back")
	}
	for i := range 30 {
		if got := served(r.At("l")); got != "back" {
			t.Fatalf("client %d: %q", i, got)
		}
	}
	r.Until("breakers are closed", func() bool {
		served(r.At("l"))
		u := r.Status().Upstreams[0]
		return u.Breaker == "closed" && u.Endpoints[0].Breaker == "" && u.Endpoints[1].Breaker == ""
	})
	r.Logs("msg=panic", "state=panic", "of 2 endpoints are usable")
	for _, e := range r.Status().Upstreams[0].Endpoints { // an endpoint that was connected to is not ejected
		if e.State != "up" {
			t.Errorf("%+v", e)
		}
	}
}

// TestHangUpsEject: an endpoint that accepts and closes is ejected, such as a forwarded port
// without a server behind it. An endpoint whose clients leave first is not ejected.
func TestHangUpsEject(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: a}, {address: %q, name: b}]}
  - {name: v, endpoints: [{address: %q, name: c}], outlier_detection: {max_ejected: 1}}`,
		named(t, "a"), sockets.Server(t, func(net.Conn) {}), sockets.Server(t, sockets.Echo)))
	for range 10 {
		client(t, r.At("m")).Close()
	}
	r.Until("the other clients have left", func() bool {
		u := r.Status().Upstreams[1]
		return u.Endpoints[0].Total == 10 && u.Active == 0
	})
	if e := r.Endpoint("v", "c"); e.State != "up" || e.Failures != 0 {
		t.Errorf("the endpoint whose clients left: %+v", e)
	}
	lost := 0
	r.Until("the endpoint is ejected", func() bool {
		if served(r.At("l")) == "" {
			lost++
		}
		return r.Endpoint("u", "b").State == "ejected"
	})
	if lost > 5 {
		t.Errorf("%d clients were lost to it", lost)
	}
	r.Logs("msg=ejection", "5 failures in a row, the last: ended before its first byte")
}

// TestRetriesInVainAreBounded: failed retries are limited by the share of the budget, or by its
// floor. A budget of 0 allows none.
func TestRetriesInVainAreBounded(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		budget        string
		clients       int
		retries, most int64
	}{{"0", 40, 0, 0}, {"0.2", 40, 30, 30}, {"0.2", 300, 50, 60}} {
		r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, outlier_detection: off, circuit_breaker: off, queue: {hold: 0s}, retry: {budget: %s, backoff: 0s}}]`, sockets.Refusing(t), c.budget))
		began := time.Now()
		for range c.clients {
			refused(t, r.At("l"))
		}
		u := r.Status().Upstreams[0]
		spans := 1 + int64(time.Since(began)/(10*time.Second)) // what the budget counts is forgotten after ten seconds
		if u.Retries < c.retries || u.Retries > c.most*spans || u.RetriesDenied == 0 {
			t.Errorf("budget %s, %d clients: %d retries, %d denied", c.budget, c.clients, u.Retries, u.RetriesDenied)
		}
		r.End()
	}
}

// TestCausesHaveTheErrno: the logged cause of an ejection has the system's error.
func TestCausesHaveTheErrno(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q, %q], health_check: off}]`, named(t, "a"), sockets.Refusing(t)))
	r.Until("the endpoint is ejected", func() bool {
		served(r.At("l"))
		return r.Status().Upstreams[0].Endpoints[1].State == "ejected"
	})
	r.Logs("msg=ejection", "the last: cannot be connected to: "+syscall.ECONNREFUSED.Error())
}

// TestEjectedOneIsTriedInstead: an endpoint that resets its clients is ejected, by connect checks it is well
// all the while, and then it serves again while the other one resets. max_ejected allows one ejection. Few
// clients are lost until the two change places, or the policy sends clients to the one that is back alone.
func TestEjectedOneIsTriedInstead(t *testing.T) {
	t.Parallel()

	for _, balance := range lb.Policies() {
		t.Run(balance.String(), func(t *testing.T) {
			var resets [2]atomic.Bool
			var last atomic.Int32 // that got a client
			var at [2]string
			for i := range at {
				at[i] = sockets.Server(t, func(c net.Conn) {
					if n, _ := io.ReadFull(c, make([]byte, 1)); n > 0 { // a health check sends nothing
						last.Store(int32(i))
					}
					if resets[i].Load() {
						_ = c.(*net.TCPConn).SetLinger(0)
						return
					}
					_, _ = io.WriteString(c, "y")
				})
			}
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}, {address: %q, name: b}]
    balance: %s
    outlier_detection: {consecutive_failures: 3, base_ejection_time: 1h, max_ejection_time: 1h, max_ejected: 0.5}
    circuit_breaker: off
    health_check: {interval: 50ms, timeout: 2s}`, at[0], at[1], balance))
			source := 0
			comes := func() bool {
				source++
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+source/200), byte(1+source%200))}}
				c, err := d.Dial("tcp", r.At("l"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = io.WriteString(c, "x")
				_ = c.SetDeadline(time.Now().Add(patience))
				b, _ := io.ReadAll(c)
				return string(b) == "y"
			}
			comes()
			one := last.Load() // the policy sends clients to it, at least while it is usable
			other := 1 - one
			ejected := func(i int32) bool { return r.Endpoint("u", string("ab"[i])).State == "ejected" }
			resets[one].Store(true)
			r.Until("it is ejected for its resets", func() bool { comes(); return ejected(one) })
			resets[one].Store(false)
			resets[other].Store(true)
			lost, row := 0, 0
			r.Until("the two have changed places, or all are served by the other one", func() bool {
				if row++; !comes() {
					lost, row = lost+1, 0
				}
				return ejected(other) && !ejected(one) || row == 100 && !ejected(one)
			})
			changed := ejected(other)
			for range 20 {
				if comes() {
					continue
				}
				if lost++; changed { // if not, the other one is tried again now and then
					t.Error("a client is lost afterwards")
				}
			}
			if lost > 10 {
				t.Errorf("%d clients were lost", lost)
			}
		})
	}
}

// TestRestartLosesNobody: clients that connect while the only endpoint is away are held, on loops
// and where TLS ends here. All of them are served when it is back. Those that leave meanwhile are
// dropped. Nothing is configured, and no check has to find the outage.
func TestRestartLosesNobody(t *testing.T) {
	t.Parallel()

	for name, terminated := range map[string]string{"loops": "", "goroutines": "tls: {certificates: [{cert: c.pem, key: k.pem}]}, "} {
		t.Run(name, func(t *testing.T) {
			port := sockets.Port(t)
			server := serverAt(t, port, "before")
			cert, key := certificate.New(t, "front.test")
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", %supstream: u}]
upstreams: [{name: u, endpoints: [{address: "127.0.0.1:%s", name: a}], health_check: off, queue: {hold: 1m}}]`, terminated, port), "c.pem", cert, "k.pem", key)
			ask := func() (string, error) {
				c, err := net.DialTimeout("tcp", r.At("l"), patience)
				if err != nil {
					return "", err
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				if terminated != "" {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				return sockets.ReadLine(c)
			}
			if got, err := ask(); got != "before" {
				t.Fatal(got, err)
			}
			server.Close()
			const clients = 50
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					if got, err := ask(); got != "after" {
						t.Errorf("%q, %v", got, err)
					}
				})
			}
			held := func(n int64) func() bool {
				return func() bool { u := r.Status().Upstreams[0]; return u.Held == n && u.Pending >= n-1 }
			}
			r.Until("the clients are held", held(clients))
			leaves := client(t, r.At("l"))
			if terminated == "" {
				r.Until("one more is held", held(clients+1))
			}
			_ = leaves.SetLinger(0)
			leaves.Close()
			serverAt(t, port, "after")
			all.Wait()
			r.Until("no client is held", func() bool {
				u := r.Status().Upstreams[0]
				return u.Pending == 0 && u.Active == 0 && len(u.Reasons) == 0
			})
		})
	}
}

// TestHeldAreRefusedInTime: a client that no endpoint can serve is refused after its hold time,
// and at once when the limit of held clients is reached.
func TestHeldAreRefusedInTime(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], queue: {size: 1, hold: 300ms}}]`, sockets.Refusing(t)))
	began := time.Now()
	first := client(t, r.At("l"))
	r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
	refused(t, r.At("l"))
	if err := gone(t, first); errors.Is(err, errTimeout) {
		t.Error(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond || took > 5*time.Second {
		t.Errorf("the client was held for %v", took)
	}
}

// TestHeldClientsWithTLSAtAReload: after a reload, held clients on goroutines go where their
// listener leads now. That holds where their TLS ends here, where it begins here, and for an
// upstream without TLS.
func TestHeldClientsWithTLSAtAReload(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	dead, w, secure := sockets.Refusing(t), named(t, "w"), frontOf(t, cert, key)
	for name, c := range map[string]struct{ ends, begins, to, want string }{
		"ends":                {ends: ", tls: {certificates: [{cert: c.pem, key: k.pem}]}", to: fmt.Sprintf("endpoints: [%q]", w), want: "w"},
		"ends and begins":     {ends: ", tls: {certificates: [{cert: c.pem, key: k.pem}]}", to: fmt.Sprintf("endpoints: [%q], tls: {ca: c.pem, sni: front.test}", secure), want: "ours"},
		"begins":              {begins: ", tls: {ca: c.pem, sni: front.test}", to: fmt.Sprintf("endpoints: [%q], tls: {ca: c.pem, sni: front.test}", secure), want: "ours"},
		"begins, and no more": {begins: ", tls: {ca: c.pem, sni: front.test}", to: fmt.Sprintf("endpoints: [%q]", w), want: "w"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u%s}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 2s}%s}]`, c.ends, dead, c.begins), "c.pem", cert, "k.pem", key)
			var conn net.Conn = client(t, r.At("l"))
			defer conn.Close()
			if c.ends != "" {
				over := tls.Client(conn, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
				if err := over.Handshake(); err != nil {
					t.Fatal(err)
				}
				conn = over
			}
			r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
			r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: w%s}]
upstreams: [{name: w, %s}]`, c.ends, c.to))
			if got := line(t, conn); got != c.want {
				t.Errorf("the held client: %q, want %q", got, c.want)
			}
		})
	}
}

// TestHeldClientsAtAReload: a reload adds an endpoint to the upstream, has the listener lead to
// another upstream, or adds a fallback. A held client is served by it.
func TestHeldClientsAtAReload(t *testing.T) {
	t.Parallel()

	dead, w := sockets.Refusing(t), named(t, "w")
	held := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: %%s}}]`, dead)
	t.Run("an endpoint is added", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "1m"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q, %q], health_check: off, queue: {hold: 1m}}]`, dead, w))
		if got := line(t, c); got != "w" {
			t.Error(got)
		}
	})
	t.Run("another upstream", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "2s"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: w}]
upstreams: [{name: w, endpoints: [%q]}]`, w))
		if got := whose(t, r.At("l")); got != "w" {
			t.Error(got)
		}
		if got := line(t, c); got != "w" {
			t.Errorf("the held client: %q", got)
		}
	})
	t.Run("a fallback", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "2s"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
- {name: u, endpoints: [%q], health_check: off, fallback: {upstream: w}}
- {name: w, endpoints: [%q]}`, dead, w))
		if got := line(t, c); got != "w" {
			t.Errorf("the held client: %q", got)
		}
	})
}

// TestHeldClientsGetTheNewTLS: an upstream's ca is wrong, so no client gets a connection. When a reload
// corrects it, a client that is held is served at once, as a new one is, and not when its time is over.
func TestHeldClientsGetTheNewTLS(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	other, _ := certificate.New(t, "front.test")
	secure := frontOf(t, cert, key)
	config := func(ca string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 1m}, tls: {ca: %s, sni: front.test}}]`, secure, ca)
	}
	r := start(t, config("other.pem"), "c.pem", cert, "other.pem", other)
	held := client(t, r.At("l"))
	defer held.Close()
	r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
	r.Reload(config("c.pem"))
	fresh := client(t, r.At("l"))
	defer fresh.Close()
	for name, c := range map[string]net.Conn{"held": held, "new": fresh} {
		if got := line(t, c); got != "ours" {
			t.Errorf("the %s client: %q", name, got)
		}
	}
}

// TestConnectingClientsAtAReload: a reload takes an endpoint away to which a client is being connected, in
// vain, or has the listener lead elsewhere. The client is not kept there for the whole connect timeout.
// The same holds for a client on a goroutine.
func TestConnectingClientsAtAReload(t *testing.T) {
	t.Parallel()
	cert, key := certificate.New(t, "front.test")
	for name, listener := range map[string]string{
		"plain": `{name: l, bind: "127.0.0.1:0", timeouts: {connect: 10m}, upstream: %s}`,
		"TLS":   `{name: l, bind: "127.0.0.1:0", timeouts: {connect: 10m}, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: %s}`,
	} {
		for change, after := range map[string]string{
			"the endpoint is removed": `[{name: u, endpoints: [%q], health_check: off}]`,
			"another upstream":        `[{name: w, endpoints: [%q], health_check: off}]`,
			"a fallback is added":     `[{name: u, endpoints: [SILENT], health_check: off, fallback: {upstream: f}}, {name: f, endpoints: [%q]}]`,
			"renamed, with another":   `[{name: w, endpoints: [SILENT, %q], health_check: off}]`,
		} {
			t.Run(name+"/"+change, func(t *testing.T) {
				t.Parallel()
				silent := sockets.Silent(t)
				after := strings.ReplaceAll(after, "SILENT", fmt.Sprintf("%q", silent))
				r := start(t, fmt.Sprintf("listeners: ["+listener+"]\nupstreams: [{name: u, endpoints: [%q], health_check: off}]", "u", silent),
					"c.pem", cert, "k.pem", key)
				var conn net.Conn = client(t, r.At("l"))
				defer conn.Close()
				if name == "TLS" {
					over := tls.Client(conn, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
					if err := over.Handshake(); err != nil {
						t.Fatal(err)
					}
					conn = over
				}
				r.Until("the client is being connected", func() bool { return r.Status().Upstreams[0].Endpoints[0].Active == 1 })
				r.Until("the status says so", func() bool { return r.Status().Upstreams[0].Endpoints[0].Connecting != nil })
				r.Reload(fmt.Sprintf("listeners: ["+listener+"]\nupstreams: "+after, after[8:9], named(t, "well")))
				if got := line(t, conn); got != "well" {
					t.Errorf("the client: %q", got)
				}
			})
		}
	}
}

// TestFullBesideADeadOne: an endpoint without a verdict refuses, and the one that serves is at its limit. The
// upstream is reported as full.
func TestFullBesideADeadOne(t *testing.T) {
	t.Parallel()
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: dead}, {address: %q, name: full, connections: 1}],
     health_check: off, outlier_detection: off, circuit_breaker: off, queue: {timeout: 1m}}`, sockets.Refusing(t), named(t, "full")))
	first := client(t, r.At("l"))
	defer first.Close()
	if got := line(t, first); got != "full" {
		t.Fatal(got)
	}
	second := client(t, r.At("l"))
	defer second.Close()
	r.Until("the upstream is full", func() bool { o := r.Status().Upstreams[0].Outage; return o != nil && o.Full })
	r.Logs("level=WARN", "every usable endpoint of the upstream is at its limit", "upstream=u")
	first.Close()
	if got := line(t, second); got != "full" {
		t.Errorf("the client that waited: %q", got)
	}
	second.Close()
	r.Until("it is full no more", func() bool { o := r.Status().Upstreams[0].Outage; return o == nil || !o.Full })
}

// TestPendingConnectsMakeRoom: the one connection that circuit_breaker.pending allows is being made to an
// endpoint that does not answer, so a second client waits for room. Neither is kept until the connect timeout:
// both are served by the endpoint that answers.
func TestPendingConnectsMakeRoom(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", timeouts: {connect: 10m}, upstream: u}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: silent, weight: 100}, {address: %q, name: well}], balance: round_robin,
     health_check: off, circuit_breaker: {pending: 1}, queue: {timeout: 10m}}`, sockets.Silent(t), named(t, "well")))
	first := client(t, r.At("l"))
	defer first.Close()
	r.Until("the client is being connected", func() bool { return r.Status().Upstreams[0].Endpoints[0].Active == 1 })
	second := client(t, r.At("l"))
	defer second.Close()
	for name, c := range map[string]net.Conn{"first": first, "second": second} {
		if got := line(t, c); got != "well" {
			t.Errorf("the %s client: %q", name, got)
		}
	}
	r.Until("room", func() bool {
		u := r.Status().Upstreams[0]
		return u.Connecting == 0 && u.MostConnecting == 1 && u.Pending == 0
	})
}

// TestOneAttemptIsNoOutage: two of three endpoints refuse connections, with retry: {attempts: 0}.
// No client is refused, because their clients get the third endpoint as a last resort. The
// upstream's breaker does not open.
func TestOneAttemptIsNoOutage(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: [%q, %q, %q], retry: {attempts: 0}, health_check: off, outlier_detection: off}`, named(t, "good"), sockets.Refusing(t), sockets.Refusing(t)))
	for range 90 {
		if who := whose(t, r.At("l")); who != "good" {
			t.Fatalf("served by %q", who)
		}
	}
	r.Until("both breakers are open", func() bool {
		return strings.Count(r.Log.String(), "msg=circuit upstream=u endpoint=") == 2
	})
	if strings.Contains(r.Log.String(), "msg=circuit upstream=u state=open") {
		t.Error("the upstream's breaker has opened")
	}
}
