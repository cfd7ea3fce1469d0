package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/penstock/penstock/internal/feature"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

const i32 = string(I32)

func engines(t *testing.T, f func(t *testing.T, b wasm.Bounds)) {
	t.Run(wasm.Interpreter, func(t *testing.T) { f(t, wasm.Bounds{Interpret: true}) })
	t.Run(wasm.Compiler, func(t *testing.T) {
		if err := feature.ExecutableMemory(); err != nil {
			t.Skip(err)
		}
		f(t, wasm.Bounds{})
	})
}

func compile(t *testing.T, m *Module, host wasm.Host, b wasm.Bounds) *wasm.Module {
	t.Helper()
	c, err := wasm.Compile(t.Context(), m.Bytes(), host, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func instantiate(t *testing.T, m *Module, host wasm.Host, b wasm.Bounds) *wasm.Instance {
	t.Helper()
	i, err := compile(t, m, host, b).Instantiate(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// TestCallsAndResults: instrumented functions do what the module's own do: with several parameters, by a
// table, recursively.
func TestCallsAndResults(t *testing.T) {
	engines(t, func(t *testing.T, b wasm.Bounds) {
		m := &Module{Pages: 1}
		m.Func("sub", i32+i32, i32, 0, Code(Get(0), Get(1), I32Sub))
		m.Func("fib", i32, i32, 0, Code(Get(0), Const(2), I32LessS, IfInt(Get(0), Code(
			Get(0), Const(1), I32Sub, Call(1), Get(0), Const(2), I32Sub, Call(1), I32Add))))
		g := m.Global(7)
		m.Func("count", "", i32, 0, Code(GetGlobal(g), Const(1), I32Add, SetGlobal(g), GetGlobal(g)))
		i := instantiate(t, m, nil, b)
		i.Begin(10 * time.Second)
		for _, c := range []struct {
			name   string
			params []uint64
			want   uint64
		}{{"sub", []uint64{50, 8}, 42}, {"fib", []uint64{15}, 610}, {"count", nil, 8}, {"count", nil, 9}} {
			got, err := i.Call(i.Function(c.name), c.params...)
			if err != nil || got != c.want {
				t.Errorf("%s%v: %d, %v, want %d", c.name, c.params, got, err, c.want)
			}
		}
		if err := i.End(); err != nil {
			t.Error(err)
		}
	})
}

// TestBounds: each way to exceed a bound has its own error, in bounded time.
func TestBounds(t *testing.T) {
	fib := Code(Get(0), Const(2), I32LessS, IfInt(Get(0), Code(
		Get(0), Const(1), I32Sub, Call(0), Get(0), Const(2), I32Sub, Call(0), I32Add)))
	for _, c := range []struct {
		name   string
		want   error
		locals uint32
		code   []byte
	}{
		{"loop", wasm.ErrTimeout, 0, Code(Forever(), Const(0))},
		{"recursion without a loop", wasm.ErrTimeout, 0, fib},
		{"deep recursion", wasm.ErrStack, 0, Code(Get(0), Call(0), Const(1), I32Add)},
		{"deep recursion with locals", wasm.ErrStack, 4000, Code(Get(0), Call(0), Const(1), I32Add)},
		{"unreachable", wasm.ErrTrap, 0, Code(Unreachable)},
		{"division by zero", wasm.ErrTrap, 0, Code(Const(1), Const(0), I32DivS)},
		{"address", wasm.ErrTrap, 0, Code(Const(-8), Load(0))},
		{"memory", wasm.ErrMemory, 0, Code(Const(16), Grow())},
		{"memory of 4 GiB", wasm.ErrMemory, 0, Code(Const(65535), Grow())},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines(t, func(t *testing.T, b wasm.Bounds) {
				m := &Module{Pages: 1}
				m.Func("run", i32, i32, c.locals, c.code)
				i := instantiate(t, m, nil, b)
				timeout := time.Minute
				if c.want == wasm.ErrTimeout {
					timeout = 200 * time.Millisecond
				}
				i.Begin(timeout)
				_, err := i.Call(i.Function("run"), 100)
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if _, err := i.Call(i.Function("run"), 1); !errors.Is(err, wasm.ErrClosed) || !i.Failed() {
					t.Errorf("after an error: %v", err)
				}
			})
		})
	}
}

// TestCollectorWaitsForNoModule: a module that loops leaves its code again and again, so that a collection of garbage, which stops all
// goroutines, need not wait for its deadline. A module without a memory does, too.
func TestCollectorWaitsForNoModule(t *testing.T) {
	for _, pages := range []uint32{0, 1} {
		engines(t, func(t *testing.T, b wasm.Bounds) {
			m := &Module{Pages: pages}
			m.Func("run", "", "", 0, Forever())
			i := instantiate(t, m, nil, b)
			i.Begin(10 * time.Minute)
			ended := make(chan error, 1)
			go func() {
				_, err := i.Call(i.Function("run"))
				ended <- err
			}()
			for range 10 {
				runtime.GC()
			}
			i.Begin(time.Millisecond)
			if err := <-ended; !errors.Is(err, wasm.ErrTimeout) {
				t.Errorf("%v, want %v", err, wasm.ErrTimeout)
			}
		})
	}
}

// TestMemoryMayGrow: up to its bound, and no further.
func TestMemoryMayGrow(t *testing.T) {
	engines(t, func(t *testing.T, b wasm.Bounds) {
		m := &Module{Pages: 1}
		m.Func("grow", i32, i32, 0, Code(Get(0), Grow()))
		m.Func("store", i32, i32, 0, Code(Get(0), Const(5), Store(0), Get(0), Load(0)))
		i := instantiate(t, m, nil, b)
		i.Begin(10 * time.Second)
		for page := range uint64(15) {
			if was, err := i.Call(i.Function("grow"), 1); err != nil || was != page+1 {
				t.Fatalf("grow: %d, %v", was, err)
			}
		}
		if i.Memory() != wasm.DefaultMemory {
			t.Errorf("%d bytes", i.Memory())
		}
		if v, err := i.Call(i.Function("store"), wasm.DefaultMemory-4); err != nil || v != 5 {
			t.Errorf("%d, %v", v, err)
		}
		if _, ok := i.Bytes(wasm.DefaultMemory-4, 4); !ok {
			t.Error("the last bytes are not there")
		}
		for _, at := range [][2]uint32{{wasm.DefaultMemory - 4, 5}, {1<<32 - 1, 1<<32 - 1}, {wasm.DefaultMemory + 1, 0}} {
			if _, ok := i.Bytes(at[0], at[1]); ok {
				t.Errorf("bytes beyond the memory: %v", at)
			}
		}
	})
}

// TestStartIsBounded: a start function, or _initialize, that does not end is no instance.
func TestStartIsBounded(t *testing.T) {
	engines(t, func(t *testing.T, b wasm.Bounds) {
		b.Start = 50 * time.Millisecond
		loops := &Module{Pages: 1}
		loops.Start(loops.Func("", "", "", 0, Forever()))
		initialize := &Module{Pages: 1}
		initialize.Func("_initialize", "", "", 0, Forever())
		traps := &Module{Pages: 1}
		traps.Start(traps.Func("", "", "", 0, []byte{Unreachable}))
		for _, c := range []struct {
			m    *Module
			want error
		}{{loops, wasm.ErrTimeout}, {initialize, wasm.ErrTimeout}, {traps, wasm.ErrTrap}} {
			if i, err := compile(t, c.m, nil, b).Instantiate(nil, nil); !errors.Is(err, c.want) {
				t.Errorf("%v, %v, want %v", i, err, c.want)
			}
		}
	})
}

// TestCallsOfTheHostAreBounded: a module that calls the host in a loop ends soon after its deadline, however long a call takes, and
// also if it calls by a table.
func TestCallsOfTheHostAreBounded(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, b wasm.Bounds) {
		for _, name := range []string{"call", "call_indirect"} {
			calls := 0
			host := wasm.Host{"env": {{Name: "f", Call: func(*wasm.Instance, []uint64) {
				calls++
				time.Sleep(time.Millisecond)
			}}}}
			m := &Module{Pages: 1, Table: 1}
			f := m.Import("env", "f", "", "")
			call := Call(f)
			if name == "call_indirect" {
				m.Element(0, f)
				call = Code(Const(0), m.CallIndirect(f))
			}
			m.Func("run", "", "", 0, While(call, Const(1)))
			i := instantiate(t, m, host, b)
			i.Begin(time.Millisecond)
			if _, err := i.Call(i.Function("run")); !errors.Is(err, wasm.ErrTimeout) || calls > 1000 {
				t.Errorf("%s: %d calls, %v", name, calls, err)
			}
		}
	})
}

