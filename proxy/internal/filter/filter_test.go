package filter_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/internal/filter"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// TestAnswers: each answer of the interface, and each that is none.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(m *module) *module
		want filter.Answer
		none bool // the answer is none
	}{
		{"continue", func(m *module) *module { return m.connection(Const(0)) }, filter.Answer{}, false},
		{"allow", func(m *module) *module { return m.connection(m.set("penstock\x00allow", ""), Const(1)) }, filter.Answer{}, false},
		{"close", func(m *module) *module { return m.connection(Const(2), Call(fnClose)) }, filter.Answer{Verdict: filter.Deny}, false},
		{
			"deny", func(m *module) *module { return m.connection(m.set("penstock\x00deny", "no\nbots"), Const(0)) },
			filter.Answer{Verdict: filter.Deny, Reason: "no\uFFFDbots"},
			false,
		},
		{"a denial stays", func(m *module) *module {
			return m.connection(m.set("penstock\x00deny", "bot"), m.set("penstock\x00allow", ""), Const(2), Call(fnClose))
		}, filter.Answer{Verdict: filter.Deny, Reason: "bot"}, false},
		{
			"route", func(m *module) *module { return m.connection(m.set("penstock\x00route", "b"), Const(0)) },
			filter.Answer{Verdict: filter.Route, Upstream: "b"},
			false,
		},
		{"next", func(m *module) *module { return m.connection(m.set("penstock\x00next", ""), Const(0)) }, filter.Answer{Verdict: filter.Next}, false},
		{"tags", func(m *module) *module {
			return m.connection(m.set("penstock\x00tag\x00team", "a b"), m.set("penstock\x00tag\x00k=\x01", "\"v"), Const(0))
		}, filter.Answer{Tags: "team=a_b k_\uFFFD=_v"}, false},
		{"an unknown action", func(m *module) *module { return m.connection(Const(2)) }, filter.Answer{}, true},
		{"an upstream that is not listed", func(m *module) *module { return m.connection(m.set("penstock\x00route", "c"), Const(0)) }, filter.Answer{}, true},
		{"an unknown answer", func(m *module) *module { return m.connection(m.set("penstock\x00forward", "c"), Const(0)) }, filter.Answer{}, true},
		{"a pause without end", func(m *module) *module { return m.connection(Const(1)) }, filter.Answer{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.make(newModule())
			for _, onError := range []filter.Verdict{filter.Allow, filter.Deny} {
				f := mustLoad(t, m.Bytes(), filter.Config{Upstreams: []string{"a", "b"}, OnError: onError})
				a := ask(t, f, client(""))
				if c.none {
					if !errors.Is(a.Err, filter.ErrAnswer) || a.Verdict != onError || f.Counts.Failures.Of(int(filter.FailedAnswer)) != 1 {
						t.Errorf("%+v", a)
					}
				} else if a != c.want {
					t.Errorf("%+v, want %+v", a, c.want)
				}
			}
		})
	}
}

// TestProperties: a filter sees the connection, and first bytes.
func TestProperties(t *testing.T) {
	for path, want := range map[string]string{
		"source\x00address": "192.0.2.7:1234", "source\x00port": "\xd2\x04\x00\x00\x00\x00\x00\x00",
		"destination\x00address": "[2001:db8::1]:443", "destination\x00port\x00": "\xbb\x01\x00\x00\x00\x00\x00\x00",
		"connection\x00requested_server_name": "a.example", "penstock\x00alpn": "h2,http/1.1",
		"penstock\x00listener": "web", "penstock\x00upstream": "shop", "penstock\x00tlv\x00e0": "hi",
		"plugin_name": "test", "plugin_root_id": "test",
		"penstock\x00tlv\x00e1": "none", "penstock\x00tlv": "none", "penstock\x00tlv\x00xx": "none", "request\x00path": "none", "source": "none",
	} {
		t.Run(strings.ReplaceAll(path, "\x00", "."), func(t *testing.T) {
			m := newModule()
			// The value becomes the reason of a denial; its address and size are where the host has written them.
			m.connection(m.text(path), Const(addrData), Const(addrSize), Call(fnGet), Set(1),
				Get(1), If(m.set("penstock\x00deny", "none"), Const(0), Return),
				m.text("penstock\x00tag\x00value"), Const(0), Load(addrData), Const(0), Load(addrSize), Call(fnSet), Drop, Const(0))
			a := ask(t, mustLoad(t, m.Bytes(), filter.Config{}), client(""))
			got := strings.TrimPrefix(a.Tags, "value=")
			if a.Verdict == filter.Deny {
				got = a.Reason
			}
			if want != strings.ReplaceAll(got, "\uFFFD", "\x00") && !strings.Contains(path, "port") || len(got) == 0 || a.Err != nil {
				t.Errorf("%q, want %q (%+v)", got, want, a)
			}
		})
	}
}

