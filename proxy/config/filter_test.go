package config_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/config"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// filterModule is a filter that allows every client, by either way to decide.
func filterModule() string { return string(filterOf(nil)) }

func filterOf(imports func(m *Module)) []byte {
	const i32 = string(rune(I32))
	m := &Module{Pages: 1}
	if imports != nil {
		imports(m)
	}
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_new_connection", i32, i32, 0, Const(0))
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 0, Const(0))
	m.Func("proxy_on_upstream_data", i32+i32+i32, i32, 0, Const(0)) // so that it rewrites as well
	return m.Bytes()
}

// TestFilterProblems: a filter that cannot be is found with its place in the file, and a remedy.
func TestFilterProblems(t *testing.T) {
	const (
		head = "listeners:\n  - name: l\n    bind: ':80'\n    upstream: u\n"
		tail = "upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]\n"
	)
	unknown := string(filterOf(func(m *Module) { m.Import("env", "proxy_http_call", string([]byte{I32}), string([]byte{I32})) }))
	large := &Module{Pages: 17}
	false0 := &Module{Pages: 1}
	false0.Func("proxy_abi_version_0_2_1", "", "", 0)
	false0.Func("proxy_on_new_connection", string([]byte{I32}), string([]byte{I32}), 0, Const(0))
	false0.Func("proxy_on_configure", string([]byte{I32, I32}), string([]byte{I32}), 0, Const(0))
	data := &Module{Pages: 1}
	data.Func("proxy_abi_version_0_2_1", "", "", 0)
	data.Func("proxy_on_downstream_data", string([]byte{I32, I32, I32}), string([]byte{I32}), 0, Const(0))
	tree := config.Tree{
		"/etc/data.wasm": string(data.Bytes()),
		"/etc/a.wasm":    filterModule(), "/etc/unknown.wasm": unknown, "/etc/large.wasm": string(large.Bytes()), "/etc/text.wasm": "(module)",
		"/etc/empty.wasm": "", "/etc/false.wasm": string(false0.Bytes()), "/etc/cut.wasm": filterModule()[:40],
	}
	for filter, want := range map[string]string{
		"{wasm: a.wasm}": "",
		"{wasm: a.wasm, preread: 16KiB, timeout: 1ms}": "",
		"{wasm: none.wasm}":                            "5:20: open /etc/none.wasm",
		"{wasm: unknown.wasm}":                         "5:20: /etc/unknown.wasm: the module imports env.proxy_http_call",
		"{wasm: large.wasm}":                           "5:20: /etc/large.wasm: the module needs more memory than its limit",
		"{wasm: text.wasm}":                            "5:20: /etc/text.wasm: not a valid module",
		"{wasm: cut.wasm}":                             "5:20: /etc/cut.wasm: not a valid module",
		"{wasm: empty.wasm}":                           "5:20: /etc/empty.wasm is empty",
		"{wasm: data.wasm}":                            "5:20: /etc/data.wasm: the module needs a client's first bytes (proxy_on_downstream_data), but preread is 0: write preread: 4KiB",
		"{wasm: data.wasm, preread: 1}":                "",
		"{wasm: false.wasm}":                           "5:20: /etc/false.wasm: the module does not accept its configuration",
		"{wasm: a.wasm, upstreams: [x]}":               "5:40: there is no upstream x",
		"{wasm: a.wasm, memory: 1KiB}":                 "5:36: memory is 1KiB, less than 64KiB",
		"{wasm: a.wasm, on_error: ignore}":             "5:38: ",
		"{wasm: a.wasm}\n    postgres: terminate\n    tls: {certificates: [{cert: c, key: k}]}": "5:20: with postgres: terminate a client's route is chosen after",
	} {
		tree["/etc/p.yaml"] = head + "    filter: " + filter + "\n" + tail
		_, problems := config.LoadTree(tree, "/etc/p.yaml", variables())
		got := ""
		if len(problems) > 0 {
			got = fmt.Sprint(problems[0])
		}
		if want == "" && got != "" || want != "" && !strings.HasPrefix(strings.TrimPrefix(got, "/etc/p.yaml:"), want) {
			t.Errorf("%s: %q, want %q", filter, got, want)
		}
	}
}

