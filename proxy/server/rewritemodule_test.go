package server_test

import (
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

	"github.com/penstock/penstock/internal/testutil/sockets"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

// rewriteModule is a module that puts a mark behind each chunk, in either direction. By the first byte of a chunk l loops, t traps, g
// grows, d denies the session, p pauses.
func rewriteModule(mark string) string {
	m := &Module{Pages: 1}
	m.Import("env", "proxy_get_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Import("env", "proxy_set_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Import("env", "proxy_close_stream", i32, i32)
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(8192))
	m.Data(1024, mark)
	is := func(b byte, code ...any) []byte {
		return Code(Const(8192), Load8(0), Const(int32(b)), I32Equal, If(code...))
	}
	for kind, name := range map[int32]string{1: "proxy_on_downstream_data", 2: "proxy_on_upstream_data"} {
		m.Func(name, i32+i32+i32, i32, 0, Code(Get(1), byte(I32Eqz), If(Const(0), Return),
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
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// TestRewrittenByModule: the module's bytes go on, in its direction alone, and a mirror gets them too. They are copied, and that is in
// the status.
func TestRewrittenByModule(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	shadow, atShadow := recorder(t)
	r := start(t, fmt.Sprintf(moduleText, primary, shadow), "m.wasm", rewriteModule("<1>"))
	for listener, atClient := range map[string]string{"up": "a<1>b<1>", "down": "a<1>b<1>"} {
		c := client(t, r.At(listener))
		sends(t, c, "a")
		receives(t, c, "a<1>")
		sends(t, c, "b")
		receives(t, c, "b<1>")
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		want := atClient
		if listener == "down" {
			want = "ab"
		}
		if got := next(t, atPrimary); string(got.bytes) != want || got.err != nil {
			t.Errorf("%s: the endpoint has got %q, %v", listener, got.bytes, got.err)
		}
		if listener == "up" {
			if got := next(t, atShadow); string(got.bytes) != want {
				t.Errorf("the mirror has got %q", got.bytes)
			}
		}
		r.Until("the module has had the end", func() bool { return r.Listener(listener).Rewrites.Calls == 3 })
		w := r.rewritesOf(listener, 2)
		if w.Sessions != 1 || w.BytesOut != 8 || w.Calls != 3 || len(w.Modules) != 1 || w.Modules[0].Direction != listener || len(w.Reset)+len(w.Passed) != 0 {
			t.Errorf("%s: %+v", listener, w)
		}
		r.Until("the instance is closed", func() bool { return r.Listener(listener).Rewrites.Modules[0].Instances == 0 })
	}
	r.Until("sessions are counted, which were copied", func() bool { return r.Summary().Fallbacks["rewrite"] == 2 })
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
				_ = c.SetDeadline(time.Now().Add(patience))
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
				_ = c.SetDeadline(time.Now().Add(patience))
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
