package filter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/internal/filter"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// fnSetBuffer follows the functions that every module imports.
const fnSetBuffer = fnTime + 1

// newStream is a module that rewrites the bytes of clients, with the code of its data function: get is the buffer, which is at
// addrHeap then.
func newStream(code ...any) *module {
	m := &module{Module: Module{Pages: 1}, texts: addrText}
	m.imports()
	m.Import("env", "proxy_set_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(addrHeap))
	if len(code) > 0 {
		m.data(code...)
	}
	return m
}

// get is code that has the buffer copied to addrHeap; local 1 is its size, 2 whether it is the end.
func get() []byte {
	return Code(Const(1), Const(0), Get(1), Const(addrData), Const(addrSize), Call(fnBuffer), Drop)
}

// put is code that puts n bytes at an address in place of the buffer.
func put(at, n []byte) []byte {
	return Code(Const(1), Const(0), Get(1), at, n, Call(fnSetBuffer), Drop)
}

// hold is code that holds bytes back, by a number as text.
func (m *module) hold(n string) []byte { return m.set("penstock\x00hold", n) }

func mustRewrite(t testing.TB, code []byte, cfg filter.RewriterConfig) *filter.Rewriter {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	r, err := filter.NewRewriter(t.Context(), code, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// A flow is a stream as its session has it.
type flow struct {
	t     testing.TB
	s     *filter.Stream
	woken chan struct{}
	out   []byte
	err   error
}

func newFlow(t testing.TB, r *filter.Rewriter) *flow {
	of := client("")
	f := &flow{t: t, s: r.NewStream(&of), woken: make(chan struct{}, 1)}
	f.s.Begin(func() {
		select {
		case f.woken <- struct{}{}:
		default: // one of before has not been waited for
		}
	})
	return f
}

// put passes bytes, in as many pieces as it takes, and takes those that they have become. Empty: nothing comes for a while.
func (f *flow) put(text string) *flow {
	for {
		n := min(len(text), f.s.Most())
		f.s.Put([]byte(text[:n]))
		f.take()
		if text = text[n:]; text == "" || f.err != nil {
			return f
		}
	}
}

func (f *flow) take() {
	var b [1000]byte
	for {
		n, busy, err := f.s.Take(b[:])
		f.out = append(f.out, b[:n]...)
		switch {
		case err != nil:
			f.err = err
			return
		case busy:
			<-f.woken
		case n == 0:
			return
		}
	}
}

func (f *flow) end() string {
	if f.err == nil {
		f.s.End()
		f.take()
	}
	f.s.Close()
	return string(f.out)
}

// TestStream: bytes go on as the module has changed them, or are held back by it, in whole or in part, until more come, or nothing
// comes for a while, or the end.
func TestStream(t *testing.T) {
	partly := newStream()
	partly.data(Get(2), Code(byte(I32Eqz)), If(partly.hold("1")), Const(0))
	for name, c := range map[string]struct {
		module *module
		puts   []string
		want   []string // after each
		end    string
	}{
		"as it is":         {newStream(Const(0)), []string{"ab", "c"}, []string{"ab", "abc"}, "abc"},
		"nothing comes":    {newStream(Const(0)), nil, nil, ""},
		"longer":           {newStream(get(), Const(1), Get(1), Const(0), Const(addrHeap), Get(1), Call(fnSetBuffer), Drop, Const(0)), []string{"ab", "c"}, []string{"abab", "ababcc"}, "ababcc"},
		"shorter":          {newStream(put(Const(0), Const(0)), Const(0)), []string{"ab", "c"}, []string{"", ""}, ""},
		"paused":           {newStream(Get(1), Const(4), I32LessS, Get(2), Code(byte(I32Eqz)), Code(byte(0x71))), []string{"ab", "", "cd", "e"}, []string{"", "", "abcd", "abcd"}, "abcde"},
		"held back":        {partly, []string{"ab", "cd"}, []string{"a", "abc"}, "abcd"},
		"a start and more": {newStream(get(), Const(1), Const(0), Const(1), Const(addrHeap+1), Const(1), Call(fnSetBuffer), Drop, Const(0)), []string{"abc"}, []string{"bbc"}, "bbcb"},
		"added at the end": {newStream(Get(2), If(Const(1), Const(-1), Const(-1), Const(addrHeap), Const(2), Call(fnSetBuffer), Drop), Const(0)), []string{"ab"}, []string{"ab"}, "ab\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, b wasm.Bounds) {
				counts := filter.NewStreamLedger()
				f := newFlow(t, mustRewrite(t, c.module.Bytes(), filter.RewriterConfig{Config: filter.Config{Bounds: b, Counts: counts}}))
				in := 0
				for i, text := range c.puts {
					if f.put(text); string(f.out) != c.want[i] {
						t.Errorf("after %q it is %q, want %q", text, f.out, c.want[i])
					}
					in += len(text)
				}
				if got := f.end(); got != c.end || f.err != nil {
					t.Errorf("%q, %v, want %q", got, f.err, c.end)
				}
				calls, _ := counts.Calls()
				if counts.In.Load() != int64(in) || counts.Out.Load() != int64(len(c.end)) || calls != int64(len(c.puts)+1) {
					t.Errorf("%d in, %d out, %d calls", counts.In.Load(), counts.Out.Load(), calls)
				}
			})
		})
	}
}

