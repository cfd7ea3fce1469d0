package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
)

// bombs are short texts that expand to much.
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
		"aliases":                            laughs + "listeners: *a12\nupstreams: [{name: u, endpoints: *a12}]\n",
		"merges":                             merges + "listeners: [{<<: *m30}]\n",
		"merges itself":                      "listeners: [&a {<<: *a, name: b}]\n",
		"contains itself":                    "listeners: &a [*a, *a]\nupstreams: &b {b: *b}\n",
		"repeated lists":                     "upstreams:\n- {name: u, endpoints: &e [" + endpoints + "]}\n" + strings.Repeat("- {endpoints: *e}\n", 5000),
		"repeated objects":                   "x-u: &u {endpoints: ['h:1']}\nupstreams: [" + strings.Repeat("*u,", 100000) + "]",
		"empty objects":                      "upstreams: [" + strings.Repeat("{},", 300000) + "]",
		"deep flow":                          strings.Repeat("{a: ", 1<<20),
		"deep blocks":                        strings.Repeat("- ", 1<<20),
		"values":                             "listeners: [" + strings.Repeat("1,", 2_000_000) + "]",
		"just values":                        "listeners: [" + strings.Repeat("1,", 900_000) + "]",
		"keys":                               "{" + strings.Repeat("a: 1, ", 290_000) + "}",
		"a long line":                        "listeners: " + strings.Repeat("x", 1<<20),
		"a large file":                       strings.Repeat("# x\n", 5<<20),
		"dangling names":                     "upstreams: [" + names(5000) + "]\nlisteners: [" + strings.Repeat("{upstream: abcdefghij},", 5000) + "]",
		"long names":                         "listeners: [{upstream: " + strings.Repeat("a", 1<<20) + "}]\nupstreams: [{name: " + strings.Repeat("b", 1<<20) + "}]",
		"a long fallback":                    "upstreams: [" + chain(5000) + "]",
		"keys meant":                         "upstreams: [" + strings.Repeat("{nmae: x, retyr: {a: 1, b: 2}, balanse: x, queu: {size: x}},", 30_000) + "]",
		"meant, repeated":                    "x-e: &e [" + endpoints + "]\nupstreams: [" + strings.Repeat("{endpoint: *e, x: 1},", 5000) + "]",
		"empty lists":                        "listeners: [" + strings.Repeat("[],", 299_000) + "]",
		"lists in a list":                    "listeners: [[" + strings.Repeat("[],", 299_000) + "]]",
		"words in a list":                    "listeners: [[" + strings.Repeat("a,", 599_000) + "]]",
		"pairs in a list":                    "listeners: [[" + strings.Repeat("a: 1,", 299_000) + "]]",
		"texts in a list":                    "listeners: [[" + strings.Repeat("'' ", 199_000) + "]]",
		"anchors":                            "listeners: [[" + strings.Repeat("&a ", 399_000) + "]]",
		"dashes":                             "listeners:\n" + strings.Repeat("- \n", 399_000),
		"pairs in a list, as many as may be": "listeners: [[" + strings.Repeat("a: 1,", 47_000) + "]]",
		"words in a list, as many as may be": "listeners: [[" + strings.Repeat("a,", 119_000) + "]]",
		"lists in a list, as many as may be": "listeners: [[" + strings.Repeat("[],", 59_000) + "]]",
		"dashes in a list":                   "listeners: [[" + strings.Repeat("- ", 4_000_000) + "]]",
		"keys of nothing in a list":          "listeners: [[" + strings.Repeat("? ", 4_000_000) + "]]",
		"comments with brackets in a list":   "listeners: [[" + strings.Repeat("a, ", 90_000) + "#]\n" + strings.Repeat("a, ", 100_000) + "]]",
		"quotes in words in a list":          "listeners: [[a'b ]', " + strings.Repeat("a, ", 190_000) + "]]",
		"all in brackets":                    "{listeners: [" + strings.Repeat("a: 1,", 299_000) + "]}",
		"a list in a line of a list":         "- [" + strings.Repeat("a, ", 599_000) + "]",
		"a tag before brackets":              "listeners: !x [" + strings.Repeat("a, ", 599_000) + "]",
		"JSON":                               `{"listeners": [` + strings.Repeat("[],", 299_000) + "0]}",
		"JSON in a list":                     `{"listeners": [[` + strings.Repeat("{},", 299_000) + "0]]}",
		"keys in lines":                      "listeners:\n" + strings.Repeat("- a:\n", 239_000),
		"a key of many lines":                "listeners:\n" + strings.Repeat("  a: b\n", 299_000),
		"variables":                          "listeners: [{name: \"" + strings.Repeat("${BIG}", 10_000) + "\"}]",
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

