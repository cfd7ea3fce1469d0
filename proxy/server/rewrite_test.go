package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

// Text with digits, and the same as digitModule makes it.
const (
	clearText  = "pay 4111 1111 1111 1111 for joe@example.com\n"
	maskedText = "pay **** **** **** **** for joe@example.com\n"
)

// digits is a rewrite by digitModule, which is d.wasm, except for its direction.
const digits = "wasm: d.wasm, timeout: 10s"

// digitModule is a module that puts an asterisk in place of each digit, in either direction.
func digitModule() string {
	m := streamModule()
	for kind, name := range streamFunctions {
		m.Func(name, i32+i32+i32, i32, 1, Code(Get(1), I32Eqz, If(Const(0), Return),
			Const(kind), Const(0), Get(1), Const(16), Const(20), Call(0), Drop,
			While(Get(3), Load8(8192), Const('0'), I32Sub, Const(10), I32LessU, If(Get(3), Const('*'), Store8(8192)),
				Get(3), Const(1), I32Add, Set(3), Get(3), Get(1), I32LessU),
			Const(kind), Const(0), Get(1), Const(8192), Get(1), Call(1), Drop, Const(0)))
	}
	return string(m.Bytes())
}

// streamFunctions are the functions that rewrite, by the type of their buffer.
var streamFunctions = map[int32]string{1: "proxy_on_downstream_data", 2: "proxy_on_upstream_data"}

// streamModule is a module with functions of the host to get and set the buffer, which is at 8192, and to close the session, in that order.
func streamModule() *Module {
	m := &Module{Pages: 1}
	m.Import("env", "proxy_get_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Import("env", "proxy_set_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Import("env", "proxy_close_stream", i32, i32)
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(8192))
	return m
}

// writeBytes writes a text one byte at a time.
func writeBytes(t *testing.T, c io.Writer, text string) {
	t.Helper()
	for i := range len(text) {
		must(t, second(c.Write([]byte{text[i]})))
	}
}

