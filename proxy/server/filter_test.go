package server_test

import (
	"cmp"
	"context"
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
	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

const i32 = "\x7f"

// Functions that filterModule imports.
const (
	fnBuffer = iota
	fnSet
)

// filterModule is a filter that decides by the first byte of a client: d denies it, a allows it, n is for the
// next route, r for the upstream c, l loops, t traps, g grows; with b it wants two bytes and denies if the
// second is d. Other bytes have the client allowed, with a tag.
func filterModule(version string) string {
	m := &Module{Pages: 1}
	at := int32(1024)
	text := func(s string) []byte {
		m.Data(at, s)
		code := Code(Const(at), Const(int32(len(s))))
		at += int32(len(s))
		return code
	}
	m.Import("env", "proxy_get_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Import("env", "proxy_set_property", i32+i32+i32+i32, i32)
	set := func(path, value string) []byte { return Code(text(path), text(value), Call(fnSet), Drop) }
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(8192))
	is := func(at uint32, b byte, code ...any) []byte {
		return Code(Const(8192), Load8(at), Const(int32(b)), I32Equal, If(code...))
	}
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 0, Code(
		Const(1), Const(0), Get(1), Const(16), Const(20), Call(fnBuffer), Drop,
		is(0, 'd', set("penstock\x00deny", "by "+version)), is(0, 'n', set("penstock\x00next", "")), is(0, 'r', set("penstock\x00route", "c")),
		is(0, 'l', Forever()), is(0, 't', Unreachable), is(0, 'g', Const(100), Grow(), Drop),
		is(0, 'b', Get(1), Const(2), I32LessS, If(Const(1), Return), is(1, 'd', set("penstock\x00deny", "second"))),
		set("penstock\x00tag\x00version", version), Const(0)))
	return string(m.Bytes())
}

// filterText is a configuration with a filter on a route, a route after that, and a route without a filter.
const filterText = `
listeners:
  - name: l
    bind: "127.0.0.1:0"
    timeouts: {preread: 10s}
    routes:
      - {match: {source: [127.0.0.1]}, upstream: a, filter: {wasm: f.wasm, preread: 16, upstreams: [c], timeout: 200ms, on_error: %[4]s}}
      - {upstream: b}
  - {name: plain, bind: "127.0.0.1:0", upstream: a}
upstreams:
  - {name: a, endpoints: [%[1]q], health_check: off}
  - {name: b, endpoints: [%[2]q], health_check: off}
  - {name: c, endpoints: [%[3]q], health_check: off}`

// answeredBy asks a listener with a text and returns the name of the server that answers, or empty for a client
// that was refused.
func answeredBy(t testing.TB, address, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	for i := range len(text) { // byte by byte
		if _, err := c.Write([]byte(text[i : i+1])); err != nil {
			return ""
		}
	}
	b := make([]byte, 100)
	n, _ := c.Read(b)
	return strings.TrimSpace(string(b[:n]))
}

// speaker is a server that answers the first bytes with its name.
func speaker(t *testing.T, name string) string {
	return sockets.Server(t, func(c net.Conn) {
		b := make([]byte, 100)
		if n, err := c.Read(b); err == nil && n > 0 {
			fmt.Fprintln(c, name)
			_, _ = c.Read(b)
		}
	})
}

// TestFilter: each answer of a filter by first bytes, which its endpoint gets anyway.
func TestFilter(t *testing.T) {
	t.Parallel()

	for onError, afterError := range map[string]string{"deny": "", "allow": "a"} {
		r := start(t, fmt.Sprintf(filterText, speaker(t, "a"), speaker(t, "b"), speaker(t, "c"), onError), "f.wasm", filterModule("1"))
		for text, want := range map[string]string{
			"a": "a", "d": "", "n": "b", "r": "c", "ba": "a", "bd": "", "l": afterError, "t": afterError, "g": afterError,
		} {
			if got := answeredBy(t, r.At("l"), text); got != want {
				t.Errorf("on_error: %s: %q was served by %q, want %q", onError, text, got, want)
			}
		}
		f := r.Listener("l").Filters[0]
		if f.Name != "f" || f.Failures["timeout"] != 1 || f.Failures["trap"] != 1 || f.Failures["memory"] != 1 || f.Answers["next"] != 1 || f.Answers["route"] != 1 || f.Tagged < 2 {
			t.Errorf("%+v", f)
		}
		failed := map[string]int64{"deny": 3, "allow": 0}[onError]
		r.Until("refusals are counted", func() bool {
			reasons := r.Listener("l").Reasons
			return reasons["filter"] == 2 && reasons["filter_failed"] == failed
		})
		r.Until("what is wrong is in the status", func() bool { return r.Listener("l").Filters[0].FailedLastMinute == 3 })
	}
}

