package server_test

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
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
		for range c.clients {
			refused(t, r.At("l"))
		}
		u := r.Status().Upstreams[0]
		if u.Retries < c.retries || u.Retries > c.most || u.RetriesDenied == 0 {
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