// mostMemory is the memory that loading files may take, whatever their content. mostInBrackets
// is that of a file with a list in brackets. Both include garbage not yet collected.
const (
	mostMemory     = 384 << 20
	mostInBrackets = 160 << 20
)

// TestBombs: none of them loads, and the memory of each is bounded, also if several are
// included one after the other. This is not tested with the race detector, where it takes a
// minute: one goroutine reads them all, and the memory is the same.
func TestBombs(t *testing.T) {
	big := strings.Repeat("x", 60<<10)
	for name, text := range bombs() {
		load := func(tree config.Tree) {
			began := time.Now()
			var problems []config.Problem
			most, all := heap.Taken(func() { _, problems = config.LoadTree(tree, "/etc/p.yaml", variables("BIG", big)) })
			t.Logf("%s: %d files, %d problems, %d MiB, %d MiB one after the other, %v", name, len(tree), len(problems), most>>20, all>>20, time.Since(began).Round(time.Millisecond))
			if len(problems) == 0 {
				t.Errorf("%s: it loads", name)
			}
			if most > mostMemory || len(tree) == 1 && strings.Contains(name, "in a list") && most > mostInBrackets {
				t.Errorf("%s: it takes %d MiB", name, most>>20)
			}
			for _, p := range problems {
				if len(p.String()) > 8<<10 {
					t.Errorf("%s: a problem of %d bytes: %.200s", name, len(p.String()), p.String())
					break
				}
			}
		}
		load(config.Tree{"/etc/p.yaml": text})
		if strings.Contains(name, "in a list") && full.Everything() && !race.Enabled {
			tree := config.Tree{"/etc/p.yaml": "include: ['more/*.yaml']"}
			for i := range 4 {
				tree[fmt.Sprintf("/etc/more/%d.yaml", i)] = text
			}
			load(tree)
		}
	}
}

// TestTenThousandEndpoints take less than 64 MB, however they are written.
func TestTenThousandEndpoints(t *testing.T) {
	const n = 10_000
	const inLines = "listeners: [{name: l, bind: '127.0.0.1:0', upstream: u}]\nupstreams:\n- name: u\n  endpoints:\n"
	for name, c := range map[string]struct{ begins, each, ends string }{
		"JSON":                       {`{"listeners": [{"name": "l", "bind": ["127.0.0.1:0"], "upstream": "u"}], "upstreams": [{"name": "u", "endpoints": [{"address": "10.1.0.0:80"}`, `, {"address": "10.0.%d.%d:80", "name": "e%d", "weight": 2, "zone": "a"}`, `]}]}`},
		"groups of keys in brackets": {inLines[:len(inLines)-1] + " [\n", "  {address: \"10.0.%d.%d:80\", name: e%d, weight: 2, zone: a},\n", "  ]\n"},
		"groups of keys":             {inLines, "  - {address: \"10.0.%d.%d:80\", name: e%d, weight: 2, zone: a}\n", ""},
		"keys in lines":              {inLines, "  - address: 10.0.%d.%d:80\n    name: e%d\n    weight: 2\n    zone: a\n", ""},
	} {
		var b strings.Builder
		b.WriteString(c.begins)
		for i := range n {
			fmt.Fprintf(&b, c.each, i/200, i%200, i)
		}
		text := b.String() + c.ends
		var cfg *config.Config
		var problems []config.Problem
		most, all := heap.Taken(func() { cfg, problems = config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil) })
		t.Logf("%s: %d KiB take %d MiB, %d MiB one after the other", name, len(text)>>10, most>>20, all>>20)
		if most > 64<<20 || all > 64<<20 {
			t.Errorf("%s: it takes %d MiB, %d MiB one after the other", name, most>>20, all>>20)
		}
		if cfg == nil || len(cfg.Upstreams[0].Endpoints) < n {
			t.Errorf("%s: %.300v", name, problems)
		}
	}
}