// TestLongHello: on_error decides about a client whose hello was not read, if the filter asks for its name or its protocols, and only then.
func TestLongHello(t *testing.T) {
	of := client("")
	of.ServerName, of.ALPN, of.Unread = "", nil, true
	for path, want := range map[string]filter.Verdict{
		"connection\x00requested_server_name": filter.Deny, "penstock\x00alpn": filter.Deny, "source\x00address": filter.Allow,
	} {
		m := newModule()
		m.connection(m.text(path), Const(addrData), Const(addrSize), Call(fnGet), Drop, Const(0))
		a := ask(t, mustLoad(t, m.Bytes(), filter.Config{OnError: filter.Deny}), of)
		if a.Verdict != want || (a.Err != nil) != (want == filter.Deny) {
			t.Errorf("%q: %+v, want %v", path, a, want)
		}
	}
}

// first is a filter that denies clients whose first byte is x, and wants two bytes.
func first() *module {
	m := newModule()
	return m.data(Get(1), Const(2), I32LessS, If(Const(1), Return),
		Const(1), Const(0), Const(2), Const(addrData), Const(addrSize), Call(fnBuffer), Drop,
		Const(0), Load(addrData), Load8(0), Const('x'), I32Equal, If(m.set("penstock\x00deny", "an x"), Const(0), Return), Const(0))
}

// TestFirstBytes: a filter that pauses gets more, until there is no more.
func TestFirstBytes(t *testing.T) {
	f := mustLoad(t, first().Bytes(), filter.Config{Preread: 2, OnError: filter.Deny})
	if f.Preread() != 2 {
		t.Error(f.Preread())
	}
	for b, want := range map[string]filter.Answer{
		"": {Verdict: filter.More}, "x": {Verdict: filter.More}, "xy": {Verdict: filter.Deny, Reason: "an x"}, "yx": {},
	} {
		if a := ask(t, f, client(b)); a != want {
			t.Errorf("%q: %+v, want %+v", b, a, want)
		}
	}
	ended := client("x")
	ended.Ended = true
	if a := ask(t, f, ended); !errors.Is(a.Err, filter.ErrAnswer) || a.Verdict != filter.Deny {
		t.Errorf("%+v", a)
	}
	if _, err := load(t, first().Bytes(), filter.Config{}); err == nil || !strings.Contains(err.Error(), "preread") {
		t.Errorf("without preread: %v", err)
	}
}

// TestHostile: whatever a module does, the client gets a verdict, it is counted, and the next one gets a new
// instance.
func TestHostile(t *testing.T) {
	recursive := func(m *module) *module {
		m.Func("", i32, i32, 0, Code(Get(0), Call(8), Const(1), I32Add))
		return m.connection(Get(0), Call(8))
	}
	for _, c := range []struct {
		name string
		make func(m *module) *module
		want filter.Failure
	}{
		{"loop", func(m *module) *module { return m.connection(Forever(), Const(0)) }, filter.FailedTimeout},
		{"trap", func(m *module) *module { return m.connection(Unreachable) }, filter.FailedTrap},
		{"memory", func(m *module) *module { return m.connection(Const(16), Grow(), Drop, Const(0)) }, filter.FailedMemory},
		{"recursion", recursive, filter.FailedStack},
		{"a loop in its end", func(m *module) *module {
			m.Func("proxy_on_delete", i32, "", 0, Forever())
			return m.connection(Const(0))
		}, filter.FailedTimeout},
		{"a loop in allocating", func(m *module) *module {
			n := &module{Module: Module{Pages: 1}, texts: addrText}
			n.Import("env", "proxy_get_property", i32+i32+i32+i32, i32)
			n.Func("proxy_abi_version_0_2_1", "", "", 0)
			n.Func("malloc", i32, i32, 0, Forever(), Const(0))
			return n.connection(n.text("source\x00address"), Const(0), Const(4), Call(0))
		}, filter.FailedTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines(t, func(t *testing.T, b wasm.Bounds) {
				timeout := time.Minute
				if c.want == filter.FailedTimeout {
					timeout = 50 * time.Millisecond
				}
				f := mustLoad(t, c.make(newModule()).Bytes(), filter.Config{Bounds: b, Timeout: timeout, OnError: filter.Deny})
				for range 2 {
					if a := ask(t, f, client("")); a.Verdict != filter.Deny || a.Err == nil || !strings.HasPrefix(a.Err.Error(), "filter test: ") {
						t.Errorf("%+v", a)
					}
				}
				n := f.Counts
				if calls, _ := n.Calls(); calls != 2 || n.Failures.Of(int(c.want)) != 2 || n.Verdicts.Of(int(filter.Deny)) != 2 {
					t.Errorf("%v, %v, want %v", n.Failures.ByReason(false), n.Verdicts.ByReason(false), c.want)
				}
			})
		})
	}
}