// TestFilterNextLooksOn: after a filter's answer the routes behind its own may depend on bytes that were not
// looked at before; a client that does not send them is refused.
func TestFilterNextLooksOn(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - name: l
    bind: "127.0.0.1:0"
    timeouts: {preread: 10s}
    routes:
      - {match: {source: [127.0.0.1]}, upstream: a, filter: {wasm: f.wasm, preread: 1, timeout: 10s}}
      - {match: {bytes: [{text: nice}]}, upstream: b}
upstreams: [{name: a, endpoints: [%q], health_check: off}, {name: b, endpoints: [%q], health_check: off}]`, speaker(t, "a"), speaker(t, "b")), "f.wasm", filterModule("1"))
	for text, want := range map[string]string{"nice": "b", "nix": "", "a": "a"} {
		if got := answeredBy(t, r.At("l"), text); got != want {
			t.Errorf("%q was served by %q, want %q", text, got, want)
		}
	}
	c := client(t, r.At("l"))
	sends(t, c, "nic")
	must(t, c.CloseWrite())
	r.Until("the client that has ended in doubt is refused", func() bool { return r.Listener("l").Reasons["first_bytes"] == 1 })
}

// TestFilterEnds: a client that ends before it has sent as much as its filter wants, and one that sends nothing.
func TestFilterEnds(t *testing.T) {
	t.Parallel()

	text := fmt.Sprintf(filterText, speaker(t, "a"), speaker(t, "b"), speaker(t, "c"), "deny")
	r := start(t, text, "f.wasm", filterModule("1"))
	c := client(t, r.At("l"))
	sends(t, c, "b")
	must(t, c.CloseWrite())
	r.Until("the client that has ended is refused", func() bool { return r.Listener("l").Reasons["filter_failed"] == 1 })
	r.Reload(strings.Replace(text, "preread: 10s", "preread: 100ms", 1))
	client(t, r.At("l"))
	r.Until("the silent client is refused", func() bool { return r.Listener("l").Reasons["preread"] == 1 })
}

// TestFilterReload: under load a filter is replaced, and no client is refused; a file that is none changes
// nothing; one that is the same is left alone.
func TestFilterReload(t *testing.T) {
	t.Parallel()

	text := fmt.Sprintf(filterText, speaker(t, "a"), speaker(t, "b"), speaker(t, "c"), "deny")
	r := start(t, text, "f.wasm", filterModule("1"))
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				if got := answeredBy(t, r.At("l"), "a"); got != "a" {
					t.Errorf("served by %q", got)
				}
			}
		})
	}
	for i := range 5 {
		r.Write("f.wasm", filterModule(fmt.Sprint(i+2)))
		r.Reload(text)
	}
	r.Until("the filter is asked", func() bool { return r.Listener("l").Filters[0].Calls > 0 })
	stop.Store(true)
	clients.Wait()
	before := r.Listener("l").Filters[0]
	if before.Calls == 0 || len(before.Failures) > 0 {
		t.Errorf("%+v", before)
	}
	if answeredBy(t, r.At("l"), "d") != "" {
		t.Error("not denied")
	}
	cfg := r.Load(text)
	cfg.Listeners[0].Routes[0].Filter.Wasm.Bytes = []byte("none")
	if err := r.Apply(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "filter f") {
		t.Errorf("a broken filter: %v", err)
	}
	if got := answeredBy(t, r.At("l"), "a"); got != "a" {
		t.Errorf("after a broken filter: %q", got)
	}
	idle := r.Listener("l").Filters[0].Idle
	r.Reload(text + "\n  - {name: d, endpoints: ['127.0.0.1:1'], health_check: off}")
	if f := r.Listener("l").Filters[0]; idle == 0 || f.Idle != idle {
		t.Errorf("%d instances, of %d: it was not left alone", f.Idle, idle)
	}
}

// TestFilterOverload: clients that wait for longer than timeouts.preread are refused, and counted. Those of another listener are
// served while a filter loops.
func TestFilterOverload(t *testing.T) {
	t.Parallel()

	text := strings.NewReplacer("preread: 10s", "preread: 300ms", "timeout: 200ms", "timeout: 5s, instances: 1").Replace(filterText)
	r := start(t, fmt.Sprintf(text, speaker(t, "a"), speaker(t, "b"), speaker(t, "c"), "deny"), "f.wasm", filterModule("1"))
	for range 3 {
		c := client(t, r.At("l"))
		sends(t, c, "l")
	}
	for range 200 {
		if got := answeredBy(t, r.At("plain"), "x"); got != "a" {
			t.Errorf("served by %q", got)
		}
	}
	r.Until("clients are refused for overload", func() bool { return r.Listener("l").Reasons["filter_overload"] == 3 })
	if f := r.Listener("l").Filters[0]; f.Answers["overload"] != 3 {
		t.Errorf("%+v", f)
	}
	r = start(t, fmt.Sprintf(text, speaker(t, "a"), speaker(t, "b"), speaker(t, "c"), "allow"), "f.wasm", filterModule("1"))
	if got := answeredBy(t, r.At("l"), "l"); got != "a" {
		t.Errorf("on_error: allow: served by %q", got)
	}
}

// TestFilterAfterHello: a filter that wants first bytes sees those of the ClientHello by which the client was
// routed, which the endpoint gets once, however they came.
func TestFilterAfterHello(t *testing.T) {
	t.Parallel()

	endpoint, ended := recorder(t)
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", routes: [{match: {sni: ["*"]}, upstream: u, filter: {wasm: f.wasm, preread: 16KiB, timeout: 10s}}]}
upstreams: [{name: u, endpoints: [%q], send_proxy: 1, health_check: off}]`, endpoint), "f.wasm", filterModule("1"))
	hello := clienthello.Named(t, "a.example")
	for _, piece := range []int{1, len(hello)} {
		c := client(t, r.At("l"))
		for rest := hello; len(rest) > 0; {
			n := min(piece, len(rest))
			must(t, second(c.Write(rest[:n])))
			rest = rest[n:]
		}
		must(t, c.CloseWrite())
		got := next(t, ended).bytes
		if got = got[len(header(got)):]; string(got) != string(hello) {
			t.Errorf("in pieces of %d: %d bytes, want the %d of the hello", piece, len(got), len(hello))
		}
	}
}

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

