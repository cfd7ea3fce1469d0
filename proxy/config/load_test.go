package config_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	selfsigned "github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// apart ignores positions.
var apart = cmp.Options{
	cmpopts.IgnoreTypes(config.Pos{}),
	cmpopts.IgnoreFields(config.Config{}, "Files", "Globs", "Warnings", "reading"),
	cmpopts.EquateComparable(config.Rule{}, netip.Addr{}),
	cmpopts.EquateEmpty(),
}

func variables(pairs ...string) config.Env {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func load(t *testing.T, text string, env ...string) *config.Config {
	t.Helper()
	return loadTree(t, config.Tree{"/etc/p.yaml": text}, env...)
}

func loadTree(t *testing.T, tree config.Tree, env ...string) *config.Config {
	t.Helper()
	cfg, problems := config.LoadTree(tree, "/etc/p.yaml", variables(env...))
	for _, p := range problems {
		t.Errorf("%v", p.String())
	}
	if cfg == nil {
		t.FailNow()
	}
	return cfg
}

const smallest = `
listeners: [{name: db, bind: ":5432", upstream: pg}]
upstreams: [{name: pg, endpoints: ["10.0.0.11:5432", "10.0.0.12:5432"]}]
`

// whole has every key, with values that are not the defaults.
func whole(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/whole.yaml")
	must(t, err)
	return string(text)
}

func wholeTree(t *testing.T) config.Tree {
	t.Helper()
	cert, key := certificate(t, "a.example")
	return config.Tree{
		"/etc/p.yaml": whole(t), "/etc/a.pem": cert, "/etc/a.key": key, "/etc/ca.pem": cert,
		"/etc/sorry.txt": "-ERR sorry\r\n", "/etc/password": "s3cret\n", "/etc/token": "t0ken\n", "/etc/read": "0123456789abcdef\n", "/etc/change": "fedcba9876543210\n",
		"/etc/names.wasm": filterModule(), "/etc/words.wasm": filterModule(),
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	cfg := loadTree(t, wholeTree(t), "ZONE", "b", "HOST", "shop")
	// A value that is the default was not read, or is no test.
	plain := load(t, smallest)
	for _, pair := range [][2]any{
		{cfg.Listeners[0].Limits, plain.Listeners[0].Limits},
		{cfg.Listeners[0].Timeouts, plain.Listeners[0].Timeouts},
		{cfg.Listeners[0].Socket, plain.Listeners[0].Socket},
		{*cfg.Upstreams[0].OutlierDetection, *plain.Upstreams[0].OutlierDetection},
		{*cfg.Upstreams[0].CircuitBreaker, *plain.Upstreams[0].CircuitBreaker},
		{cfg.Upstreams[0].Retry, plain.Upstreams[0].Retry},
		{cfg.Upstreams[0].Queue, plain.Upstreams[0].Queue},
	} {
		for _, key := range equalFields(pair[0], pair[1]) {
			t.Errorf("%T.%s has its default", pair[0], key)
		}
	}
	for _, k := range config.Keys() {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if !strings.Contains(whole(t), name+":") && k.Path != "include" {
			t.Errorf("%s is not in testdata/whole.yaml", k.Path)
		}
	}
	if want := []string{"/etc/p.yaml", "/etc/read", "/etc/change", "/etc/token", "/etc/words.wasm", "/etc/names.wasm", "/etc/password", "/etc/sorry.txt"}; !slices.Equal(cfg.Files, want) {
		t.Errorf("files %q, want %q", cfg.Files, want)
	}
	u := cfg.Upstreams[0]
	if got := u.HealthCheck.Send; got.Value != "s3cret" || got.Source != "file:/etc/password" {
		t.Errorf("secret %+v", got)
	}
	if got := cfg.Listeners[0].Routes[1].Match.SNI[0]; got != "shop.example.com" {
		t.Errorf("sni %q", got)
	}
	if got := u.Fallback.Respond; string(got.Bytes) != "-ERR sorry\r\n" || got.Path != "/etc/sorry.txt" {
		t.Errorf("respond %+v", got)
	}
	l := &cfg.Listeners[0].Limits
	if got, want := l.Bandwidth, (config.Bandwidth{Pos: l.Bandwidth.Pos, Both: 64 << 20, Up: 10 << 20, Down: 60e6, Burst: 1 << 20}); got != want {
		t.Errorf("bandwidth %+v", got)
	}
	if got, want := l.BandwidthPerConnection, (config.Bandwidth{Pos: l.BandwidthPerConnection.Pos, Both: 1e6}); got != want || got.Pos.Line != 23 {
		t.Errorf("bandwidth of a connection %+v", got)
	}
	if got := u.SourceAddress; got != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("source_address %v", got)
	}
}

func TestIncludes(t *testing.T) {
	cfg := loadTree(t, config.Tree{
		"/etc/p.yaml":             "include: [conf.d/*.yaml, more/x.yaml]\nlisteners: [{name: a, bind: ':1', upstream: u}]",
		"/etc/conf.d/20.yaml":     "upstreams: [{name: v, endpoints: ['h:1']}]",
		"/etc/conf.d/10.yaml":     "# nothing\n",
		"/etc/conf.d/not.txt":     "nonsense",
		"/etc/more/x.yaml":        "include: [deep/*.yaml, ../p.yaml]\nlisteners: [{name: b, bind: ':2', upstream: v, tls: {certificates: [{cert: c, key: k}]}}]",
		"/etc/more/deep/y.yaml":   "limits: {connections: 5}\nupstreams: [{name: u, endpoints: ['h:2']}]",
		"/etc/more/c":             first(certificate(t, "b")),
		"/etc/more/k":             second(certificate(t, "b")),
		"/etc/more/deep/z.json":   "{]",
		"/etc/more/deep/zz.yaml~": "x: 1",
	})
	want := []string{"/etc/p.yaml", "/etc/conf.d/10.yaml", "/etc/conf.d/20.yaml", "/etc/more/x.yaml", "/etc/more/deep/y.yaml"}
	if !slices.Equal(cfg.Files, want) {
		t.Errorf("files %q", cfg.Files)
	}
	if want := []string{"/etc/conf.d/*.yaml", "/etc/more/x.yaml", "/etc/more/deep/*.yaml", "/etc/p.yaml"}; !slices.Equal(cfg.Globs, want) {
		t.Errorf("globs %q", cfg.Globs)
	}
	if cfg.Limits.Connections != 5 || len(cfg.Listeners) != 2 || len(cfg.Upstreams) != 2 || len(cfg.Include) != 0 {
		t.Errorf("%+v", cfg)
	}
	if got := cfg.Listeners[1].Pos; got != (config.Pos{File: "/etc/more/x.yaml", Line: 2, Column: 13}) {
		t.Errorf("the second listener is in %v", got)
	}
	if got := cfg.Listeners[1].TLS.Certificates[0].Cert; got != "/etc/more/c" {
		t.Errorf("its certificate is %v: paths are relative to the file that has them", got)
	}
}

// TestRelativeSockets: the path of a socket in a file is relative to the directory of the file, not to the current directory.
func TestRelativeSockets(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("d", 100)
	tree := config.Tree{
		"/etc/p.yaml":         "include: [more/x.yaml]\nadmin: {bind: 'unix:admin.sock?mode=0600'}\nupstreams: [{name: u, endpoints: ['unix:../run/e', 'unix:@e', {address: 'unix:/run//e', name: n}]}]",
		"/etc/more/x.yaml":    "listeners: [{name: a, bind: ['unix:./l', 'unix:@l'], upstream: u}]",
		long + "/p.yaml":      "admin: {bind: 'unix:admin.sock'}" + smallest,
		"/etc/directory.yaml": "admin: {bind: 'unix:more/'}" + smallest,
	}
	cfg := loadTree(t, tree)
	got := []string{cfg.Admin.Bind.String(), cfg.Listeners[0].Bind[0].String(), cfg.Listeners[0].Bind[1].String()}
	for _, e := range cfg.Upstreams[0].Endpoints {
		got = append(got, e.Name, e.Address.String())
	}
	want := []string{"unix:/etc/admin.sock?mode=0600", "unix:/etc/more/l", "unix:@l", "unix:/run/e", "unix:/run/e", "unix:@e", "unix:@e", "n", "unix:/run//e"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if a, _ := config.AdminBindTree(tree, "/etc/p.yaml", variables()); a == nil || a.Bind.String() != want[0] {
		t.Errorf("a command finds %v", a)
	}
	list, err := config.ParseEndpoints("/etc/more/eps", []byte("['unix:e']"), 1)
	if err != nil || list[0].Address.String() != "unix:/etc/more/e" {
		t.Errorf("%v, %v", list, err)
	}
	for path, want := range map[string]string{
		long + "/p.yaml":      long + `/admin.sock" is not an address`,
		"/etc/directory.yaml": `"more/" is a directory`,
	} {
		if _, problems := config.LoadTree(tree, path, variables()); len(problems) != 1 || !strings.HasSuffix(problems[0].Message, want) {
			t.Errorf("%s: %v", path, problems)
		}
	}
	dir, err := os.Getwd()
	must(t, err)
	if e, err := config.NewEndpoint(&config.EndpointKeys{Address: "unix:e", Weight: 1}); err != nil || e.Name != "unix:"+dir+"/e" {
		t.Errorf("no file has it: %v, %v", e, err)
	}
}

func TestFilesOfTheFileSystem(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p.yaml": "include: ['conf.d/*.yaml']\n" + smallest, "conf.d/a.yaml": "limits: {per_second: 7}",
	} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	cfg, problems := config.Load(filepath.Join(dir, "p.yaml"), nil)
	if len(problems) > 0 || cfg.Limits.PerSecond != 7 {
		t.Fatalf("%+v, %v", cfg, problems)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "none.yaml: no such file",
		dir:                             "cannot be read: not a regular file",
		"/dev/zero":                     "/dev/zero: cannot be read: not a regular file",
	} {
		if _, problems := config.Load(path, nil); len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("Load(%s): %v, want %s", path, problems, want)
		}
	}
}