// TestFilterContent: the module itself is a part of the configuration, so one that was built again is another.
func TestFilterContent(t *testing.T) {
	text := "{listeners: [{name: l, bind: ':80', upstream: u, filter: {wasm: a.wasm}}], upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]}"
	load := func(module string) *config.Config {
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text, "/etc/a.wasm": module}, "/etc/p.yaml", variables())
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return cfg
	}
	a, b := load(filterModule()), load(string(filterOf(func(m *Module) { m.Import("env", "proxy_log", string([]byte{I32, I32, I32}), string([]byte{I32})) })))
	if !a.Listeners[0].Same(load(filterModule()).Listeners[0]) || a.Listeners[0].Same(b.Listeners[0]) {
		t.Error("the content is not compared")
	}
}

// refusing is a module that refuses its configuration, and writes a text to its standard error before.
func refusing(text string) *Module {
	i32 := string([]byte{I32})
	m := &Module{Pages: 1}
	m.Data(0, "\x10\x00\x00\x00"+string([]byte{byte(len(text)), byte(len(text) >> 8), 0, 0})) // an iovec
	m.Data(16, text)
	write := m.Import("wasi_snapshot_preview1", "fd_write", i32+i32+i32+i32, i32)
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_new_connection", i32, i32, 0, Const(0))
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 0, Const(0))
	m.Func("proxy_on_configure", i32+i32, i32, 0, Const(2), Const(0), Const(1), Const(8), Call(write), []byte{Drop}, Const(0))
	return m
}

// TestRefusedConfiguration: a module that refuses its configuration is reported at that, with what it has written, as far as that can be shown.
func TestRefusedConfiguration(t *testing.T) {
	for _, key := range []string{"filter: {", "rewrite: {direction: up, "} {
		for said, want := range map[string]string{
			"no such\nword\x1b[2J\u202e\n":        "no such; word\uFFFD[2J\uFFFD: write a config",
			"panic: bad\n\ngoroutine 1 [running]": "panic: bad: write a config",
			strings.Repeat("x", 4000):             strings.Repeat("x", 256) + "…: write a config",
			"":                                    "returned false: write a config",
		} {
			text := "listeners:\n  - name: l\n    bind: ':80'\n    upstream: u\n    " + key + "wasm: a.wasm, config: odd}\nupstreams: [{name: u, endpoints: ['192.0.2.1:1']}]\n"
			_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text, "/etc/a.wasm": string(refusing(said).Bytes())}, "/etc/p.yaml", variables())
			if len(problems) != 1 {
				t.Fatal(problems)
			}
			p := problems[0]
			if !strings.Contains(p.Error(), want) || !strings.HasPrefix(p.Message, "/etc/a.wasm: the module does not accept its configuration") {
				t.Errorf("%q, want %q", p.Error(), want)
			}
			line := strings.Split(text, "\n")[4]
			if p.Pos.Line != 5 || p.Pos.Column != strings.Index(line, "odd")+1 {
				t.Errorf("it is reported at %v of %q", p.Pos, line)
			}
		}
	}
}

// TestMemoryThatSuffices: the remedy for a module that needs more memory than it may have is as much as it needs, or another one.
func TestMemoryThatSuffices(t *testing.T) {
	for pages, want := range map[uint32]string{17: "write memory: 1088KiB or more", 1600: "write memory: 100MiB or more", 16385: "at most 1GiB"} {
		m := refusing("")
		m.Pages = pages
		text := "{listeners: [{name: l, bind: ':80', upstream: u, filter: {wasm: a.wasm, memory: 64KiB}}], upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]}"
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text, "/etc/a.wasm": string(m.Bytes())}, "/etc/p.yaml", variables())
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), want) || problems[0].Pos.Column != strings.Index(text, "64KiB")+1 {
			t.Errorf("%d pages: %v, want %q", pages, problems, want)
		}
	}
}

// TestAcceptedModulesAreNotLoadedAgain: checks and reloads of the same module load it once; one that is rejected they load, and reject, each time.
func TestAcceptedModulesAreNotLoadedAgain(t *testing.T) {
	text := "{listeners: [{name: l, bind: ':80', upstream: u, filter: {wasm: a.wasm}}], upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]}"
	check := func(module string) (problems []config.Problem, took uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, problems = config.LoadTree(config.Tree{"/etc/p.yaml": text, "/etc/a.wasm": module}, "/etc/p.yaml", variables())
		runtime.ReadMemStats(&after)
		return problems, after.TotalAlloc - before.TotalAlloc
	}
	module := string(filterOf(func(m *Module) { // which no other test has
		for range 2000 {
			m.Import("env", "proxy_log", string([]byte{I32, I32, I32}), string([]byte{I32}))
		}
	}))
	problems, first := check(module)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if _, second := check(module); second > first/2 {
		t.Errorf("the first check took %d bytes of memory, the second %d", first, second)
	}
	for range 2 {
		if problems, _ := check("no module"); len(problems) == 0 {
			t.Error("a file that is no module is accepted")
		}
	}
}

