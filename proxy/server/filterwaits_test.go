package server_test

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/sockets"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

// gateModule is a filter that denies every client, or lets it through, before its first bytes.
func gateModule(denies bool) string {
	m := &Module{Pages: 1}
	m.Import("env", "proxy_set_property", i32+i32+i32+i32, i32)
	m.Data(1024, "penstock\x00deny")
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(8192))
	deny := Code()
	if denies {
		deny = Code(Const(1024), Const(int32(len("penstock\x00deny"))), Const(0), Const(0), Call(0), Drop)
	}
	m.Func("proxy_on_new_connection", i32, i32, 0, Code(deny, Const(0)))
	return string(m.Bytes())
}

// waitingText is a configuration with one endpoint for one client, and something more of its listener.
const waitingText = `
listeners: [{name: l, bind: "127.0.0.1:0", timeouts: {preread: 10s}, %s}]
upstreams: [{name: u, endpoints: [{address: %q, connections: 1}], health_check: off, queue: {timeout: 1m}}]`

// isCut waits for the end of a client's connection, which has got no byte.
func isCut(t *testing.T, c net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(c); len(b) > 0 || err == nil {
		t.Errorf("a client that was to be refused: %q, %v", b, err)
	}
}

// TestReloadedFilterAsksWaiting: a reload adds a filter, or another one. Clients that wait for room are asked about
// before they get an endpoint.
func TestReloadedFilterAsksWaiting(t *testing.T) {
	t.Parallel()

	for _, before := range []string{"upstream: u", "upstream: u, filter: {wasm: allows.wasm, name: before, timeout: 10s}"} {
		for _, file := range []string{"denies.wasm", "allows.wasm", "after.wasm"} {
			t.Run(before+" "+file, func(t *testing.T) {
				endpoint := named(t, "u")
				r := start(t, fmt.Sprintf(waitingText, before, endpoint),
					"denies.wasm", gateModule(true), "allows.wasm", gateModule(false), "after.wasm", filterModule("1"))
				first := client(t, r.At("l"))
				line(t, first)
				var waits []net.Conn
				for i := range 3 {
					waits = append(waits, client(t, r.At("l")))
					r.Until("it waits", func() bool { return r.Status().Upstreams[0].Pending == int64(i+1) })
				}
				after := fmt.Sprintf("upstream: u, filter: {wasm: %s, name: after, timeout: 10s, preread: 10}", file)
				if file != "after.wasm" {
					after = strings.Replace(after, ", preread: 10", "", 1)
				}
				r.Reload(fmt.Sprintf(waitingText, after, endpoint))
				first.Close()
				var over sync.WaitGroup
				for _, c := range waits {
					if file == "after.wasm" {
						fmt.Fprint(c, "d")
					}
					over.Go(func() {
						defer c.Close()
						got, err := sockets.ReadLine(c)
						if served := got == "u"; served != (file == "allows.wasm") {
							t.Errorf("%q, %v", got, err)
						}
					})
				}
				over.Wait()
				denied := int64(3)
				if file == "allows.wasm" {
					denied = 0
				}
				r.Until("they are counted", func() bool {
					l := r.Listener("l")
					return l.Reasons["filter"] == denied && l.Filters[0].Calls == 3
				})
			})
		}
	}
}