// TestDenialStays: a denial stays though the module fails after it, whatever on_error is. The failure is counted.
func TestDenialStays(t *testing.T) {
	for name, failure := range map[string][]byte{"trap": Code(Unreachable), "loop": Code(Forever(), Const(0)), "answer": Code(Const(7))} {
		m := newModule()
		m.connection(m.set("penstock\x00deny", "no"), failure)
		f := mustLoad(t, m.Bytes(), filter.Config{Timeout: 50 * time.Millisecond, OnError: filter.Allow})
		if a := ask(t, f, client("")); a.Verdict != filter.Deny || a.Reason != "no" || a.Err == nil {
			t.Errorf("%s: %+v", name, a)
		}
		if n := f.Counts.Verdicts; n.Of(int(filter.Deny)) != 1 || n.Of(int(filter.Allow)) != 0 {
			t.Errorf("%s: %v", name, n.ByReason(false))
		}
	}
}

// TestPointers: pointers and sizes beyond the memory are statuses, and no more.
func TestPointers(t *testing.T) {
	for _, at := range []int32{-1, -8, 1<<16 - 3, 1 << 16, 1<<31 - 1} {
		for _, size := range []int32{-1, 1 << 30, 1<<16 + 1} {
			m := newModule()
			m.connection(
				Const(2), Const(at), Const(size), Call(fnLog), Drop,
				Const(7), Const(0), Const(size), Const(at), Const(at), Call(fnBuffer), Drop,
				Const(size), Const(size), Const(at), Const(at), Const(size), Call(fnBuffer), Drop,
				Const(at), Const(size), Const(at), Const(size), Call(fnGet), Drop,
				Const(at), Const(size), Const(at), Const(size), Call(fnSet), Drop,
				m.text("source\x00address"), Const(at), Const(at), Call(fnGet), Drop,
				m.text("penstock\x00tag\x00a"), Const(at), Const(size), Call(fnSet), Drop,
				Const(at), Call(fnTime))
			if a := ask(t, mustLoad(t, m.Bytes(), filter.Config{OnError: filter.Deny}), client("")); !errors.Is(a.Err, filter.ErrAnswer) {
				t.Errorf("%d, %d: %+v", at, size, a) // the last status, invalid memory, is no action
			}
		}
	}
}

// TestLogIsBounded: in lines and in their sizes.
func TestLogIsBounded(t *testing.T) {
	var lines, longest atomic.Int64
	m := newModule()
	m.connection(Const(2), m.text(strings.Repeat("x", 600)), Call(fnLog), Drop, Const(0))
	f := mustLoad(t, m.Bytes(), filter.Config{Log: func(_ int, line string) {
		lines.Add(1)
		longest.Store(max(longest.Load(), int64(len(line))))
	}})
	for range 500 {
		ask(t, f, client(""))
	}
	logged, unlogged := f.Counts.Logged.Load(), f.Counts.Unlogged.Load()
	if logged != lines.Load() || logged+unlogged != 500 || unlogged == 0 || longest.Load() != 512+int64(len("…")) {
		t.Errorf("%d, %d, %d lines, %d bytes", logged, unlogged, lines.Load(), longest.Load())
	}
}