// TestUpstreamData: the bytes of endpoints are another buffer, by another function.
func TestUpstreamData(t *testing.T) {
	m := newStream()
	text := m.text("!")
	m.Func("proxy_on_upstream_data", i32+i32+i32, i32, 0, Code(
		Const(1), Const(0), Const(0), text, Call(fnSetBuffer), Drop, // which is the other direction's
		Const(2), Const(0), Const(0), text, Call(fnSetBuffer), Drop, Const(0)))
	f := newFlow(t, mustRewrite(t, m.Bytes(), filter.RewriterConfig{FromServer: true}))
	if got := f.put("a").end(); got != "!a!" || f.err != nil {
		t.Errorf("%q, %v", got, f.err)
	}
	_, err := filter.NewRewriter(t.Context(), m.Bytes(), filter.RewriterConfig{})
	if err == nil || !strings.Contains(err.Error(), "exports no proxy_on_downstream_data") {
		t.Errorf("%v", err)
	}
}

// TestStreamsShareNothing: no stream sees anything of another one: not its bytes, and no state of its instance, though the
// other one is over, or has failed. Instances are not used again.
func TestStreamsShareNothing(t *testing.T) {
	const kept = 512
	m := newStream()
	n := m.Global('A')
	// It adds the byte that it has kept, and that of a global, then keeps the first of these bytes in both.
	m.data(get(),
		Const(addrHeap+100), GetGlobal(n), Store(0), Const(addrHeap+101), Const(kept), Load8(0), Store(0),
		Const(kept), Const(addrHeap), Load8(0), Store(0), Const(addrHeap), Load8(0), SetGlobal(n),
		put(Const(addrHeap+100), Const(2)),
		Const(addrHeap), Load8(0), Const('!'), I32Equal, If(Unreachable), Const(0))
	m.Data(kept, "B")
	engines(t, func(t *testing.T, b wasm.Bounds) {
		r := mustRewrite(t, m.Bytes(), filter.RewriterConfig{Config: filter.Config{Bounds: b}})
		for i := range 5 {
			other := newFlow(t, r)
			f := newFlow(t, r)
			other.put("secret")
			if f.put("x").put("y"); string(f.out) != "ABxx" {
				t.Errorf("stream %d: %q", i, f.out)
			}
			if other.put("!"); other.err == nil {
				t.Error("it has not failed")
			}
			other.end()
			f.s.Close()
		}
	})
}