// TestRewritten: the endpoint gets the rewritten bytes of clients, however they are cut into pieces, and whatever was read before: a hello of
// another protocol, bytes behind a PROXY header, decrypted bytes. The mirror gets the same. The PROXY header stays as it is.
func TestRewritten(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	shadow, atShadow := recorder(t)
	cert, key := certificate.New(t, "front.test")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: up, %[3]s}, mirror: {upstream: s, patience: 30s}}
  - {name: data, bind: "127.0.0.1:0", upstream: h, rewrite: {direction: up, %[3]s}, mirror: {upstream: s, patience: 30s}, connect: on_data}
  - {name: proxied, bind: "127.0.0.1:0", upstream: h, rewrite: {direction: up, %[3]s}, mirror: {upstream: sh, patience: 30s}, accept_proxy: {from: [127.0.0.1]}}
  - {name: routed, bind: "127.0.0.1:0", routes: [{match: {sni: ["*"]}, upstream: u}], upstream: h, rewrite: {direction: up, %[3]s}, mirror: {upstream: s, patience: 30s}, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
  - {name: route, bind: "127.0.0.1:0", routes: [{match: {source: [127.0.0.1]}, upstream: u, rewrite: {direction: up, %[3]s}}], mirror: {upstream: s, patience: 30s}}
upstreams:
  - {name: u, endpoints: [%[1]q], health_check: off}
  - {name: h, endpoints: [%[1]q], send_proxy: 1, health_check: off}
  - {name: s, endpoints: [%[2]q], health_check: off}
  - {name: sh, endpoints: [%[2]q], send_proxy: 1, health_check: off}`, primary, shadow, digits), "c.pem", cert, "k.pem", key, "d.wasm", digitModule())
	for _, c := range []struct{ listener, before string }{{"plain", ""}, {"data", ""}, {"proxied", "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"}, {"routed", ""}, {"route", ""}} {
		tcp := client(t, r.At(c.listener))
		sends(t, tcp, c.before)
		var conn net.Conn = tcp
		if c.listener == "routed" {
			conn = tls.Client(tcp, &tls.Config{ServerName: "front.test", InsecureSkipVerify: true})
		}
		writeBytes(t, conn, clearText)
		bulk := strings.Repeat(clearText, 3000)
		echoed := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(conn)
			echoed <- b
		}()
		sends(t, conn, bulk+"4111111111111111")
		must(t, conn.(interface{ CloseWrite() error }).CloseWrite())
		want := []byte(strings.Repeat(maskedText, 3001) + "****************")
		at, there, back := next(t, atPrimary), next(t, atShadow), <-echoed
		for what, b := range map[string][]byte{"the endpoint": at.bytes, "the mirror": there.bytes, "the client": back} {
			h := header(b)
			if b = b[len(h):]; !bytes.Equal(b, want) {
				t.Errorf("%s: %s has got %d bytes, want %d: %.300s", c.listener, what, len(b), len(want), b)
			}
			if c.before != "" && !strings.HasPrefix(string(h), "PROXY TCP4 192.0.2.7 192.0.2.8 ") {
				t.Errorf("%s: the header at %s is %q", c.listener, what, h)
			}
		}
		w := r.rewritesOf(c.listener, int64(len(want)))
		if w.Sessions != 1 || w.BytesOut != w.Bytes || len(w.Reset) > 0 || len(w.Modules) != 1 || w.Modules[0].Direction != "up" {
			t.Errorf("%s: %+v", c.listener, w)
		}
		r.Until("the instance is closed", func() bool { return r.Listener(c.listener).Rewrites.Modules[0].Instances == 0 })
		_ = conn.Close()
	}
	r.Until("all sessions are counted, which were copied", func() bool { return r.Summary().Fallbacks["rewrite"] == 5 })
}

// rewritesOf is the status of a listener's rewriting, once so many bytes were rewritten.
func (r *rig) rewritesOf(listener string, n int64) (w *admin.Rewrites) {
	r.Until(fmt.Sprintf("%d bytes of %s were rewritten", n, listener), func() bool {
		w = r.Listener(listener).Rewrites
		return w != nil && w.Bytes == n
	})
	return w
}

// TestRewrittenDown: answers are rewritten, and requests are not; without a rewrite neither is, and a route's own takes the place of
// the listener's. After a reload a session keeps that with which it began.
func TestRewrittenDown(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	text := func(rewrite string) string {
		return fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, %s}
  - {name: none, bind: "127.0.0.1:0", routes: [{match: {source: [127.0.0.1]}, upstream: u, rewrite: {direction: none}}], rewrite: {direction: down, wasm: d.wasm}}
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, rewrite, primary)
	}
	r := start(t, text("rewrite: {direction: down, "+digits+"}"), "d.wasm", digitModule())
	masked := client(t, r.At("l"))
	ask := func(c net.Conn, want string) {
		t.Helper()
		writeBytes(t, c, clearText)
		if got := line(t, c); got+"\n" != want && got != want {
			t.Errorf("the answer is %q, want %q", got, want)
		}
	}
	ask(masked, maskedText)
	none := client(t, r.At("none"))
	ask(none, clearText)
	r.Reload(text("timeouts: {idle: 10m}"))
	ask(masked, maskedText)
	after := client(t, r.At("l"))
	ask(after, clearText)
	for _, c := range []*net.TCPConn{masked, none, after} {
		must(t, c.CloseWrite())
		if got := next(t, atPrimary); strings.Contains(string(got.bytes), "*") || got.err != nil {
			t.Errorf("the endpoint has got %q, %v", got.bytes, got.err)
		}
	}
	if w := r.Listener("l").Rewrites; w == nil || w.Sessions != 1 || w.Bytes != int64(2*len(clearText)) {
		t.Errorf("%+v", w)
	}
}

// TestRewriteLetsGo: a module that wants to see more is asked again if nothing has come in the time of hold, and may let its bytes go.
func TestRewriteLetsGo(t *testing.T) {
	t.Parallel()

	m := streamModule()
	before := m.Global(0) // the size of the last buffer
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 0, Code(Get(1), GetGlobal(before), I32Equal, If(Const(0), Return), Get(1), SetGlobal(before), Get(2), I32Eqz))
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: up, wasm: m.wasm, timeout: 10s, hold: 5ms}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, sockets.Server(t, sockets.Echo)), "m.wasm", string(m.Bytes()))
	c := client(t, r.At("l"))
	echoes(t, c, "login joe")
	echoes(t, c, "password: 4111 1111")
}

// TestRewrittenPreread: bytes that were taken from the client's queue before the session, behind a PROXY header that came in pieces, are
// rewritten, too.
func TestRewrittenPreread(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	socket := filepath.Join(t.TempDir(), "s")
	for i, proxy := range []string{"", "send_proxy: 1, "} {
		at := fmt.Sprint(socket, i)
		r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "unix:%s", upstream: u, rewrite: {direction: up, %s}, accept_proxy: {}}]
upstreams: [{name: u, endpoints: [%q], %s health_check: off}]`, at, digits, primary, proxy), "d.wasm", digitModule())
		for range 20 {
			c, err := net.Dial("unix", at)
			if err != nil {
				t.Fatal(err)
			}
			const head = "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"
			for _, piece := range head[:len(head)-1] {
				sends(t, c, string(piece))
				runtime.Gosched()
			}
			sends(t, c, head[len(head)-1:]+clearText[:30])
			sends(t, c, clearText[30:])
			must(t, c.(*net.UnixConn).CloseWrite())
			got := next(t, atPrimary)
			if b := got.bytes[len(header(got.bytes)):]; string(b) != maskedText || len(header(got.bytes)) > 0 != (proxy != "") {
				t.Fatalf("the endpoint has got %q", got.bytes)
			}
			_ = c.Close()
		}
		r.Until("all has been rewritten", func() bool { return r.Listener("l").Rewrites.Bytes == int64(20*len(clearText)) })
	}
}