// TestRefusedModules: a module that is no filter is refused when it is loaded.
func TestRefusedModules(t *testing.T) {
	noVersion := &Module{Pages: 1}
	noVersion.Func("proxy_on_new_connection", i32, i32, 0, Const(0))
	otherType := newModule()
	otherType.Func("proxy_on_new_connection", i32+i32, i32, 0, Const(0))
	unknown := &Module{Pages: 1}
	unknown.Import("env", "proxy_http_call", i32, i32)
	for _, c := range []struct {
		name, text string
		code       []byte
	}{
		{"no version", "proxy_abi_version_0_2_1", noVersion.Bytes()},
		{"nothing that decides", "so it cannot decide", newModule().Bytes()},
		{"another type", "proxy_on_new_connection has other parameters", otherType.Bytes()},
		{"an unknown import", "env.proxy_http_call", unknown.Bytes()},
		{"a text", "does not begin", []byte("#!/bin/sh")},
		{"a configuration that it does not accept", "returned false", func() []byte {
			m := newModule().connection(Const(0))
			m.Func("proxy_on_configure", i32+i32, i32, 0, Const(0))
			return m.Bytes()
		}()},
		{"a start that loops", "the module did not start within 50ms", func() []byte {
			m := newModule().connection(Const(0))
			m.Func("proxy_on_vm_start", i32+i32, i32, 0, Forever(), Const(1))
			return m.Bytes()
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := condition.Patience
			if strings.HasSuffix(c.text, "50ms") {
				start = 50 * time.Millisecond
			}
			f, err := load(t, c.code, filter.Config{Bounds: wasm.Bounds{Start: start}})
			if err == nil {
				f.Retire()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %q", err, c.text)
			}
		})
	}
}

// TestStartHasOneTime: all steps of an instance's start share its time.
func TestStartHasOneTime(t *testing.T) {
	m := newModule().connection(Const(0))
	slow := Code(Const(2), m.text("slow"), Call(fnLog), Drop)
	m.Func("_initialize", "", "", 0, slow)
	m.Func("proxy_on_vm_start", i32+i32, i32, 0, slow, Const(1))
	f, err := load(t, m.Bytes(), filter.Config{
		Bounds: wasm.Bounds{Start: time.Second},
		Log:    func(int, string) { time.Sleep(600 * time.Millisecond) },
	})
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, wasm.ErrTimeout) {
		t.Errorf("%v, want %v", err, wasm.ErrTimeout)
	}
}

// TestConfiguration: the module gets its text.
func TestConfiguration(t *testing.T) {
	m := newModule().connection(Const(0))
	m.Func("proxy_on_configure", i32+i32, i32, 0, Code(
		Const(7), Const(0), Get(1), Const(addrData), Const(addrSize), Call(fnBuffer), Drop,
		Const(0), Load(addrData), Load8(1), Const('b'), I32Equal))
	if _, err := load(t, m.Bytes(), filter.Config{Config: "xxx"}); err == nil {
		t.Error("accepted")
	}
	mustLoad(t, m.Bytes(), filter.Config{Config: "abc"})
}

// TestConfigurationOfConnections: the module gets its text when it is asked about a client, too, as the filter in docs/filters.md does.
func TestConfigurationOfConnections(t *testing.T) {
	m := newModule()
	m.connection(Const(7), Const(0), Const(100), Const(addrData), Const(addrSize), Call(fnBuffer), Drop,
		m.text("penstock\x00tag\x00config"), Const(0), Load(addrData), Const(0), Load(addrSize), Call(fnSet), Drop, Const(0))
	f := mustLoad(t, m.Bytes(), filter.Config{Config: "abc"})
	if got := ask(t, f, client("a")); got.Tags != "config=abc" {
		t.Errorf("answered %+v", got)
	}
}

// TestClientsWaitInOrder: one instance answers one client after the other, canceled ones are passed over, and
// late ones are answered after Retire.
func TestClientsWaitInOrder(t *testing.T) {
	m := newModule().connection(Const(0))
	f := mustLoad(t, m.Bytes(), filter.Config{Instances: 1})
	const clients = 200
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for n := range clients {
		c := &filter.Call{Of: client(fmt.Sprint(n))}
		if n%10 == 9 {
			c.Cancel()
		} else {
			wg.Add(1)
		}
		f.Ask(c, func() {
			mu.Lock()
			order = append(order, n)
			mu.Unlock()
			wg.Done()
		})
		if n == clients/2 {
			f.Retire()
		}
	}
	wg.Wait()
	if len(order) != clients*9/10 {
		t.Fatalf("%d answers", len(order))
	}
	for i := range order[1:] {
		if order[i] >= order[i+1] {
			t.Fatal("not in order: ", order)
		}
	}
}

