package config_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/proxy/config"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// bombs are texts that say much with little.
func bombs() map[string]string {
	laughs := "x-a0: &a0 [lol]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("x-a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	merges := "x-m0: &m0 {name: a}\n"
	for i := range 30 {
		merges += fmt.Sprintf("x-m%d: &m%d {<<: [%s]}\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*m%d,", i), 10), ","))
	}
	endpoints := strings.Repeat("{address: 'h:1'},", 5000)
	return map[string]string{
		"aliases":          laughs + "listeners: *a12\nupstreams: [{name: u, endpoints: *a12}]\n",
		"merges":           merges + "listeners: [{<<: *m30}]\n",
		"merges itself":    "listeners: [&a {<<: *a, name: b}]\n",
		"contains itself":  "listeners: &a [*a, *a]\nupstreams: &b {b: *b}\n",
		"repeated lists":   "upstreams:\n- {name: u, endpoints: &e [" + endpoints + "]}\n" + strings.Repeat("- {endpoints: *e}\n", 5000),
		"repeated objects": "x-u: &u {endpoints: ['h:1']}\nupstreams: [" + strings.Repeat("*u,", 100000) + "]",
		"empty objects":    "upstreams: [" + strings.Repeat("{},", 300000) + "]",
		"deep flow":        strings.Repeat("{a: ", 1<<20),
		"deep blocks":      strings.Repeat("- ", 1<<20),
		"values":           "listeners: [" + strings.Repeat("1,", 2_000_000) + "]",
		"just values":      "listeners: [" + strings.Repeat("1,", 900_000) + "]",
		"keys":             "{" + strings.Repeat("a: 1, ", 100_000) + "}",
		"a long line":      "listeners: " + strings.Repeat("x", 1<<20),
		"a large file":     strings.Repeat("# x\n", 3<<20),
		"dangling names":   "upstreams: [" + names(5000) + "]\nlisteners: [" + strings.Repeat("{upstream: abcdefghij},", 5000) + "]",
		"long names":       "listeners: [{upstream: " + strings.Repeat("a", 1<<20) + "}]\nupstreams: [{name: " + strings.Repeat("b", 1<<20) + "}]",
		"a long fallback":  "upstreams: [" + chain(5000) + "]",
		"keys meant":       "upstreams: [" + strings.Repeat("{nmae: x, retyr: {a: 1, b: 2}, balanse: x, queu: {size: x}},", 30_000) + "]",
		"meant, repeated":  "x-e: &e [" + endpoints + "]\nupstreams: [" + strings.Repeat("{endpoint: *e, x: 1},", 5000) + "]",
		"variables":        "listeners: [{name: \"" + strings.Repeat("${BIG}", 10_000) + "\"}]",
	}
}

func names(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{name: abcdefg%d},", i)
	}
	return b.String()
}

func chain(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{name: a%d, fallback: {upstream: a%d}},", i, (i+1)%n)
	}
	return b.String()
}

// TestBombs: none of them loads, and what each takes is bounded.
func TestBombs(t *testing.T) {
	big := strings.Repeat("x", 60<<10)
	for name, text := range bombs() {
		began := time.Now()
		var problems []config.Problem
		bytes := allocated(func() {
			_, problems = config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", variables("BIG", big))
		})
		t.Logf("%s: %d problems, %d MiB, %v", name, len(problems), bytes>>20, time.Since(began).Round(time.Millisecond))
		if len(problems) == 0 {
			t.Errorf("%s: it loads", name)
		}
		if bytes > 2<<30 {
			t.Errorf("%s: %d MiB", name, bytes>>20)
		}
		for _, p := range problems {
			if len(p.String()) > 8<<10 {
				t.Errorf("%s: a problem of %d bytes: %.200s", name, len(p.String()), p.String())
				break
			}
		}
	}
}

// FuzzLoad: whatever a file says, it is a Config or problems. What loads is what is printed
// of it, and good by the schema.
func FuzzLoad(f *testing.F) {
	f.Add(smallest, "")
	f.Add("include: ['*.yaml']\n", "upstreams: [{name: u, endpoints: ['h:1']}]")
	f.Add("listeners: [&a {<<: *a, name: '${X}', bind: [':1', 'systemd:x'], upstream: u}]\n"+upstreams, "limits: {}")
	f.Add(listener("routes: [{match: {sni: ['*.x']}, split: [{upstream: u, percent: 99.5}, {upstream: v, percent: 0.5}]}, {upstream: v}]"), "")
	f.Add(upstream("discover: {dns: {name: x, min_ttl: 1s}}, health_check: {type: http, http: {status: [200], body: 'file:b.yaml'}}, fallback: {respond: b.yaml}"), "x")
	f.Add("admin: {bind: '127.0.0.1:2'}\n"+smallest, "")
	f.Add("listeners: [{nmae: a, bnid: ':1', routes: [{match: {sin: [x]}, upstrem: u}]}]\nupstrems: [{name: u, endpoints: {a: 1}}]\n", "")
	f.Add("{\"listeners\": [{\"name\": \"\\ud83d\\ude00\"}]}", "{")
	f.Fuzz(func(t *testing.T, a, b string) {
		tree := config.Tree{"/etc/p.yaml": a, "/etc/b.yaml": b}
		env := variables("X", "1", "LONG", strings.Repeat("y", 100))
		cfg, problems := config.LoadTree(tree, "/etc/p.yaml", env)
		if cfg == nil == (len(problems) == 0) {
			t.Fatalf("%v and %v", cfg, problems)
		}
		for _, p := range problems {
			if p.Message == "" || p.String() == "" || strings.ContainsRune(p.Error(), '\n') {
				t.Fatalf("problem %+v", p)
			}
		}
		bind, _ := config.AdminBindTree(tree, "/etc/p.yaml", env)
		if cfg == nil {
			return
		}
		if cfg.Admin != nil && bind != cfg.Admin.Bind.String() || cfg.Admin == nil && bind != "" {
			t.Fatalf("asked at %q, and listens at %+v", bind, cfg.Admin)
		}
		tree["/x.yaml"], tree["/x.json"] = string(cfg.YAML()), string(cfg.JSON())
		for _, name := range []string{"/x.yaml", "/x.json"} {
			again, problems := config.LoadTree(tree, name, env)
			if len(problems) > 0 {
				t.Fatalf("%v\n%s", problems, tree[name])
			}
			if d := cmp.Diff(cfg, again, apart); d != "" {
				t.Fatalf("%s\n%s", d, tree[name])
			}
			if err := config.ValidateText(tree[name]); err != nil {
				t.Fatalf("%v\n%s", err, tree[name])
			}
		}
	})
}