// TestStraightLineIsBounded: between two instructions that take long, without a loop, the deadline ends a module.
func TestStraightLineIsBounded(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, b wasm.Bounds) {
		b.Memory = 16 << 20
		for _, name := range []string{"memory.fill", "call"} {
			ended := false
			host := wasm.Host{"env": {
				{Name: "sleep", Call: func(*wasm.Instance, []uint64) { time.Sleep(time.Millisecond) }},
				{Name: "end", Call: func(*wasm.Instance, []uint64) { ended = true }},
			}}
			m := &Module{Pages: 256}
			step, end := Call(m.Import("env", "sleep", "", "")), m.Import("env", "end", "", "")
			if name == "memory.fill" {
				step = Code(Const(0), Const(1), Const(16<<20), []byte{0xfc, 11, 0})
			}
			m.Func("run", "", "", 0, bytes.Repeat(step, 2000), Call(end))
			i := instantiate(t, m, host, b)
			i.Begin(time.Millisecond)
			if _, err := i.Call(i.Function("run")); !errors.Is(err, wasm.ErrTimeout) || ended {
				t.Errorf("%s: %v, to its end: %v", name, err, ended)
			}
		}
	})
}

// A slow writer takes a while for each piece, and counts the bytes.
type slow int

func (w *slow) Write(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	*w += slow(len(b))
	return len(b), nil
}