// isCut waits for the end of a client's connection, which has got no byte.
func isCut(t *testing.T, c net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(c); len(b) > 0 || err == nil {
		t.Errorf("a client that was to be refused: %q, %v", b, err)
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
		"held with TLS": {listener: ended, before: sockets.Refusing(t), after: named(t, "u"), waits: waits, tls: true},
		"connecting": {listener: "upstream: u", before: sockets.Silent(t), waits: func(r *rig) func() bool {
			return func() bool { return r.Listener("l").Connections.Accepted == 1 }
		}},
		"in preread": {
			listener: `routes: [{match: {sni: ["*"]}, upstream: u}]`, before: named(t, "u"),
			waits: func(r *rig) func() bool { return func() bool { return r.Listener("l").Connections.Accepted == 1 } },
			then: func(t *testing.T, c net.Conn) {
				must(t, second(c.Write(clienthello.Named(t, "a.test"))))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, fmt.Sprintf(one, c.listener, c.before), files...)
			var conn net.Conn = client(t, r.At("l"))
			if c.tls {
				over := tls.Client(conn, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
				must(t, over.Handshake())
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

// TestReloadedRoutesRefuseWaiting: a reload has a listener refuse clients for want of a route, of TLS, because of their first bytes,
// or by another filter. Clients that are held are refused as well, and others are not.
func TestReloadedRoutesRefuseWaiting(t *testing.T) {
	t.Parallel()

	const text, request = `
listeners: [{name: l, bind: "127.0.0.1:0", timeouts: {preread: 10s}, %s}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 1m}}]`, "GET / HTTP/1.1\r\nHost: b.test\r\n"
	for after, c := range map[string]struct{ sends, reason string }{
		"upstream: u, filter: {wasm: denies.wasm, timeout: 10s}":        {"", "filter"},
		`routes: [{match: {source: [192.0.2.1]}, upstream: u}]`:         {"", "no_route"},
		`routes: [{match: {source: [127.0.0.1]}, upstream: u}]`:         {"", ""},
		"upstream: u, require_tls: true":                                {request + "\r\n", "hello"},
		`routes: [{match: {host: [a.test]}, upstream: u}]`:              {request + "\r\n", "no_route"},
		`routes: [{match: {host: [b.test]}, upstream: u}]`:              {request + "\r\n", ""},
		`routes: [{match: {host: [a.test]}, upstream: u}], upstream: u`: {request + "Host: a.test\r\n\r\n", "first_bytes"},
	} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			endpoint := named(t, "u")
			r := start(t, fmt.Sprintf(text, "upstream: u, filter: {wasm: allows.wasm, timeout: 10s}", sockets.Refusing(t)), "denies.wasm", gateModule(true), "allows.wasm", gateModule(false))
			held := client(t, r.At("l"))
			sends(t, held, c.sends)
			r.Until("it is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
			r.Reload(fmt.Sprintf(text, after, endpoint))
			if c.reason == "" {
				hears(t, held, "u")
				return
			}
			isCut(t, held)
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
	held, others := client(t, r.At("l")), client(t, r.At("other"))
	r.Until("both are held", func() bool { return r.Status().Upstreams[0].Pending == 2 })
	must(t, r.ApplyWith(t.Context(), r.Load(fmt.Sprintf(text, ", filter: {wasm: denies.wasm, timeout: 10s}", alive)), func() { hears(t, others, "u") }))
	isCut(t, held)
}
