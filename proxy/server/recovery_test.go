package server_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// served returns the name of the server that a new client of an address gets; "" if the client is
// refused.
func served(address string) string {
	c, err := net.DialTimeout("tcp", address, condition.Patience)
	if err != nil {
		return "" // reset before connect returned
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	got, _ := sockets.ReadLine(c)
	return got
}

// serverAt is a server at a port that sends its name. It listens until it is closed or the test
// ends.
func serverAt(t *testing.T, port, name string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	must(t, err)
	sockets.Serve(t, ln, func(c net.Conn) { fmt.Fprintln(c, name); sockets.Echo(c) })
	return ln
}

// TestRestartIsNoticed: clients of a returning endpoint are served when a check has succeeded,
// whatever the breaker's open time. That holds also if no check has found the endpoint down.
func TestRestartIsNoticed(t *testing.T) {
	t.Parallel()

	for _, fall := range []int{2, 1000} {
		t.Run(fmt.Sprintf("fall %d", fall), func(t *testing.T) {
			port := sockets.Port(t)
			server := serverAt(t, port, "before")
			r := startUpstream(t, `endpoints: [{address: "127.0.0.1:%s", name: a}], health_check: {interval: 100ms, fast_interval: 50ms, fall: %d}, queue: {hold: 0s}, retry: {backoff: 0s}, circuit_breaker: {min_volume: 5, open: 1h}`, port, fall)
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

// TestPanicServesWhenTheyAreBack: endpoints die and come back while all are ejected and no check
// runs. They serve clients at once, and the panic is logged.
func TestPanicServesWhenTheyAreBack(t *testing.T) {
	t.Parallel()

	ports := []string{sockets.Port(t), sockets.Port(t)}
	r := startUpstream(t, `endpoints: ["127.0.0.1:%s", "127.0.0.1:%s"], panic_below: 0.6, health_check: off, queue: {hold: 0s}, retry: {backoff: 0s}, outlier_detection: {max_ejected: 1, base_ejection_time: 1h, max_ejection_time: 1h}, circuit_breaker: {min_volume: 5, open: 1h}`, ports[0], ports[1])
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

// TestRetriesInVainAreBounded: failed retries are limited by the share of the budget, or by its
// floor. A budget of 0 allows none.
func TestRetriesInVainAreBounded(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		budget        string
		clients       int
		retries, most int64
	}{{"0", 40, 0, 0}, {"0.2", 40, 30, 30}, {"0.2", 300, 50, 60}} {
		r := startUpstream(t, `endpoints: [%q], health_check: off, outlier_detection: off, circuit_breaker: off, queue: {hold: 0s}, retry: {budget: %s, backoff: 0s}`, sockets.Refusing(t), c.budget)
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
    health_check: {interval: 50ms}`, at[0], at[1], balance))
			source := 0
			comes := func() bool {
				source++
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+source/200), byte(1+source%200))}}
				c, err := d.Dial("tcp", r.At("l"))
				must(t, err)
				defer c.Close()
				_, _ = io.WriteString(c, "x")
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
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
				c, err := net.DialTimeout("tcp", r.At("l"), condition.Patience)
				if err != nil {
					return "", err
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
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
	for _, c := range map[string]net.Conn{"first": first, "second": second} {
		hears(t, c, "well")
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

// TestWaitingClientsAtAReload: a client that is held, or is being connected in vain, goes where a reload has its listener lead, or to
// what it adds, and does not wait until its time is over; also a client on a goroutine, because its TLS ends or begins here.
func TestWaitingClientsAtAReload(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	other, _ := certificate.New(t, "front.test")
	dead, well, secure := sockets.Refusing(t), named(t, "well"), frontOf(t, cert, key)
	for name, c := range map[string]struct{ before, after, want string }{ // upstreams, of which the first is the listener's
		"held, an endpoint is added": {`{name: u, endpoints: [DEAD], health_check: off, queue: {hold: 1m}}`, `{name: u, endpoints: [DEAD, WELL], health_check: off, queue: {hold: 1m}}`, "well"},
		"held, another upstream":     {`{name: u, endpoints: [DEAD], health_check: off, queue: {hold: 1m}}`, `{name: w, endpoints: [WELL]}`, "well"},
		"held, a fallback":           {`{name: u, endpoints: [DEAD], health_check: off, queue: {hold: 1m}}`, `{name: u, endpoints: [DEAD], health_check: off, fallback: {upstream: w}}, {name: w, endpoints: [WELL]}`, "well"},
		"held, TLS begins":           {`{name: u, endpoints: [DEAD], health_check: off, queue: {hold: 1m}, BEGINS}`, `{name: w, endpoints: [SECURE], BEGINS}`, "ours"},
		"held, TLS begins then":      {`{name: u, endpoints: [DEAD], health_check: off, queue: {hold: 1m}}`, `{name: w, endpoints: [SECURE], BEGINS}`, "ours"},
		"held, TLS begins no more":   {`{name: u, endpoints: [DEAD], health_check: off, queue: {hold: 1m}, BEGINS}`, `{name: w, endpoints: [WELL]}`, "well"},
		"held, by another authority": {`{name: u, endpoints: [SECURE], health_check: off, queue: {hold: 1m}, tls: {ca: other.pem, sni: front.test}}`, `{name: u, endpoints: [SECURE], health_check: off, queue: {hold: 1m}, BEGINS}`, "ours"},
		"held, TLS begins there":     {`{name: u, endpoints: [DEAD], health_check: off, queue: {hold: 1m}}`, `{name: u, endpoints: [SECURE], health_check: off, queue: {hold: 1m}, BEGINS}`, "ours"},
		"connecting, TLS begins":     {`{name: u, endpoints: [SILENT], health_check: off}`, `{name: w, endpoints: [SECURE], health_check: off, BEGINS}`, "ours"},
		"connecting, another":        {`{name: u, endpoints: [SILENT], health_check: off}`, `{name: u, endpoints: [WELL], health_check: off}`, "well"},
		"connecting, elsewhere":      {`{name: u, endpoints: [SILENT], health_check: off}`, `{name: w, endpoints: [WELL], health_check: off}`, "well"},
		"connecting, a fallback":     {`{name: u, endpoints: [SILENT], health_check: off}`, `{name: u, endpoints: [SILENT], health_check: off, fallback: {upstream: w}}, {name: w, endpoints: [WELL]}`, "well"},
		"connecting, renamed":        {`{name: u, endpoints: [SILENT], health_check: off}`, `{name: w, endpoints: [SILENT, WELL], health_check: off}`, "well"},
	} {
		for how, ends := range map[string]string{"plain": "", "TLS": ", tls: {certificates: [{cert: c.pem, key: k.pem}]}"} {
			t.Run(how+"/"+name, func(t *testing.T) {
				t.Parallel()
				fill := strings.NewReplacer("DEAD", dead, "SILENT", sockets.Silent(t), "SECURE", secure, "WELL", well, "BEGINS", "tls: {ca: c.pem, sni: front.test}")
				text := func(upstreams string) string {
					return fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", timeouts: {connect: 10m}, upstream: %s%s}]\nupstreams: [%s]", upstreams[7:8], ends, fill.Replace(upstreams))
				}
				r := start(t, text(c.before), "c.pem", cert, "k.pem", key, "other.pem", other)
				var conn net.Conn = client(t, r.At("l"))
				defer conn.Close()
				if ends != "" {
					over := tls.Client(conn, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
					must(t, over.Handshake())
					conn = over
				}
				r.Until("the client waits", func() bool {
					u := r.Status().Upstreams[0]
					return u.Pending == 1 || u.Endpoints[0].Active == 1 && u.Endpoints[0].Connecting != nil
				})
				r.Reload(text(c.after))
				hears(t, conn, c.want)
			})
		}
	}
}