// TestOutputIsBounded: no more of a module's output is passed on after its deadline, even if it writes all of it at once.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, b wasm.Bounds) {
		m := &Module{Pages: 16}
		write := m.Import("wasi_snapshot_preview1", "fd_write", i32+i32+i32+i32, i32)
		m.Func("run", "", i32, 0, Code(Const(4), Const(1<<20), Store(0), Const(1), Const(0), Const(1), Const(8), Call(write)))
		var passed slow
		i, err := compile(t, m, nil, b).Instantiate(&passed, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		i.Begin(time.Millisecond)
		if _, err := i.Call(i.Function("run")); err != nil && !errors.Is(err, wasm.ErrTimeout) || passed == 1<<20 { // it may end before the next look at the deadline
			t.Errorf("%d bytes, %v", passed, err)
		}
	})
}

// TestStartHasNoParameters: a start function, or _initialize, with parameters or results is refused when the module is
// compiled.
func TestStartHasNoParameters(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, b wasm.Bounds) {
		many := strings.Repeat(i32, 9)
		for _, c := range []struct{ params, results string }{{i32, ""}, {"", i32}, {"", many}, {many, ""}} {
			var values []any
			for range c.results {
				values = append(values, Const(1))
			}
			initialize, start := &Module{Pages: 1}, &Module{Pages: 1}
			initialize.Func("_initialize", c.params, c.results, 0, Code(values...))
			start.Start(start.Func("", c.params, c.results, 0, Code(values...)))
			for name, m := range map[string]*Module{"_initialize": initialize, "start": start} {
				compiled, err := wasm.Compile(t.Context(), m.Bytes(), nil, b)
				if err == nil {
					_, err = compiled.Instantiate(nil, nil)
					compiled.Close()
				}
				if !errors.Is(err, wasm.ErrInvalid) {
					t.Errorf("%s with the parameters %q and the results %q: %v, want %v", name, c.params, c.results, err, wasm.ErrInvalid)
				}
			}
		}
	})
}