// TestReloadedFilterAsksEverywhere: likewise for clients that are held, are being connected, have not said what
// their route depends on, or have had their TLS end here.
func TestReloadedFilterAsksEverywhere(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	files := []string{"denies.wasm", gateModule(true), "c.pem", cert, "k.pem", key}
	const filter, ended = ", filter: {wasm: denies.wasm, timeout: 10s}", "upstream: u, tls: {certificates: [{cert: c.pem, key: k.pem}]}"
	const one = `
listeners: [{name: l, bind: "127.0.0.1:0", timeouts: {preread: 10s, connect: 30s}, %s}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 1m}}]`
	waits := func(r *rig) func() bool { return func() bool { return r.Status().Upstreams[0].Pending == 1 } }
	for name, c := range map[string]struct {
		listener, before, after string
		waits                   func(r *rig) func() bool
		tls                     bool
		then                    func(t *testing.T, c net.Conn)
	}{
		"held":          {listener: "upstream: u", before: sockets.Refusing(t), after: named(t, "u"), waits: waits},
		"held with TLS": {listener: ended, before: sockets.Refusing(t), after: named(t, "u"), waits: waits, tls: true},
		"connecting": {listener: "upstream: u", before: sockets.Silent(t), waits: func(r *rig) func() bool {
			return func() bool { return r.Listener("l").Connections.Accepted == 1 }
		}},
		"in preread": {
			listener: `routes: [{match: {sni: ["*"]}, upstream: u}]`, before: named(t, "u"),
			waits: func(r *rig) func() bool { return func() bool { return r.Listener("l").Connections.Accepted == 1 } },
			then: func(t *testing.T, c net.Conn) {
				if _, err := c.Write(clienthello.Named(t, "a.test")); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, fmt.Sprintf(one, c.listener, c.before), files...)
			var conn net.Conn = client(t, r.At("l"))
			if c.tls {
				over := tls.Client(conn, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
				if err := over.Handshake(); err != nil {
					t.Fatal(err)
				}
				conn = over
			}
			r.Until("the client waits", c.waits(r))
			r.Reload(fmt.Sprintf(one, c.listener+filter, cmp.Or(c.after, c.before)))
			if c.then != nil {
				c.then(t, conn)
			}
			isCut(t, conn)
			r.Until("it is counted", func() bool { return r.Listener("l").Reasons["filter"] == 1 })
		})
	}
}

// TestReloadedRoutesRefuseWaiting: a reload has a listener refuse clients for want of a route, of TLS, or because of their
// first bytes. Those that wait for room are refused as well, and others are not.
func TestReloadedRoutesRefuseWaiting(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ after, sends, reason string }{
		"no route":                {`routes: [{match: {source: [192.0.2.1]}, upstream: u}]`, "", "no_route"},
		"a route":                 {`routes: [{match: {source: [127.0.0.1]}, upstream: u}]`, "", ""},
		"require_tls":             {"upstream: u, require_tls: true", "GET / HTTP/1.1\r\n\r\n", "hello"},
		"another host":            {`routes: [{match: {host: [a.test]}, upstream: u}]`, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "no_route"},
		"this host":               {`routes: [{match: {host: [b.test]}, upstream: u}]`, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", ""},
		"a host that is in doubt": {`routes: [{match: {host: [a.test]}, upstream: u}], upstream: u`, "GET / HTTP/1.1\r\nHost: b.test\r\nHost: a.test\r\n\r\n", "first_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := named(t, "u")
			r := start(t, fmt.Sprintf(waitingText, "upstream: u", endpoint))
			first := client(t, r.At("l"))
			line(t, first)
			waits := client(t, r.At("l"))
			fmt.Fprint(waits, c.sends)
			r.Until("it waits", func() bool { return r.Status().Upstreams[0].Pending == 1 })
			r.Reload(fmt.Sprintf(waitingText, c.after, endpoint))
			first.Close()
			if c.reason == "" {
				if got := line(t, waits); got != "u" {
					t.Error(got)
				}
				return
			}
			isCut(t, waits)
			r.Until("it is counted", func() bool { return r.Listener("l").Reasons[c.reason] == 1 })
		})
	}
}

// TestFilterWhileSwapped: a reload names an endpoint that serves, and a filter that denies clients. From the moment that the
// endpoint gets clients, one that is held gets none of it, although the listener is still the one before.
func TestFilterWhileSwapped(t *testing.T) {
	t.Parallel()

	const text = `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u%s}, {name: other, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 1m}}]`
	alive := named(t, "u")
	r := start(t, fmt.Sprintf(text, "", sockets.Refusing(t)), "denies.wasm", gateModule(true))
	held := client(t, r.At("l"))
	others := client(t, r.At("other"))
	r.Until("both are held", func() bool { return r.Status().Upstreams[0].Pending == 2 })
	next := r.Load(fmt.Sprintf(text, ", filter: {wasm: denies.wasm, timeout: 10s}", alive))
	err := r.ApplyWith(t.Context(), next, func() {
		if got, err := sockets.ReadLine(others); got != "u" {
			t.Errorf("%q, %v", got, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	isCut(t, held)
	r.Until("it is counted", func() bool { return r.Listener("l").Reasons["filter"] == 1 })
}