// rewriteModule is a module that puts a mark behind each chunk, in either direction. By the first byte of a chunk l loops, t traps, g
// grows, d denies the session, p pauses.
func rewriteModule(mark string) string {
	m := streamModule()
	m.Data(1024, mark)
	is := func(b byte, code ...any) []byte {
		return Code(Const(8192), Load8(0), Const(int32(b)), I32Equal, If(code...))
	}
	for kind, name := range streamFunctions {
		m.Func(name, i32+i32+i32, i32, 0, Code(Get(1), I32Eqz, If(Const(0), Return),
			Const(kind), Const(0), Get(1), Const(16), Const(20), Call(0), Drop,
			is('l', Forever()), is('t', Unreachable), is('g', Const(100), Grow(), Drop), is('d', Const(2), Call(2), Drop), is('p', Const(1), Return),
			Const(kind), Get(1), Const(0), Const(1024), Const(int32(len(mark))), Call(1), Drop, Const(0)))
	}
	return string(m.Bytes())
}

// moduleText has listeners with a module for each direction, one that passes bytes after a failure, and one without.
const moduleText = `
listeners:
  - {name: up, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: up, wasm: m.wasm, timeout: 500ms}, mirror: {upstream: s, patience: 30s}}
  - {name: down, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: down, wasm: m.wasm, timeout: 500ms}}
  - {name: pass, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: up, wasm: m.wasm, timeout: 500ms, on_error: pass}}
  - {name: few, bind: "127.0.0.1:0", upstream: u, rewrite: {direction: up, wasm: m.wasm, instances: 1, timeout: 10s, hold: 1m}}
  - {name: plain, bind: "127.0.0.1:0", upstream: u}
upstreams:
  - {name: u, endpoints: [%q], health_check: off}
  - {name: s, endpoints: [%q], health_check: off}`

// receives reads as many bytes as a text has, and compares them.
func receives(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v, want %q", got[:n], err, want)
	}
}

func sends(t testing.TB, c net.Conn, text string) {
	t.Helper()
	must(t, second(io.WriteString(c, text)))
}