// TestRefused: a module that cannot be run is refused when it is compiled, with its import by name.
func TestRefused(t *testing.T) {
	host := wasm.Host{"env": {{Name: "f", Params: []api.ValueType{api.ValueTypeI32}, Call: func(*wasm.Instance, []uint64) {}}}}
	imports := func(module, name, params string) []byte {
		m := &Module{Pages: 1}
		m.Import(module, name, params, "")
		return m.Bytes()
	}
	large := &Module{Pages: 17}
	table := &Module{Pages: 1, Table: 1<<16 + 1}
	locals := &Module{Pages: 1}
	locals.Func("", "", "", 1<<20, nil)
	invalid := &Module{Pages: 1}
	invalid.Func("", "", i32, 0, nil)
	mine := &Module{Pages: 1}
	mine.Func("penstock.stack", "", "", 0, nil)
	calls := func(function uint32) []byte {
		m := &Module{Pages: 1}
		m.Func("", "", "", 0, Code(Call(function)))
		m.Func("", "", "", 0, nil)
		return m.Bytes()
	}
	sets := func(global uint32) []byte {
		m := &Module{Pages: 1}
		m.Global(1)
		m.Func("", "", "", 0, Code(Const(0), SetGlobal(global)))
		return m.Bytes()
	}
	function := func(code []byte) []byte {
		m := &Module{Pages: 1}
		m.Func("", "", "", 0, code)
		return m.Bytes()
	}
	// over makes functions with n blocks. Then each local is read, and if not crossing it is set between.
	over := func(locals, functions, n int, block, within []byte, crossing bool) []byte {
		m := &Module{Pages: 1}
		code := bytes.Repeat(Code(Const(1), block, within, End), n)
		for local := range uint32(locals) {
			if !crossing {
				code = append(code, Code(Const(1), Set(local))...)
			}
			code = append(code, Code(Get(local), Drop)...)
		}
		for range functions {
			m.Func("", "", "", uint32(locals), code)
		}
		return m.Bytes()
	}
	ifs, loops := []byte{0x04, 0x40}, []byte{Drop, 0x03, 0x40}
	calls1000 := func(functions, n int) []byte {
		m, many := &Module{Pages: 1}, strings.Repeat(i32, 1000)
		results := m.Func("", "", many, 0, bytes.Repeat(Const(1), 1000))
		takes := m.Func("", many, "", 0)
		for range functions {
			m.Func("", "", "", 0, bytes.Repeat(Code(Call(results), Call(takes)), n))
		}
		return m.Bytes()
	}
	globals := &Module{Pages: 1}
	for range 1001 {
		globals.Global(1)
	}
	for _, c := range []struct {
		name string
		code []byte
		want error
		text string
	}{
		{"empty", nil, wasm.ErrInvalid, "does not begin"},
		{"a text", []byte("(module)"), wasm.ErrInvalid, "does not begin"},
		{"cut", imports("env", "f", i32)[:20], wasm.ErrInvalid, ""},
		{"a memory that is too large", large.Bytes(), wasm.ErrMemory, "1088 KiB"},
		{"a table that is too large", table.Bytes(), wasm.ErrInvalid, "65537 elements"},
		{"too many locals", locals.Bytes(), wasm.ErrInvalid, "1048576 locals"},
		{"no result", invalid.Bytes(), wasm.ErrInvalid, ""},
		{"our export", mine.Bytes(), wasm.ErrInvalid, "penstock.stack"},
		{"a call of a function of ours", calls(3), wasm.ErrInvalid, "no function 3"},
		{"a global of ours", sets(1), wasm.ErrInvalid, "no global 1"},
		{"an unknown function", imports("env", "proxy_http_call", i32), nil, "env.proxy_http_call: Penstock does not have this function"},
		{"other parameters", imports("env", "f", i32+i32), nil, "env.f: its parameters"},
		{"an unknown module", imports("a\nb", "f", i32), nil, "a\uFFFDb.f"},
		{"elements without end", append([]byte("\x00asm\x01\x00\x00\x00"), 9, 5, 0xff, 0xff, 0xff, 0xff, 0x0f), wasm.ErrInvalid, "longer than"},
		{"values of elements without end", append([]byte("\x00asm\x01\x00\x00\x00"), 9, 10, 1, 0, 0x41, 0, 0x0b, 0xff, 0xff, 0xff, 0xff, 0x0f), wasm.ErrInvalid, "longer than"},
		{"data without end", append([]byte("\x00asm\x01\x00\x00\x00"), 11, 10, 1, 0, 0x41, 0, 0x0b, 0xff, 0xff, 0xff, 0xff, 0x0f), wasm.ErrInvalid, "it is truncated"},
		{"too much code", func() []byte {
			m := &Module{Pages: 1}
			for range 33 {
				m.Func("", "", "", 0, bytes.Repeat([]byte{1}, 255<<10))
			}
			return m.Bytes()
		}(), wasm.ErrInvalid, "bytes of code, more than 8388608"},
		{"too large a function", function(bytes.Repeat([]byte{1}, 257<<10)), wasm.ErrInvalid, "function 0 has 2631"},
		{"too many blocks", function(bytes.Repeat([]byte{0x02, 0x40, End}, 10_001)), wasm.ErrInvalid, "10001 blocks and branches, more than 10000 (in function 0)"},
		{"too many loops", function(bytes.Repeat([]byte{0x03, 0x40, End}, 2_001)), wasm.ErrInvalid, "10005 blocks"},
		{"too many targets", function(Code(Const(0), []byte{0x0e}, []byte{0x91, 0x4e}, make([]byte, 10_001+1))), wasm.ErrInvalid, "blocks and branches"},
		{"too many locals over loops", over(1000, 1, 400, loops, nil, true), wasm.ErrInvalid, "1000 values in use over 2000 blocks and branches: let the compiler optimize it, or split it (in function 0)"},
		{"too many locals over loops within loops", over(1000, 1, 1, Code(Drop, bytes.Repeat([]byte{0x03, 0x40}, 30)), bytes.Repeat([]byte{End}, 29), true), wasm.ErrInvalid, "1000 values in use over 150 blocks"},
		{"too many locals over blocks of all functions", over(1000, 5, 900, ifs, nil, true), wasm.ErrInvalid, "its functions take too long to compile"},
		{"too many results of calls", calls1000(1, 66), wasm.ErrInvalid, "a function has blocks and calls with 65934 parameters and results, more than 65536 (in function 2)"},
		{"too many results of all calls", calls1000(20, 60), wasm.ErrInvalid, "it has blocks and calls with 10"},
		{"too many globals", globals.Bytes(), wasm.ErrInvalid, "1001 elements, more than 1000"},
		{"giant", append(imports("env", "f", i32), make([]byte, 33<<20)...), wasm.ErrInvalid, "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := wasm.Compile(t.Context(), c.code, host, wasm.Bounds{})
			if err == nil {
				m.Close()
				t.Fatal("accepted")
			}
			if of := new(wasm.ImportError); c.want == nil && !errors.As(err, &of) || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %v with %q", err, c.want, c.text)
			}
		})
	}
	noMemory := []byte("\x00asm\x01\x00\x00\x00\x05\x01\x00") // a section of memories without one
	for _, code := range [][]byte{imports("env", "f", i32), calls(1), sets(0), noMemory, function(bytes.Repeat([]byte{1}, 255<<10)), over(50, 1, 3000, ifs, nil, true), over(3000, 1, 3000, ifs, nil, false)} {
		if m, err := wasm.Compile(t.Context(), code, host, wasm.Bounds{}); err != nil {
			t.Error(err)
		} else {
			m.Close()
		}
	}
}

