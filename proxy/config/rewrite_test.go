package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

// TestRewrites: a rewrite of bytes that cannot be seen is refused, and so are keys that are gone; one that can be ends zero-copy, which is said.
func TestRewrites(t *testing.T) {
	for _, c := range []struct {
		listener string
		want     []string
		copied   int
	}{
		{"upstream: u, rewrite: {direction: down, wasm: w.wasm}", nil, 1},
		{"upstream: u, rewrite: {direction: up, wasm: w.wasm}, routes: [{match: {port: 1}, upstream: u, rewrite: {direction: down, wasm: w.wasm}}]", nil, 2},
		{"upstream: u, rewrite: {direction: none}", nil, 0},
		{"upstream: u, rewrite: {direction: none, wasm: w.wasm}", nil, 0},
		{"upstream: u, rewrite: {wasm: w.wasm}", []string{"direction is missing"}, 0},
		{"upstream: u, rewrite: {direction: both, wasm: w.wasm}", []string{"direction"}, 0},
		{"upstream: u, rewrite: {direction: up}", []string{"neither wasm nor direction: none is written"}, 0},
		{"upstream: u, rewrite: {direction: up, mask: [card]}", []string{"mask of rewrite was removed"}, 0},
		{"upstream: u, rewrite: {direction: up, patterns: ['ID-[0-9]'], framing: postgres}", []string{"patterns of rewrite was removed", "framing of rewrite was removed"}, 0},
		{"upstream: u, rewrite: {direction: up, wasm: w.wasm, hold: 0s}", []string{"hold is 0s"}, 0},
		{"upstream: u, postgres: passthrough, rewrite: {direction: down, wasm: w.wasm}", []string{"write postgres: terminate and tls at the listener"}, 0},
		{"upstream: u, postgres: passthrough, routes: [{match: {source: [10.0.0.1]}, upstream: u, rewrite: {direction: down, wasm: w.wasm}}]", []string{"TLS is passed through"}, 0},
		{"upstream: u, postgres: passthrough, rewrite: {direction: none}", nil, 0},
		{"upstream: u, rewrite: {direction: down, wasm: w.wasm}, routes: [{match: {protocol: [ssh]}, upstream: u}]", []string{"rewrite: {direction: none} at the route in line 1"}, 0},
		{"upstream: u, routes: [{match: {protocol: [ssh]}, upstream: u, rewrite: {direction: down, wasm: w.wasm}}]", []string{"SSH is passed through"}, 0},
		{"upstream: u, routes: [{match: {protocol: [tls, postgres]}, upstream: u, rewrite: {direction: down, wasm: w.wasm}}]", []string{"TLS is passed through"}, 0},
		{"upstream: u, routes: [{match: {protocol: [http2]}, upstream: u, rewrite: {direction: down, wasm: w.wasm}}]", nil, 1},
		{"upstream: u, require_tls: true, rewrite: {direction: up, wasm: w.wasm}", []string{"TLS is passed through"}, 0},
		{"upstream: u, rewrite: {direction: up, wasm: w.wasm}, routes: [{match: {sni: [a.b]}, upstream: u}]", []string{"rewrite: {direction: none} at the route in line 1"}, 0},
		{"upstream: u, rewrite: {direction: up, wasm: w.wasm}, routes: [{match: {sni: [a.b]}, upstream: u, rewrite: {direction: none}}]", nil, 1},
	} {
		text := "listeners: [{name: a, bind: ':1', " + c.listener + "}]\nupstreams: [{name: u, endpoints: ['h:1']}]"
		cfg, problems := said(text, "/etc/w.wasm", filterModule())
		contain(t, c.listener, problems, c.want)
		if cfg != nil && len(config.Copied(cfg)) != c.copied {
			t.Errorf("%s: %q", c.listener, config.Copied(cfg))
		}
	}
}