func TestVariables(t *testing.T) {
	cfg := load(t, `
x-socket: &socket {backlog: "${BACKLOG}", fastopen: "${YES}"}
listeners:
  - name: l-${N}
    bind: "${HOST}:${PORT}"
    upstream: u
    timeouts: {idle: "${IDLE}"}
    limits: {bandwidth: "${RATE}"}
    socket: *socket
upstreams: [{name: u, endpoints: ['h:1'], health_check: {send: "$$${N}$$$x", expect: "${N}"}}]
`, "N", "7", "HOST", "127.0.0.1", "PORT", "80", "IDLE", "9s", "RATE", "1KiB", "BACKLOG", "12", "YES", "true")
	ln := cfg.Listeners[0]
	if ln.Name != "l-7" || ln.Bind[0].String() != "127.0.0.1:80" || ln.Timeouts.Idle != 9*time.Second ||
		ln.Limits.Bandwidth.Both != 1024 || ln.Socket.Backlog != 12 || !ln.Socket.FastOpen {
		t.Errorf("%+v", ln)
	}
	h := cfg.Upstreams[0].HealthCheck
	if h.Send != (config.Secret{Value: "$7$$x", Source: "$$${N}$$$x"}) || h.Expect != (config.Secret{Value: "7", Source: "${N}"}) {
		t.Errorf("%+v %+v", h.Send, h.Expect)
	}
}