// TestCompilingEndsWithItsContext: with its cause.
func TestCompilingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	m := &Module{Pages: 1}
	for range 100 {
		m.Func("", "", "", 0, nil)
	}
	if c, err := wasm.Compile(ctx, m.Bytes(), nil, wasm.Bounds{}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v, %v", c, err)
	}
}

// TestCompiledOnce: the code of a module that is in use is made once, and goes with the last that has it.
func TestCompiledOnce(t *testing.T) {
	engines(t, func(t *testing.T, b wasm.Bounds) {
		m := &Module{Pages: 1}
		for i := range 300 {
			sum := Const(int32(i))
			for range 200 {
				sum = append(append(sum, Const(int32(i))...), 0x6a) // i32.add
			}
			m.Func("", "", i32, 0, sum)
		}
		cost := func() (c *wasm.Module, made uint64) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c = compile(t, m, nil, b)
			runtime.ReadMemStats(&after)
			return c, after.TotalAlloc - before.TotalAlloc
		}
		first, whole := cost()
		second, again := cost()
		if again > whole-whole/8 { // both decode it
			t.Errorf("compiling took %d bytes of memory, and the same module again %d", whole, again)
		}
		first.Close()
		first.Close() // has no effect
		if i, err := second.Instantiate(nil, nil); err != nil {
			t.Errorf("after the first has gone: %v", err)
		} else {
			i.Close()
		}
		second.Close()
		if _, anew := cost(); anew < again+whole/16 {
			t.Errorf("after both have gone the code is kept: %d bytes, %d at first", anew, whole)
		}
	})
}

