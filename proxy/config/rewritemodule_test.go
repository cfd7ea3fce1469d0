package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

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
		"{direction: up, wasm: large.wasm}":                                                       "5:36: /etc/large.wasm: the module wants more memory than it may have",
		"{direction: up, wasm: text.wasm}":                                                        "5:36: /etc/text.wasm: not a valid module",
		"{direction: up, wasm: empty.wasm}":                                                       "5:36: /etc/empty.wasm is empty",
		"{direction: up, wasm: refuses.wasm}":                                                     "5:36: /etc/refuses.wasm: the module does not accept its configuration",
		"{direction: up, wasm: up.wasm, mask: [card]}":                                            "5:36: a direction is rewritten by masks or by a module, not by both",
		"{direction: up, wasm: up.wasm, framing: resp}":                                           "5:54: framing is of masks",
		"{direction: up, wasm: up.wasm, on_error: allow}":                                         "5:55: ",
		"{direction: up, wasm: up.wasm, buffer: 2MiB}":                                            "5:53: buffer is 2MiB",
		"{direction: up, mask: [card], config: x}":                                                "5:52: config is of a module, and there is none",
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

// TestRewriteContent: a module that was built again is another one.
func TestRewriteContent(t *testing.T) {
	text := "{listeners: [{name: l, bind: ':80', upstream: u, rewrite: {direction: up, wasm: a.wasm}}], upstreams: [{name: u, endpoints: ['192.0.2.1:1']}]}"
	load := func(pages uint32) *config.Listener {
		m := rewriterOf("proxy_on_downstream_data")
		m.Pages = pages
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text, "/etc/a.wasm": string(m.Bytes())}, "/etc/p.yaml", variables())
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return cfg.Listeners[0]
	}
	if a := load(1); !a.Same(load(1)) || a.Same(load(2)) || len(a.Modules()) != 1 {
		t.Error("the content is not compared")
	}
}