// TestRewritesDiffer: a change of a rewrite is a change of its listener.
func TestRewritesDiffer(t *testing.T) {
	with := func(keys string) *config.Config {
		return loadTree(t, config.Tree{"/etc/p.yaml": "listeners: [{name: a, bind: ':1', upstream: u, rewrite: {" + keys + "}}]" + upstreams, "/etc/w.wasm": filterModule()})
	}
	old := with("direction: up, wasm: w.wasm")
	for keys, want := range map[string]string{
		"direction: up, wasm: w.wasm, hold: 1s":   "",
		"direction: down, wasm: w.wasm":           "listener a changed: rewrite.direction: up → down",
		"direction: up, wasm: w.wasm, hold: 20ms": "listener a changed: rewrite.hold: 1s → 20ms",
		"direction: up, wasm: w.wasm, spare: 1":   "listener a changed: rewrite.spare: 4 → 1",
	} {
		next, got := with(keys), ""
		for _, c := range config.Diff(old, next) {
			got += c.String()
		}
		if got != want || old.Listeners[0].Same(next.Listeners[0]) != (want == "") {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
	if got := config.Copied(old); !slices.Equal(got, []string{"listener a: rewrite: bytes from clients to endpoints are copied, not spliced (this direction is not zero-copy); a sender that pauses for longer than 1s (hold) in the middle of a match may get the match past the module"}) {
		t.Errorf("%q", got)
	}
}

// rewriterOf is a module that has a function for a direction, and lets all bytes go on.
func rewriterOf(function string) *Module {
	i32 := string([]byte{I32})
	m := &Module{Pages: 1}
	m.Import("env", "proxy_set_buffer_bytes", i32+i32+i32+i32+i32, i32)
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func(function, i32+i32+i32, i32, 0, Const(0))
	return m
}

// TestRewriteModules: a module that cannot rewrite is found with its place in the file, and a remedy. One that can ends zero-copy,
// which is said.
func TestRewriteModules(t *testing.T) {
	const (
		head = "listeners:\n  - name: l\n    bind: ':80'\n    upstream: u\n"
		tail = "upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]\n"
	)
	large, refuses := rewriterOf("proxy_on_downstream_data"), rewriterOf("proxy_on_downstream_data")
	large.Pages = 17
	refuses.Func("proxy_on_configure", string([]byte{I32, I32}), string([]byte{I32}), 0, Const(0))
	tree := config.Tree{
		"/etc/up.wasm": string(rewriterOf("proxy_on_downstream_data").Bytes()), "/etc/down.wasm": string(rewriterOf("proxy_on_upstream_data").Bytes()),
		"/etc/large.wasm": string(large.Bytes()), "/etc/refuses.wasm": string(refuses.Bytes()), "/etc/filter.wasm": filterModule(), "/etc/empty.wasm": "", "/etc/text.wasm": "(module)",
	}
	for rewrite, want := range map[string]string{
		"{direction: up, wasm: up.wasm}": "",
		"{direction: down, wasm: down.wasm, hold: 1s, buffer: 1MiB, timeout: 1ms, on_error: pass, instances: 1, memory: 64KiB, config: x}": "",
		"{direction: none, wasm: up.wasm}":                                                        "",
		"{direction: down, wasm: up.wasm}":                                                        "5:38: /etc/up.wasm: the module exports no proxy_on_upstream_data",
		"{direction: up, wasm: none.wasm}":                                                        "5:36: open /etc/none.wasm",
		"{direction: up, wasm: large.wasm}":                                                       "5:36: /etc/large.wasm: the module needs more memory than its limit",
		"{direction: up, wasm: text.wasm}":                                                        "5:36: /etc/text.wasm: not a valid module",
		"{direction: up, wasm: empty.wasm}":                                                       "5:36: /etc/empty.wasm is empty",
		"{direction: up, wasm: refuses.wasm}":                                                     "5:36: /etc/refuses.wasm: the module does not accept its configuration",
		"{direction: up, wasm: up.wasm, on_error: allow}":                                         "5:55: ",
		"{direction: up, wasm: up.wasm, buffer: 2MiB}":                                            "5:53: buffer is 2MiB",
		"{direction: up, wasm: up.wasm}\n    require_tls: true":                                   "5:26: TLS is passed through",
		"{direction: up, wasm: up.wasm}\n    postgres: passthrough":                               "5:26: TLS is passed through",
		"{direction: up, wasm: up.wasm}\n    routes: [{match: {protocol: [http2]}, upstream: u}]": "",
	} {
		tree["/etc/p.yaml"] = head + "    rewrite: " + rewrite + "\n" + tail
		cfg, problems := config.LoadTree(tree, "/etc/p.yaml", variables())
		got := ""
		if len(problems) > 0 {
			got = fmt.Sprint(problems[0])
		}
		if want == "" && got != "" || want != "" && !strings.HasPrefix(strings.TrimPrefix(got, "/etc/p.yaml:"), want) {
			t.Errorf("%s: %q, want %q", rewrite, got, want)
		}
		if cfg == nil {
			continue
		}
		if copied := config.Copied(cfg); len(copied) == 1 != (!strings.Contains(rewrite, "none")) {
			t.Errorf("%s: %q", rewrite, copied)
		}
	}
}
