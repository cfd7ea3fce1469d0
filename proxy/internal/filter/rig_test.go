package filter_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/filter"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

const i32 = string(I32)

// Numbers of the functions that every module of these tests imports, and addresses in its memory.
const (
	fnLog = iota
	fnBuffer
	fnGet
	fnSet
	fnClose
	fnTime

	addrData = 16 // where the host writes the address and the size of bytes
	addrSize = 20
	addrText = 1024
	addrHeap = 4096
)

// A module is one of a filter, without the functions that decide.
type module struct {
	Module
	texts int32
}

func newModule() *module {
	m := &module{Module: Module{Pages: 1}, texts: addrText}
	m.imports()
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(addrHeap))
	return m
}

func (m *module) imports() {
	m.Import("env", "proxy_log", i32+i32+i32, i32)
	m.Import("env", "proxy_get_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Import("env", "proxy_get_property", i32+i32+i32+i32, i32)
	m.Import("env", "proxy_set_property", i32+i32+i32+i32, i32)
	m.Import("env", "proxy_close_stream", i32, i32)
	m.Import("env", "proxy_get_current_time_nanoseconds", i32, i32)
}

// text puts a text into the memory, and returns code with its address and size.
func (m *module) text(s string) []byte {
	at := m.texts
	m.Data(at, s)
	m.texts += int32(len(s)) + 1
	return Code(Const(at), Const(int32(len(s))))
}

func (m *module) set(path, value string) []byte {
	return Code(m.text(path), m.text(value), Call(fnSet), Drop)
}

func (m *module) connection(code ...any) *module {
	m.Func("proxy_on_new_connection", i32, i32, 1, Code(code...))
	return m
}

func (m *module) data(code ...any) *module {
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 1, Code(code...))
	return m
}

func engines(t *testing.T, f func(t *testing.T, b wasm.Bounds)) {
	t.Run(wasm.Compiler, func(t *testing.T) { f(t, wasm.Bounds{}) })
	t.Run(wasm.Interpreter, func(t *testing.T) { f(t, wasm.Bounds{Interpret: true}) })
}

// load makes a filter, with sensible values for those that are not there.
func load(t testing.TB, code []byte, cfg filter.Config) (*filter.Filter, error) {
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	return filter.New(t.Context(), code, cfg)
}

func mustLoad(t testing.TB, code []byte, cfg filter.Config) *filter.Filter {
	t.Helper()
	f, err := load(t, code, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func ask(t testing.TB, f *filter.Filter, of filter.Connection) filter.Answer {
	t.Helper()
	done := make(chan struct{})
	c := &filter.Call{Of: of}
	if !f.Ask(c, func() { close(done) }) {
		t.Fatal("too many wait")
	}
	<-done
	a, ok := c.Answer()
	if !ok {
		t.Fatal("done without an answer")
	}
	return a
}

func client(first string) filter.Connection {
	return filter.Connection{
		Source: netip.MustParseAddrPort("192.0.2.7:1234"), Destination: netip.MustParseAddrPort("[2001:db8::1]:443"),
		Listener: "web", Upstream: "shop", ServerName: "a.example", ALPN: []string{"h2", "http/1.1"},
		TLVs: []byte{0xe0, 0, 2, 'h', 'i'}, First: []byte(first),
	}
}