// TestStreamHostile: whatever a module does, its stream ends, or goes on as it came, and it is counted by reason; the next one has a
// new instance. Nothing that the module has made of the bytes of the failed call goes on.
func TestStreamHostile(t *testing.T) {
	bad := put(Const(addrText), Const(3)) // which the module puts in place of the bytes first
	m := func(code ...any) *module { return newStream(append([]any{bad}, code...)...) }
	allocates := newStream()
	allocates.data(bad, Const(1<<16-2), get(), Drop, Const(0))
	recursive := newStream(bad, Get(0), Call(fnSetBuffer+4))
	recursive.Func("", i32, i32, 0, Code(Get(0), Call(fnSetBuffer+4), Const(1), I32Add))
	deny, deny2, absurd, unknown := newStream(), newStream(), newStream(), newStream()
	deny.data(bad, deny.set("penstock\x00deny", "no cards"), Unreachable)
	deny2.data(bad, Const(3), Call(fnClose), Drop, Const(0))
	absurd.data(absurd.hold("2147483647"), Const(0))
	unknown.data(bad, unknown.set("penstock\x00route", "b"), Const(0))
	grows := newStream(bad, Const(16), Grow(), Drop, Const(0))
	for name, c := range map[string]struct {
		module *module
		want   filter.Failure
	}{
		"loops":               {m(Forever(), Const(0)), filter.FailedTimeout},
		"traps":               {m(Unreachable), filter.FailedTrap},
		"grows":               {grows, filter.FailedMemory},
		"recurses":            {recursive, filter.FailedStack},
		"no action":           {m(Const(7)), filter.FailedAnswer},
		"an absurd size":      {m(Const(1), Const(0), Const(0), Const(0), Const(1<<16), Call(fnSetBuffer), Drop, Const(0)), filter.FailedBuffer},
		"doubles":             {newStream(get(), Const(1), Const(0), Const(0), Const(addrHeap), Const(50_000), Call(fnSetBuffer), Drop, Const(0)), filter.FailedBuffer},
		"never emits":         {newStream(Const(1)), filter.FailedBuffer},
		"pauses at the end":   {newStream(Get(2)), filter.FailedAnswer},
		"no property":         {unknown, filter.FailedAnswer},
		"denies":              {deny, filter.FailedDenied},
		"closes":              {deny2, filter.FailedDenied},
		"holds back too much": {absurd, filter.FailedBuffer},
	} {
		for _, pass := range []bool{false, true} {
			t.Run(fmt.Sprint(name, pass), func(t *testing.T) {
				cfg := filter.RewriterConfig{Config: filter.Config{Counts: filter.NewStreamLedger(), Timeout: time.Minute}, Pass: pass, Buffer: 60_000}
				if c.want == filter.FailedTimeout {
					cfg.Timeout = 30 * time.Millisecond
				}
				r := mustRewrite(t, c.module.Bytes(), cfg)
				sent := strings.Repeat("0123456789abcdef", 5000)
				for range 2 {
					f := newFlow(t, r)
					got := f.put(sent).put("more").end()
					through := pass && c.want != filter.FailedDenied
					want := ""
					if through || name == "pauses at the end" {
						want = sent + "more"
					}
					if got != want || f.err != nil == through || !through && !strings.HasPrefix(f.err.Error(), "module test: ") {
						t.Errorf("%d bytes went on, which are %.60q, and not %d; %v", len(got), got, len(want), f.err)
					}
				}
				passed := cfg.Counts.Passed.Of(int(c.want))
				if by := cfg.Counts.Failures.Of(int(c.want)) + passed; by != 2 || pass && c.want != filter.FailedDenied && passed != 2 {
					t.Errorf("%v, want %v", cfg.Counts.Failures.ByReason(false), c.want)
				}
				waitFor(t, func() bool { return r.Streams() == 0 })
			})
		}
	}
}

// waitFor waits for a condition that another goroutine makes true.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	condition.Await(t, "what it waits for happens", ok)
}