// TestLarge: the largest files load, within the memory that any file may take: 200,000 names of servers, in one route or in
// as many routes as 50 listeners of the Gateway API with 4,096 names each, 100,000 networks of IPv6, and 50,000 endpoints, however they
// are written.
func TestLarge(t *testing.T) {
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	const front = "listeners:\n- name: l\n  bind: '127.0.0.1:0'\n  upstream: u\n"
	const back = "upstreams:\n- name: u\n  endpoints:\n  - 10.0.0.1:80\n"
	const route = "  - upstream: u\n    match:\n      sni:\n"
	routes := front + "  routes:\n"
	for i := range 50 {
		routes += route + lines(4096, fmt.Sprintf("      - shop-%%d.%d.example\n", i))
	}
	for name, text := range map[string]string{
		"routes":             routes + back,
		"networks":           front + "  allow:\n" + lines(50_000, "  - 2001:db8:%[1]x::/64\n  - 2001:db9:%[1]x::/64\n") + back,
		"endpoints in lines": front + back + lines(50_000, "  - address: e%[1]d.example:80\n    name: e%[1]d\n    weight: 2\n    zone: a\n"),
		"endpoints in JSON": `{"listeners": [{"name": "l", "bind": ["127.0.0.1:0"], "upstream": "u"}], "upstreams": [{"name": "u", "endpoints": [` +
			lines(50_000, `{"address": "e%[1]d.example:80", "name": "e%[1]d", "weight": 2, "zone": "a"}, `) + `"10.0.0.1:80"]}]}`,
	} {
		var cfg *config.Config
		var problems []config.Problem
		most, all := heap.Taken(func() {
			cfg, problems = config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		})
		t.Logf("%s: %d KiB take %d MiB, %d MiB one after the other", name, len(text)>>10, most>>20, all>>20)
		if most > mostMemory {
			t.Errorf("%s: it takes %d MiB", name, most>>20)
		}
		if cfg == nil {
			t.Errorf("%s: %.300v", name, problems)
		}
	}
}

// TestTenThousandInBrackets: so many endpoints may be written in brackets within brackets, though
// the parser keeps them all.
func TestTenThousandInBrackets(t *testing.T) {
	for name, c := range map[string]struct{ begins, each, ends string }{
		"a list of upstreams": {"listeners: [{name: l, bind: '127.0.0.1:0', upstream: u}]\nupstreams: [{name: u, endpoints: [\n", "{address: \"10.0.%d.%d:80\", name: e%d, weight: 2, zone: a},\n", "]}]\n"},
		"all of it":           {"{listeners: [{name: l, bind: '127.0.0.1:0', upstream: u}], upstreams: [{name: u, endpoints: [", "{address: '10.0.%d.%d:80', name: e%d, weight: 2, zone: a}, ", "]}]}"},
	} {
		var b strings.Builder
		b.WriteString(c.begins)
		for i := range 10_000 {
			fmt.Fprintf(&b, c.each, i/200, i%200, i)
		}
		var cfg *config.Config
		var problems []config.Problem
		most, _ := heap.Taken(func() {
			cfg, problems = config.LoadTree(config.Tree{"/etc/p.yaml": b.String() + c.ends}, "/etc/p.yaml", nil)
		})
		t.Logf("%s: %d MiB", name, most>>20)
		if cfg == nil || len(cfg.Upstreams[0].Endpoints) != 10_000 || most > mostInBrackets {
			t.Errorf("%s: it takes %d MiB: %.300v", name, most>>20, problems)
		}
	}
}

// FuzzLoad: any file gives a Config or problems. A file that loads equals its printed form,
// and is valid by the schema.
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
			if p.Message == "" || p.String() == "" || display.Text(p.Error()) != p.Error() || display.Lines(p.String()) != p.String() {
				t.Fatalf("problem %+v", p)
			}
		}
		found, _ := config.AdminBindTree(tree, "/etc/p.yaml", env)
		if cfg == nil {
			return
		}
		if (cfg.Admin == nil) != (found == nil) || found != nil && found.Bind.String() != cfg.Admin.Bind.String() {
			t.Fatalf("asked at %+v, and listens at %+v", found, cfg.Admin)
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