// TestKnownModules: who may only look has no module loaded; one that was rejected stays so until somebody else loads it.
func TestKnownModules(t *testing.T) {
	text := "{listeners: [{name: l, bind: ':80', upstream: u, filter: {wasm: a.wasm}}], upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]}"
	tree := config.Tree{"/etc/p.yaml": text, "/etc/a.wasm": string(refusing("of TestKnownModules").Bytes())}
	cfg, unknown, problems := config.LoadTreeKnown(tree, "/etc/p.yaml", variables())
	if cfg == nil || len(unknown) != 1 || len(problems) > 0 {
		t.Fatal(cfg, unknown, problems)
	}
	unknown[0].Load()
	for range 2 {
		cfg, unknown, problems = config.LoadTreeKnown(tree, "/etc/p.yaml", variables())
		if cfg != nil || len(unknown) > 0 || len(problems) != 1 {
			t.Fatal(cfg, unknown, problems)
		}
		if _, again := config.LoadTree(tree, "/etc/p.yaml", variables()); len(again) != 1 || again[0] != problems[0] {
			t.Errorf("%v, and before %v", again, problems)
		}
	}
}

// TestTimedOutModules: that a module has timed out is known for four times as long as it took.
func TestTimedOutModules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads := 0
		u := config.NewUnknown("of TestTimedOutModules", func() error {
			loads++
			time.Sleep(10 * time.Second)
			return fmt.Errorf("it has not begun: %w", wasm.ErrTimeout)
		})
		for _, c := range []struct {
			wait time.Duration
			want int
		}{{0, 1}, {39 * time.Second, 1}, {2 * time.Second, 2}, {time.Second, 2}} {
			time.Sleep(c.wait)
			if u.Load(); loads != c.want {
				t.Errorf("after %v it was loaded %d times, want %d", c.wait, loads, c.want)
			}
		}
	})
}

// TestReloadAfterTimeout: a reload that has waited while a module timed out does not load the module again. A later one does.
func TestReloadAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads := 0
		u := config.NewUnknown("of TestReloadAfterTimeout", func() error {
			loads++
			time.Sleep(10 * time.Second)
			return fmt.Errorf("it has not begun: %w", wasm.ErrTimeout)
		})
		u.Load()
		for want := range 2 {
			if config.Refused(u) != 1 || loads != 1+want {
				t.Errorf("loaded %d times, want %d", loads, 1+want)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestOneTimeoutForEachCheck: after a module that timed out a check loads no others, which may take as long.
func TestOneTimeoutForEachCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var modules []*config.Unknown
		for i := range 10 {
			modules = append(modules, config.NewUnknown(fmt.Sprintf("%d of TestOneTimeoutForEachCheck", i), func() error {
				time.Sleep(30 * time.Second)
				return fmt.Errorf("it has not begun: %w", wasm.ErrTimeout)
			}))
		}
		for check := range 2 {
			if began := time.Now(); config.Refused(modules...) != 1 || time.Since(began) > 30*time.Second {
				t.Errorf("check %d took %v", check, time.Since(began))
			}
		}
	})
}

// TestAllModulesAreBounded: their number times the size of the largest one would take all memory.
func TestAllModulesAreBounded(t *testing.T) {
	text, tree := "upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]\nlisteners:\n", config.Tree{}
	module := strings.Repeat(" ", config.MaxModule)
	for i := range 2 + config.MaxModules/config.MaxModule {
		text += fmt.Sprintf("- {name: l%d, bind: ':8%d', upstream: u, filter: {wasm: %d.wasm}}\n", i, i, i)
		tree[fmt.Sprintf("/etc/%d.wasm", i)] = module
	}
	tree["/etc/p.yaml"] = text
	_, problems := config.LoadTree(tree, "/etc/p.yaml", variables())
	if last := problems[len(problems)-1]; !strings.Contains(last.Message, "the modules have more than 256MiB together") {
		t.Error(last)
	}
}