// TestHostFunctions: they know the instance, and their panics are traps.
func TestHostFunctions(t *testing.T) {
	engines(t, func(t *testing.T, b wasm.Bounds) {
		var got []byte
		host := wasm.Host{"env": {{
			Name: "look", Params: []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}, Results: []api.ValueType{api.ValueTypeI32},
			Call: func(i *wasm.Instance, stack []uint64) {
				b, ok := i.Bytes(uint32(stack[0]), uint32(stack[1]))
				if !ok {
					panic(errors.New("not in the memory"))
				}
				got = bytes.Clone(b)
				stack[0] = uint64(i.State.(int))
			},
		}}}
		m := &Module{Pages: 1}
		m.Data(8, "a text")
		look := m.Import("env", "look", i32+i32, i32)
		m.Func("run", i32, i32, 0, Code(Get(0), Const(6), Call(look)))
		i, err := compile(t, m, host, b).Instantiate(nil, 42)
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		i.Begin(10 * time.Second)
		if v, err := i.Call(i.Function("run"), 8); err != nil || v != 42 || string(got) != "a text" {
			t.Errorf("%d, %v, %q", v, err, got)
		}
		if _, err := i.Call(i.Function("run"), 1<<32-1); !errors.Is(err, wasm.ErrTrap) || !strings.Contains(err.Error(), "not in the memory") {
			t.Errorf("%v", err)
		}
	})
}

// TestStackOfManyValues: the stack is bounded for functions with many parameters and results, too, which take little code.
func TestStackOfManyValues(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, b wasm.Bounds) {
		deep := 0
		host := wasm.Host{"env": {{Name: "deeper", Call: func(*wasm.Instance, []uint64) { deep++ }}}}
		m, many := &Module{Pages: 1}, strings.Repeat(i32, 1000)
		deeper := m.Import("env", "deeper", "", "")
		results := m.Func("", "", many, 0, bytes.Repeat(Const(1), 1000))
		m.Func("", many, "", 0, Code(Call(deeper), Call(results), Call(results+1)))
		m.Func("run", "", "", 0, Code(Call(results), Call(results+1)))
		i := instantiate(t, m, host, b)
		i.Begin(time.Minute)
		if _, err := i.Call(i.Function("run")); !errors.Is(err, wasm.ErrStack) || deep > 4<<20/(2*8*1000) {
			t.Errorf("%d calls of 1000 parameters and 1000 results: %v", deep, err)
		}
	})
}

// TestNoCallWithinItself: a function of the host cannot call a function of the module that is running, whose frames the second call
// would overwrite.
func TestNoCallWithinItself(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, b wasm.Bounds) {
		var run *wasm.Function
		calls := 0
		host := wasm.Host{"env": {{Name: "again", Call: func(i *wasm.Instance, _ []uint64) {
			if calls++; calls < 20 {
				if _, err := i.Call(run, 20); err != nil {
					panic(err)
				}
			}
		}}}}
		m := &Module{Pages: 1}
		again := m.Import("env", "again", "", "")
		m.Func("run", i32, i32, 0, Code(Call(again), Get(0)))
		i := instantiate(t, m, host, b)
		run = i.Function("run")
		i.Begin(10 * time.Second)
		if v, err := i.Call(run, 1); !errors.Is(err, wasm.ErrTrap) || !strings.Contains(err.Error(), "that is running") {
			t.Errorf("%d after %d calls, %v", v, calls, err)
		}
	})
}