// TestStreamPointers: pointers and sizes beyond the memory are statuses, and change nothing.
func TestStreamPointers(t *testing.T) {
	for _, at := range []int32{-1, -8, 1<<16 - 1, 1<<31 - 1} {
		for _, size := range []int32{-1, 1 << 30, 1<<16 + 1} {
			m := newStream(
				Const(1), Const(0), Const(size), Const(at), Const(size), Call(fnSetBuffer), Drop,
				Const(at), Const(at), Const(size), Const(at), Const(size), Call(fnSetBuffer), Drop,
				Const(1), Const(at), Const(size), Const(0), Const(0), Call(fnSetBuffer), Drop,
				Const(1), Const(0), Const(size), Const(at), Const(at), Call(fnBuffer), Drop, Const(0))
			f := newFlow(t, mustRewrite(t, m.Bytes(), filter.RewriterConfig{Config: filter.Config{Bounds: wasm.Bounds{Interpret: true}}}))
			if got := f.put("abc").end(); f.err != nil || got != "abc" {
				t.Errorf("%d, %d: %q, %v", at, size, got, f.err)
			}
		}
	}
}

// TestStreamsAreBounded: a stream beyond their number ends, whatever Pass is, and one that comes after another's end does not.
func TestStreamsAreBounded(t *testing.T) {
	counts := filter.NewStreamLedger()
	r := mustRewrite(t, newStream(Const(0)).Bytes(), filter.RewriterConfig{Config: filter.Config{Instances: 2, Counts: counts}, Pass: true})
	a, b, c := newFlow(t, r).put("a"), newFlow(t, r).put("b"), newFlow(t, r).put("c")
	if a.err != nil || b.err != nil || !errors.Is(c.err, wasm.ErrBusy) {
		t.Errorf("%v, %v, %v", a.err, b.err, c.err)
	}
	c.end()
	a.end()
	waitFor(t, func() bool { return r.Streams() == 1 })
	if d := newFlow(t, r).put("d"); d.end() != "d" {
		t.Error(d.err)
	}
	b.end()
	if n := counts.Failures; n.Of(int(filter.FailedOverload)) != 1 {
		t.Errorf("%v", n.ByReason(false))
	}
}

// TestEncrypted: a stream in which TLS or SSH begins ends, however it is cut, whatever Pass is, and is counted.
func TestEncrypted(t *testing.T) {
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	counts := filter.NewStreamLedger()
	r := mustRewrite(t, newStream(Const(0)).Bytes(), filter.RewriterConfig{Config: filter.Config{Counts: counts}, Pass: true})
	want := int64(0)
	for _, c := range []struct {
		in        string
		encrypted bool
	}{
		{hello, true},
		{"\x16\x03\x03\x00\x7a\x02\x00\x00\x76", true},
		{"S\x16\x03\x03\x00\x7a\x02\x00\x00\x76", true},
		{"220 ready to start TLS\r\n\x16\x16\x03\x03\x00\x7a\x02\x00\x00\x76", true},
		{"\x00\x00\x00\x08\x04\xd2\x16\x2f" + hello, true},
		{"\x16\x03\x01" + hello, true},
		{"\x16\x03\x01\x16" + hello, true},
		{"SSH-2.0-OpenSSH_9.9\r\n", true},
		{"see SSH-2.0 \x16\x03 \x16\x03\x01\x02\x00\x07\x00", false},
		{strings.Repeat("x", 16<<10) + hello, false},
	} {
		for _, size := range []int{1, 3, len(c.in)} {
			if len(c.in) > 1000 {
				size = max(size, 500)
			}
			f := newFlow(t, r)
			for rest := c.in; rest != "" && f.err == nil; rest = rest[min(size, len(rest)):] {
				f.put(rest[:min(size, len(rest))])
			}
			if f.end(); c.encrypted {
				want++
			}
			if errors.Is(f.err, filter.ErrEncrypted) != c.encrypted || !c.encrypted && (f.err != nil || string(f.out) != c.in) {
				t.Errorf("%.40q in pieces of %d: %v", c.in, size, f.err)
			}
		}
	}
	if n := counts.Failures; n.Of(int(filter.FailedEncrypted)) != want {
		t.Errorf("%v, want %d", n.ByReason(false), want)
	}
}