// TestFailedModule: a module that fails has its session reset, or has its bytes go on, as on_error says. It is counted by reason, and
// others get new instances. One that denies has its session reset in any case.
func TestFailedModule(t *testing.T) {
	t.Parallel()

	echo := sockets.Server(t, sockets.Echo)
	r := start(t, fmt.Sprintf(moduleText, echo, echo), "m.wasm", rewriteModule("!"))
	reasons := map[string]string{"l": "timeout", "t": "trap", "g": "memory", "d": "denied"}
	for _, listener := range []string{"up", "down", "pass"} {
		for text, reason := range reasons {
			c := client(t, r.At(listener))
			sends(t, c, "a")
			receives(t, c, "a!")
			sends(t, c, text)
			passes := listener == "pass" && reason != "denied"
			if passes {
				receives(t, c, text)
				sends(t, c, "more")
				receives(t, c, "more")
			} else if b, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) || len(b) > 0 {
				t.Errorf("%s: %q, %v", listener, b, err)
			}
			r.Until(reason+" is counted", func() bool {
				w := r.Listener(listener).Rewrites
				return w.Passed[reason] == 1 && w.Reset[reason] == 0 && passes || w.Reset[reason] == 1 && w.Passed[reason] == 0 && !passes
			})
		}
	}
	first := client(t, r.At("few"))
	sends(t, first, "paused")
	r.Until("it has the instance", func() bool { return r.Listener("few").Rewrites.Modules[0].Instances == 1 })
	second := client(t, r.At("few"))
	sends(t, second, "x")
	if _, err := io.ReadAll(second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without an instance: %v", err)
	}
	r.Until("it is counted", func() bool { return r.Listener("few").Rewrites.Reset["overload"] == 1 })
}

// TestModuleReload: under load a module is replaced. A session goes on with that with which it began, new ones have the new one, and one
// that is the same is left alone. A broken one changes nothing.
func TestModuleReload(t *testing.T) {
	t.Parallel()

	echo := sockets.Server(t, sockets.Echo)
	text := fmt.Sprintf(moduleText, echo, echo)
	r := start(t, text, "m.wasm", rewriteModule("1"))
	before := client(t, r.At("up"))
	sends(t, before, "a")
	receives(t, before, "a1")
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for !stop.Load() {
				c, err := net.Dial("tcp", r.At("up"))
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
				_, _ = io.WriteString(c, "b")
				b := make([]byte, 2)
				if _, err := io.ReadFull(c, b); err != nil || b[0] != 'b' {
					t.Errorf("%q, %v", b, err)
				}
				c.Close()
			}
		})
	}
	for i := range 3 {
		r.Write("m.wasm", rewriteModule(fmt.Sprint(i+2)))
		r.Reload(text)
		c := client(t, r.At("up"))
		sends(t, c, "c")
		receives(t, c, fmt.Sprint("c", i+2))
	}
	stop.Store(true)
	clients.Wait()
	sends(t, before, "o")
	receives(t, before, "o1")
	cfg := r.Load(text)
	cfg.Listeners[0].Rewrite.Wasm.Bytes = []byte("none")
	if err := r.Apply(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "module m") {
		t.Errorf("a broken module: %v", err)
	}
	c := client(t, r.At("up"))
	sends(t, c, "e")
	receives(t, c, "e4")
	r.Reload(text + "\n  - {name: d, endpoints: ['127.0.0.1:1'], health_check: off}")
	sends(t, c, "f")
	receives(t, c, "f4")
}

// TestLoopingModuleStallsNoOther: while sessions loop in their module one after the other, those of another listener, on the same loops,
// are served.
func TestLoopingModuleStallsNoOther(t *testing.T) {
	t.Parallel()

	echo := sockets.Server(t, sockets.Echo)
	r := start(t, fmt.Sprintf(moduleText, echo, echo), "m.wasm", rewriteModule("!"))
	plain := client(t, r.At("plain"))
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 2 {
				c, err := net.Dial("tcp", r.At("up"))
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
				_, _ = io.WriteString(c, "l")
				_, _ = io.ReadAll(c)
				c.Close()
			}
		})
	}
	for range 200 {
		echoes(t, plain, "x")
	}
	clients.Wait()
	r.Until("all were cut", func() bool { return r.Listener("up").Rewrites.Reset["timeout"] == 8 })
}