// TestPool: as many instances as may be, and none that has failed twice.
func TestPool(t *testing.T) {
	m := &Module{Pages: 1}
	m.Func("run", "", "", 0, []byte{Unreachable})
	c := compile(t, m, nil, wasm.Bounds{})
	p := wasm.NewPool(2, 0, func() (*wasm.Instance, error) { return c.Instantiate(nil, nil) })
	a, err1 := p.Get()
	b, err2 := p.Get()
	if _, err := p.Get(); err1 != nil || err2 != nil || err != wasm.ErrBusy {
		t.Fatal(err1, err2, err)
	}
	p.Put(a)
	if again, err := p.Get(); err != nil || again != a {
		t.Fatal("an idle instance is not used again", err)
	}
	if _, err := a.Call(a.Function("run")); !errors.Is(err, wasm.ErrTrap) {
		t.Error(err)
	}
	p.Put(a)
	if fresh, err := p.Get(); err != nil || fresh == a {
		t.Error("an instance that has failed is used again", err)
	} else {
		p.Put(fresh)
	}
	if out, idle := p.Sizes(); out != 1 || idle != 1 {
		t.Error(out, idle)
	}
	p.Close()
	p.Put(b)
	if out, idle := p.Sizes(); out != 0 || idle != 0 || !b.Failed() {
		t.Error(out, idle)
	}
}

// TestSpares: instances are made before they are needed, never more than may be in use; and none after one that could not begin, until another
// one could. None are left when the pool is closed.
func TestSpares(t *testing.T) {
	m := &Module{Pages: 1}
	m.Func("run", "", "", 0, []byte{Unreachable})
	c := compile(t, m, nil, wasm.Bounds{})
	errStart := errors.New("it cannot begin")
	var cannot atomic.Bool
	var made []*wasm.Instance
	var mu sync.Mutex
	p := wasm.NewPool(4, 2, func() (*wasm.Instance, error) {
		if cannot.Load() {
			return nil, errStart
		}
		i, err := c.Instantiate(nil, nil)
		mu.Lock()
		defer mu.Unlock()
		made = append(made, i)
		return i, err
	})
	sizes := func(wantOut, wantIdle int) {
		t.Helper()
		p.Wait()
		if out, idle := p.Sizes(); out != wantOut || idle != wantIdle {
			t.Errorf("%d are in use and %d are ready, want %d and %d", out, idle, wantOut, wantIdle)
		}
	}
	var used []*wasm.Instance
	get := func() {
		t.Helper()
		i, err := p.Get()
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, i)
	}
	get()
	sizes(1, 2)
	get()
	sizes(2, 2)
	cannot.Store(true)
	get()
	get()
	sizes(4, 0)
	for _, i := range used[:2] {
		i.Close()
		p.Put(i)
	}
	sizes(2, 0)
	if _, err := p.Get(); err != errStart {
		t.Error(err)
	}
	cannot.Store(false)
	get()
	sizes(3, 1)
	p.Close()
	for _, i := range used[2:] {
		p.Put(i)
	}
	sizes(0, 0)
	for _, i := range made {
		if !i.Failed() {
			t.Error("an instance is left")
		}
	}
}

// FuzzCompile: whatever a file contains, there is a module or an error.
func FuzzCompile(f *testing.F) {
	m := &Module{Pages: 1, Table: 3}
	m.Import("env", "f", i32, "")
	m.Func("run", i32+i32, i32, 2, Code(Get(0), Get(1), I32Add))
	m.Start(m.Func("", "", "", 0, nil))
	m.Global(1)
	m.Data(0, "text")
	f.Add(m.Bytes())
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	host := wasm.Host{"env": {{Name: "f", Params: []api.ValueType{api.ValueTypeI32}, Call: func(*wasm.Instance, []uint64) {}}}}
	f.Fuzz(func(t *testing.T, code []byte) {
		c, err := wasm.Compile(t.Context(), code, host, wasm.Bounds{Start: 20 * time.Millisecond})
		if err != nil {
			return
		}
		defer c.Close()
		if i, err := c.Instantiate(nil, nil); err == nil {
			i.Close()
		}
	})
}
