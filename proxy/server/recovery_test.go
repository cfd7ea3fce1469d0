package server_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
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
				return func() bool {
					u := r.Status().Upstreams[0]
					return u.Held == n && u.Pending >= n-1 && u.PendingEndpoint == u.Pending
				}
			}
			r.Until("the clients are held", held(clients))
			leaves := client(t, r.At("l"))
			if terminated != "" {
				must(t, tls.Client(leaves, &tls.Config{InsecureSkipVerify: true}).Handshake())
			}
			r.Until("one more is held", held(clients+1))
			_ = leaves.SetLinger(0)
			leaves.Close()
			r.Until("it gives its place up at once", func() bool { return r.Status().Connections.Active == clients })
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
  - {name: u, endpoints: [{address: %q, name: silent}, {address: %q, name: well}], balance: first,
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

// TestUnroutedClientsAtAReload: a client that has connected, and has sent nothing yet by which it would get a route, is
// routed by the configuration that is in force when it does.
func TestUnroutedClientsAtAReload(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	old, open := named(t, "old"), named(t, "open")
	writes := func(text string) func(*testing.T, net.Conn) net.Conn {
		return func(t *testing.T, c net.Conn) net.Conn {
			_, err := c.Write([]byte(text))
			must(t, err)
			return c
		}
	}
	shakes := func(t *testing.T, c net.Conn) net.Conn {
		over := tls.Client(c, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
		must(t, over.Handshake())
		return over
	}
	const ends, header = "tls: {certificates: [{cert: c.pem, key: k.pem}]}", "PROXY TCP4 127.0.0.1 192.0.2.1 1 2\r\n"
	for stage, of := range map[string]struct {
		listener      string
		before, after func(*testing.T, net.Conn) net.Conn
	}{
		"PROXY header":           {listener: "accept_proxy: {timeout: 1m}", after: writes(header)},
		"PROXY header, then TLS": {listener: "accept_proxy: {timeout: 1m}, " + ends, after: func(t *testing.T, c net.Conn) net.Conn { return shakes(t, writes(header)(t, c)) }},
		"TLS":                    {listener: ends, after: shakes},
		"first decrypted byte":   {listener: "connect: on_data, " + ends, before: shakes, after: writes("x")},
		"first byte":             {listener: "connect: on_data", after: writes("x")},
		"first bytes":            {listener: "accept_proxy: {timeout: 1m}, connect: on_data", before: writes(header), after: writes("x")},
	} {
		for change, to := range map[string]struct{ listener, upstreams string }{
			"the upstream is removed": {"upstream: open", ""},
			"the upstream is changed": {"upstream: open", ", OLD"},
			"a route is added":        {"upstream: old, routes: [{match: {source: [127.0.0.1]}, upstream: open}]", ", OLD"},
		} {
			t.Run(stage+"/"+change, func(t *testing.T) {
				t.Parallel()
				text := func(listener, upstreams string) string {
					upstreams = strings.ReplaceAll(upstreams, "OLD", fmt.Sprintf("{name: old, endpoints: [%q], health_check: off}", old))
					return fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", timeouts: {preread: 1m}, %s, %s}]\nupstreams: [{name: open, endpoints: [%q], health_check: off}%s]",
						of.listener, listener, open, upstreams)
				}
				r := start(t, text("upstream: old", ", OLD"), "c.pem", cert, "k.pem", key)
				var conn net.Conn = client(t, r.At("l"))
				defer conn.Close()
				if of.before != nil {
					conn = of.before(t, conn)
				}
				r.Until("the client is there", func() bool { return r.Status().Connections.Active == 1 })
				r.Reload(text(to.listener, to.upstreams))
				hears(t, of.after(t, conn), "open")
			})
		}
	}
}

// TestLateSessionsOfRemovedUpstreams: a client of a listener that is gone still gets the endpoint of an upstream that is
// gone, too. Its session ends as on_removed says, and the status has it.
func TestLateSessionsOfRemovedUpstreams(t *testing.T) {
	t.Parallel()

	other := named(t, "other")
	for _, how := range []string{"keep", "reset", "drain"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := `{name: m, bind: "127.0.0.1:0", upstream: other}`
			others := fmt.Sprintf("{name: other, endpoints: [%q], health_check: off, drain_timeout: 10m}", other)
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", connect: on_data, timeouts: {preread: 1m}, upstream: u, routes: [{match: {source: [192.0.2.1]}, upstream: other}]}, %s]
upstreams: [{name: u, endpoints: [%q], health_check: off, on_removed: %s, drain_timeout: 100ms}, %s]`, m, named(t, "late"), how, others))
			c := client(t, r.At("l"))
			defer c.Close()
			r.Until("the client is there", func() bool { return r.Status().Connections.Active == 1 })
			r.Reload("listeners: [" + m + "]\nupstreams: [" + others + "]")
			_, err := c.Write([]byte("x"))
			must(t, err)
			if how == "keep" {
				hears(t, c, "late")
				r.Until("the session is listed", func() bool { return r.Status().RemovedSessions["u"] == 1 })
				return
			}
			r.Logs(`msg="sessions were reset"`, "upstream=u", "sessions=1")
		})
	}
}

// TestListenerReadyAfterItsDrain: a client that still waits for an endpoint when a listener is ready again, after the end of
// its drain, is served.
func TestListenerReadyAfterItsDrain(t *testing.T) {
	t.Parallel()

	for _, timeout := range []string{"0", "50ms"} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			r := start(t, fmt.Sprintf(`
listeners:
- {name: l, bind: "127.0.0.1:0", upstream: full, routes: [{match: {source: [127.0.0.2]}, upstream: other}]}
- {name: m, bind: "127.0.0.1:0", upstream: full}
upstreams:
- {name: full, endpoints: [{address: %q, connections: 1}], health_check: off, queue: {timeout: 1m}, drain_timeout: %s}
- {name: other, endpoints: [%[1]q], health_check: off, drain_timeout: %[2]s}`, sockets.Server(t, sockets.Echo), timeout))
			first := client(t, r.At("m"))
			echoes(t, first, "x")
			waits := client(t, r.At("l"))
			r.Until("it waits", func() bool { return r.Status().Upstreams[0].Pending == 1 })
			session, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", r.At("l"))
			must(t, err)
			echoes(t, session, "x")
			must(t, r.DrainListener("l", "test"))
			gone(t, session)
			must(t, r.ReadyListener(t.Context(), "l", "test"))
			first.Close()
			echoes(t, waits, "x")
		})
	}
}