// TestTooManyWait: clients beyond the bound are not asked about, and counted.
func TestTooManyWait(t *testing.T) {
	f := mustLoad(t, newModule().connection(Forever(), Const(0)).data(Const(0)).Bytes(), filter.Config{Timeout: 100 * time.Millisecond, Preread: filter.MaxPreread})
	var asked []*filter.Call
	for range 16<<20/filter.MaxPreread + 1 + 1 { // the first one does not wait, unless it has not begun yet
		c := &filter.Call{Of: client("")}
		if !f.Ask(c, func() {}) {
			break
		}
		asked = append(asked, c)
	}
	if n := f.Counts.Verdicts; n.Of(int(filter.Overload)) != 1 {
		t.Errorf("%d were asked, %v", len(asked), n.ByReason(false))
	}
	for _, c := range asked[1:] {
		c.Cancel()
	}
}

// TestCloseEndsRests: Close has the goroutines end that rest after a failure, and waits for them.
func TestCloseEndsRests(t *testing.T) {
	before := goleak.IgnoreCurrent()
	f := mustLoad(t, newModule().connection(Forever(), Const(0)).Bytes(), filter.Config{Timeout: 500 * time.Millisecond}) // a rest of 2 s
	if a := ask(t, f, client("")); a.Err == nil {
		t.Fatalf("%+v", a)
	}
	f.Close()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// TestCompiledMeanwhile: a large module answers before it is compiled, and its filter goes on compiled; one that
// is retired before that is not.
func TestCompiledMeanwhile(t *testing.T) {
	release := filter.HoldCompiler()
	m := newModule().connection(Const(0))
	m.Pages = 3
	m.Data(8192, strings.Repeat("x", 70<<10))
	f := mustLoad(t, m.Bytes(), filter.Config{Soon: true, Bounds: wasm.Bounds{Memory: 1 << 20}})
	retired := mustLoad(t, m.Bytes(), filter.Config{Soon: true, Bounds: wasm.Bounds{Memory: 1 << 20}})
	retired.Close()
	if a := ask(t, f, client("")); a.Err != nil || f.Engine() != wasm.Interpreter {
		t.Errorf("%+v by the %s", a, f.Engine())
	}
	release()
	if !wasm.MayCompile(wasm.Bounds{}) {
		return
	}
	condition.Await(t, "it is compiled", func() bool { return f.Engine() == wasm.Compiler })
	if a := ask(t, f, client("")); a.Err != nil || retired.Engine() != wasm.Interpreter {
		t.Errorf("%+v, %s", a, retired.Engine())
	}
	calls, _ := f.Counts.Calls()
	if _, _, idle := f.Sizes(); calls != 2 || idle != 1 {
		t.Errorf("%d calls, %d idle", calls, idle)
	}
}

// FuzzHost: whatever pointers a module passes, the host survives, and the module has an answer or an error.
func FuzzHost(f *testing.F) {
	f.Add(int32(-1), int32(1), int32(-4), int32(70000), int32(7))
	f.Add(int32(addrText), int32(14), int32(addrData), int32(addrSize), int32(1))
	f.Fuzz(func(t *testing.T, a, b, c, d, e int32) {
		m := newModule()
		m.Data(addrText, "source\x00address")
		m.connection(
			Const(a), Const(b), Const(c), Call(fnLog), Drop,
			Const(a), Const(b), Const(c), Const(d), Const(e), Call(fnBuffer), Drop,
			Const(e), Const(0), Const(c), Const(d), Const(a), Call(fnBuffer), Drop,
			Const(a), Const(b), Const(c), Const(d), Call(fnGet), Drop,
			Const(addrText), Const(14), Const(a), Const(b), Call(fnGet), Drop,
			Const(a), Const(b), Const(c), Const(d), Call(fnSet), Drop,
			Const(a), Call(fnTime), Drop, Const(b), Call(fnClose), Drop, Const(0))
		fl, err := load(t, m.Bytes(), filter.Config{OnError: filter.Deny, Bounds: wasm.Bounds{Interpret: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer fl.Retire()
		ask(t, fl, client("first bytes"))
	})
}