// TestStreamsWorkInTurns: streams whose module loops do not keep another one of the same goroutine from its turn for longer
// than their timeouts. A stream may be closed while its module works.
func TestStreamsWorkInTurns(t *testing.T) {
	m := newStream(get(), Const(addrHeap), Load8(0), Const('l'), I32Equal, If(Forever()), Const(0))
	counts := filter.NewStreamLedger()
	r := mustRewrite(t, m.Bytes(), filter.RewriterConfig{Config: filter.Config{Counts: counts, Timeout: 30 * time.Millisecond}})
	var looping []*flow
	for range 3 {
		f := newFlow(t, r)
		f.s.Put([]byte("l"))
		looping = append(looping, f)
	}
	if f := newFlow(t, r).put("a"); f.end() != "a" {
		t.Errorf("%v", f.err)
	}
	if n := counts.Failures; n.Of(int(filter.FailedTimeout)) != 3 {
		t.Errorf("%v", n.ByReason(false))
	}
	for _, f := range looping {
		f.s.Close()
	}
	f := newFlow(t, r)
	f.s.Put([]byte("l"))
	f.s.Close()
	waitFor(t, func() bool { return r.Streams() == 0 })
	select {
	case <-f.woken:
		t.Error("woken after its end")
	default:
	}
}

// TestStreamContext: a stream's context is made before its bytes and ended after them, and its properties are those of its client.
func TestStreamContext(t *testing.T) {
	var lines []string
	m := newStream()
	log := func(s string) []byte { return Code(Const(2), m.text(s), Call(fnLog), Drop) }
	m.Func("proxy_on_context_create", i32+i32, "", 0, Get(1), If(log("create")))
	m.Func("proxy_on_new_connection", i32, i32, 0, log("new"), Const(0))
	m.Func("proxy_on_done", i32, i32, 0, log("done"), Const(1))
	m.Func("proxy_on_delete", i32, "", 0, log("delete"))
	m.data(m.text("source\x00address"), Const(addrData), Const(addrSize), Call(fnGet), Drop,
		Const(2), Const(addrData), Load(0), Const(addrSize), Load(0), Call(fnLog), Drop, Const(0))
	r := mustRewrite(t, m.Bytes(), filter.RewriterConfig{Config: filter.Config{Log: func(_ int, s string) { lines = append(lines, s) }}})
	newFlow(t, r).put("a").end()
	waitFor(t, func() bool { return r.Streams() == 0 })
	if got, want := strings.Join(lines, " "), "create new 192.0.2.7:1234 192.0.2.7:1234 done delete"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzStream: whatever functions of the host a module calls, with whatever arguments, its stream ends or goes on.
func FuzzStream(f *testing.F) {
	f.Add(int32(1), int32(0), int32(10), int32(addrHeap), int32(20), "abc", false)
	f.Add(int32(1), int32(-1), int32(-1), int32(addrHeap), int32(1<<16), "abc", true)
	f.Fuzz(func(t *testing.T, kind, start, size, at, n int32, text string, pass bool) {
		m := newStream(get(),
			Const(kind), Const(start), Const(size), Const(at), Const(n), Call(fnSetBuffer), Drop,
			Const(kind), Const(start), Const(size), Const(addrData), Const(addrSize), Call(fnBuffer), Drop, Const(0))
		r, err := filter.NewRewriter(context.Background(), m.Bytes(), filter.RewriterConfig{Config: filter.Config{Name: "fuzz", Timeout: time.Minute, Bounds: wasm.Bounds{Interpret: true, Start: time.Minute}}, Buffer: 1024, Pass: pass})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		fl := newFlow(t, r)
		got := fl.put(text[:len(text)/2]).put(text[len(text)/2:]).end()
		if most := 3*1024 + len(text); len(got) > most {
			t.Errorf("%d bytes", len(got))
		}
	})
}