func TestAliasesAndMerges(t *testing.T) {
	cfg := load(t, `
x-common: &common {connect: on_data, upstream: u, timeouts: {idle: 1m}}
x-more: &more {connect: immediately, transparent: true}
listeners:
  - {<<: *common, name: a, bind: ":1"}
  - {name: b, bind: ":2", timeouts: {preread: 1s}, <<: *common}
  - {name: c, <<: [*more, *common], bind: ":3"}
upstreams: [&u {name: u, endpoints: ['h:1']}]
`)
	var got []string
	for _, ln := range cfg.Listeners {
		got = append(got, ln.Connect+" "+ln.Upstream+" "+ln.Timeouts.Idle.String())
	}
	if want := []string{"on_data u 1m0s", "on_data u 1h0m0s", "immediately u 1m0s"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestJSON(t *testing.T) {
	cfg := load(t, "{\r\n\t\"listeners\": [\r\n\t\t{\"name\": \"a\", \"bind\": [\":1\"], \"upstream\": \"u\"}\r\n\t],\r\n"+
		"\t\"upstreams\": [{\"name\": \"u\", \"endpoints\": [\"h:1\"], \"health_check\": {\"send\": \"\\/\\ud83d\\ude00\\\\ud83d\\u0000\"}, \"outlier_detection\": false}]\r\n}\r\n")
	if got := cfg.Upstreams[0].HealthCheck.Send.Value; got != "/😀\\ud83d\x00" {
		t.Errorf("%q", got)
	}
	if cfg.Upstreams[0].OutlierDetection != nil {
		t.Error("outlier detection is on")
	}
}

func first(a, _ string) string  { return a }
func second(_, b string) string { return b }

// TestChecksSpeakTLSAsClientsDo: if clients are connected by TLS, a check that expects an
// answer speaks TLS too, at the same port, unless the file says otherwise.
func TestChecksSpeakTLSAsClientsDo(t *testing.T) {
	for text, want := range map[string]config.HealthCheck{
		"tls: {sni: a.test}, health_check: {type: http}":                     {TLS: true, SNI: "a.test"},
		"tls: {sni: a.test}, health_check: {send: x, expect: y}":             {TLS: true, SNI: "a.test"},
		"tls: {sni: a.test}, health_check: {type: http, sni: b.test}":        {TLS: true, SNI: "b.test"},
		"tls: {sni: a.test}, health_check: {tls: true}":                      {TLS: true, SNI: "a.test"},
		"tls: {sni: a.test}, health_check: {type: http, tls: false}":         {},
		"tls: {sni: a.test}, health_check: {type: http, port: 8008}":         {},
		"tls: {sni: a.test}, health_check: {type: http, port: 1, tls: true}": {TLS: true},
		"tls: {sni: a.test}, health_check: {interval: 1s}":                   {},
		"tls: {sni: a.test}":                  {},
		"health_check: {type: http}":          {},
		"tls: {}, health_check: {type: http}": {TLS: true},
	} {
		got := load(t, `
listeners: [{name: l, bind: ":1", upstream: u}]
upstreams: [{name: u, endpoints: ["h:1"], `+text+`}]`).Upstreams[0].HealthCheck
		if got.TLS != want.TLS || got.SNI != want.SNI {
			t.Errorf("%s: tls %v, sni %q; want %v, %q", text, got.TLS, got.SNI, want.TLS, want.SNI)
		}
	}
}

// TestACheckEndsBeforeTheNext: the default time of a check, and between two fast ones, is no longer than the
// interval. With a longer one an endpoint that is stopped is found as much later.
func TestACheckEndsBeforeTheNext(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.HealthCheck{
		"{}":                                {Timeout: 2 * time.Second, FastInterval: time.Second},
		"{interval: 1s}":                    {Timeout: time.Second, FastInterval: time.Second},
		"{interval: 300ms}":                 {Timeout: 300 * time.Millisecond, FastInterval: 300 * time.Millisecond},
		"{interval: 1s, timeout: 2s}":       {Timeout: 2 * time.Second, FastInterval: time.Second},
		"{interval: 1s, fast_interval: 1s}": {Timeout: time.Second, FastInterval: time.Second},
		"{interval: 1h}":                    {Timeout: 2 * time.Second, FastInterval: time.Second},
	} {
		got := load(t, `
listeners: [{name: l, bind: ":1", upstream: u}]
upstreams: [{name: u, endpoints: ["h:1"], health_check: `+text+`}]`).Upstreams[0].HealthCheck
		if got.Timeout != want.Timeout || got.FastInterval != want.FastInterval {
			t.Errorf("%s: timeout %v, fast_interval %v; want %v, %v", text, got.Timeout, got.FastInterval, want.Timeout, want.FastInterval)
		}
	}
}

// FuzzJSON: the JSON reader gives the same nodes as the YAML parser, at the same positions.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a": [1, -2.5e3, true, false, null, "x\n\"\\\/\u00e9", {}, []], "b": {"c": {"d": ""}}}`, "{\n\t\"a\":1 ,\r\n \"é\" : [\n{\"b\":2}]\n}\n",
		`{"a": 18446744073709551615, "b": 18446744073709551616, "c": -9223372036854775809, "d": 1e400, "e": -0, "f": 0.0}`, ` {"<<": {"a": 1}, "": 0}`, `["a", {"b": [1]}]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := config.JSON(text)
		if n == nil {
			return
		}
		var doc yaml.Node
		if yaml.Load([]byte(text), &doc) != nil { // because of pairs, or of text that is no key to YAML
			return
		}
		if d := cmp.Diff(doc.Content[0], n, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	})
}

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
		"a long prefix of tags":              "%TAG !e! tag:" + strings.Repeat("x", 1<<20) + "\n---\nlisteners: [" + strings.Repeat("!e!b c,", 1000) + "]",
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
// is that of a file with a list in brackets. Both include garbage not yet collected, which is more on a busy machine.
const (
	mostMemory     = 384 << 20
	mostInBrackets = 192 << 20
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

// TestRepeatedTexts: the bytes of texts that aliases repeat are bounded, wherever the alias is.
func TestRepeatedTexts(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("x", 256<<10) + `"`
	for name, text := range map[string]string{
		"a value":            "x-a: &a " + long + "\nupstreams: [" + strings.Repeat("{health_check: {send: *a}},", 300) + "]",
		"a value of a group": "x-a: &a {send: " + long + "}\nupstreams: [" + strings.Repeat("{health_check: *a},", 300) + "]",
		"a value of a list":  "x-a: &a " + long + "\nlisteners: [{filter: {upstreams: [" + strings.Repeat("*a,", 300) + "]}}]",
		"text for a list":    "x-a: &a " + long + "\nupstreams: [" + strings.Repeat("{endpoints: *a},", 300) + "]",
		"text for groups":    "x-a: &a " + long + "\nupstreams: [{health_check: {<<: [" + strings.Repeat("*a,", 300) + "]}}]",
		"a key":              "x-a: &a {? " + long + "}\nupstreams: [" + strings.Repeat("*a,", 300) + "]",
	} {
		_, problems := config.Parse("p.yaml", []byte(text), nil)
		if !slices.ContainsFunc(problems, func(p config.Problem) bool { return strings.Contains(p.Message, "too large with its aliases") }) {
			t.Errorf("%s: %d problems, none of them about its size", name, len(problems))
		}
	}
}

// TestRepeatedFiles: it is the configuration that is too large, and not each of the files and variables that it repeats.
func TestRepeatedFiles(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 64<<10)
	for _, value := range []string{"{send: 'file:big'}", "{send: '${BIG}'}"} {
		text := "listeners: [{name: l, bind: ':1', upstream: u}]\nupstreams: [" + strings.Repeat("{name: u, endpoints: ['192.0.2.1:1'], health_check: "+value+"},", 1100) + "]"
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text, "/etc/big": big}, "/etc/p.yaml", variables("BIG", big))
		if len(problems) != 1 || !strings.Contains(problems[0].Message, "and its files read") {
			t.Errorf("%s: %v", value, problems[:min(len(problems), 3)])
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
		"one route":          front + "  routes:\n" + route + lines(200_000, "      - shop-%d.example\n") + back,
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

// TestKept: a configuration that was kept as text is the same, positions included, without its files, its variables and its certificates.
func TestKept(t *testing.T) {
	t.Parallel()

	env := []string{"ZONE", "b", "HOST", "shop"}
	for _, text := range []string{smallest, whole(t), "include: [conf.d/*.yaml]\n" + smallest} {
		tree := wholeTree(t)
		tree["/etc/p.yaml"], tree["/etc/conf.d/a.yaml"] = text, "upstreams: [{name: included, endpoints: ['${HOST}:1']}]"
		cfg := loadTree(t, tree, env...)
		kept := cfg.Keep()
		clear(tree)
		again, err := kept.Load()
		must(t, err)
		same := cmp.Options{
			cmpopts.IgnoreFields(config.Config{}, "Warnings"), cmpopts.IgnoreUnexported(config.Config{}),
			cmpopts.EquateComparable(config.Rule{}, netip.Addr{}), cmpopts.EquateEmpty(),
		}
		if d := cmp.Diff(cfg, again, same); d != "" {
			t.Error(d)
		}
		if changes := config.Diff(cfg, again); len(changes) > 0 {
			t.Error(changes)
		}
		if again.Keep() == nil || again.Origin() != cfg.Origin() || cfg.Origin() == loadTree(t, config.Tree{"/etc/p.yaml": smallest}).Origin() {
			t.Error("it is not known as the same")
		}
	}
	if cfg, problems := config.Parse("flags", []byte(smallest), nil); cfg == nil || cfg.Keep() != nil {
		t.Errorf("a configuration without a file is kept as text: %v", problems)
	}
	if _, err := new(config.Kept).Load(); err == nil || errors.Unwrap(err) == nil {
		t.Error(err)
	}
}

var (
	pairsMu sync.Mutex
	pairs   = make(map[string][2]string)
)

// certificate returns one for a name, and its key, the same ones for the same name.
func certificate(t testing.TB, name string) (cert, key string) {
	t.Helper()
	pairsMu.Lock()
	defer pairsMu.Unlock()
	if p, ok := pairs[name]; ok {
		return p[0], p[1]
	}
	cert, key = selfsigned.New(t, name)
	pairs[name] = [2]string{cert, key}
	return cert, key
}

// equalFields returns the fields, except for Pos, that two structs have in common.
func equalFields(a, b any) (names []string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		name := va.Type().Field(i).Name
		if name != "Pos" && reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}

// TestLaneDefault: listeners that write no lane have that of the section, a change of which takes no restart.
func TestLaneDefault(t *testing.T) {
	text := func(value string) string {
		return "lane: {default: " + value + "}\nlisteners: [{name: a, bind: ':1', upstream: u}, {name: b, bind: ':2', upstream: u, lane: require}, {name: c, bind: ':3', upstream: u, lane: off}]\nupstreams: [{name: u, endpoints: ['h:1']}]\n"
	}
	for value, want := range map[string][]string{
		config.LaneAuto: {config.LaneAuto, config.LaneRequire, config.LaneOff}, config.LaneOff: {config.LaneOff, config.LaneRequire, config.LaneOff},
	} {
		var got []string
		for _, ln := range load(t, text(value)).Listeners {
			got = append(got, ln.Lane)
		}
		if !slices.Equal(got, want) {
			t.Errorf("default: %s: %v, want %v", value, got, want)
		}
	}
	old, next := load(t, text(config.LaneAuto)), load(t, text(config.LaneOff))
	if keys := old.Lane.Lasting(&next.Lane); len(keys) != 0 {
		t.Errorf("after a restart: %v", keys)
	}
	var changed []string
	for _, c := range config.Diff(old, next) {
		changed = append(changed, c.String())
	}
	if want := []string{"lane changed: default: auto → off", "listener a changed: lane: auto → off"}; !slices.Equal(changed, want) {
		t.Errorf("%q, want %q", changed, want)
	}
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestIncludesDoNotMultiply: a pattern that many files have is matched and watched once. The order of the files is as if
// each file had included the others. Too many names, patterns or files are one problem.
func TestIncludesDoNotMultiply(t *testing.T) {
	t.Parallel()
	many := func(n int, text func(i int) string) config.Tree {
		tree := config.Tree{"/etc/p.yaml": smallest + "include: [b*.yaml]\n"}
		for i := range n {
			tree[fmt.Sprintf("/etc/b%04d.yaml", i)] = text(i)
		}
		return tree
	}
	include := func(entries string) func(int) string {
		return func(int) string { return "include: [" + entries + "]\n" }
	}
	cfg := loadTree(t, many(1000, include("'b*.yaml', 'b0*'")))
	if want := []string{"/etc/b*.yaml", "/etc/b0*"}; !slices.Equal(cfg.Globs, want) {
		t.Errorf("%d patterns are watched, %q…, want %q", len(cfg.Globs), cfg.Globs[:min(4, len(cfg.Globs))], want)
	}
	if len(cfg.Files) != 1001 || !slices.IsSorted(cfg.Files[1:]) {
		t.Errorf("%d files", len(cfg.Files))
	}
	if _, problems := config.Parse("p.yaml", []byte("include: [none.yaml, none.yaml]\n"+smallest), nil); len(problems) != 1 {
		t.Errorf("a text without a file: %v", problems)
	}
	const names, files = "the files include too many names and patterns", "there are more than 4096 files"
	for what, c := range map[string]struct {
		tree config.Tree
		want string
	}{
		"names": {many(50, include(strings.Repeat("p.yaml,", 2000))), names},
		"patterns": {many(50, func(i int) string {
			var list strings.Builder
			for k := range 100 {
				fmt.Fprintf(&list, "'x%d-%d*', ", i, k)
			}
			return "include: [" + list.String() + "]\n"
		}), names},
		"matches": {many(1000, func(i int) string { return fmt.Sprintf("include: ['[b%d]*.yaml']\n", i) }), names},
		"files":   {many(5000, include("")), files},
	} {
		_, problems := config.LoadTree(c.tree, "/etc/p.yaml", nil)
		if len(problems) != 1 || !strings.Contains(problems[0].Message, c.want) {
			t.Errorf("%s: %d problems, %v, want %q", what, len(problems), problems[:min(2, len(problems))], c.want)
		}
	}
}
