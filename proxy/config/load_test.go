package config_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/sockopt"
)

// apart ignores positions.
var apart = cmp.Options{
	cmpopts.IgnoreTypes(config.Pos{}),
	cmpopts.IgnoreFields(config.Config{}, "Files", "Globs", "Warnings", "reading"),
	cmpopts.EquateComparable(config.Rule{}, netip.Addr{}),
	cmpopts.EquateEmpty(),
}

// variables is an environment.
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

// load loads a text, which must be good.
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

// smallest is the smallest file that works.
const smallest = `
listeners: [{name: db, bind: ":5432", upstream: pg}]
upstreams: [{name: pg, endpoints: ["10.0.0.11:5432", "10.0.0.12:5432"]}]
`

func TestSmallestFile(t *testing.T) {
	cfg := load(t, smallest)
	ln, u := cfg.Listeners[0], cfg.Upstreams[0]
	if ln.Name != "db" || ln.Upstream != "pg" || len(ln.Bind) != 1 || ln.Bind[0].String() != ":5432" {
		t.Errorf("listener %+v", ln)
	}
	want := config.Timeouts{
		Pos: ln.Timeouts.Pos, Preread: 5 * time.Second, Connect: 5 * time.Second, Idle: time.Hour,
		HalfClose: time.Minute, LifetimeJitter: 0.1,
	}
	if ln.Timeouts != want {
		t.Errorf("timeouts %+v", ln.Timeouts)
	}
	if ln.AcceptProxy != nil || ln.TLS != nil || u.Discover != nil || u.ZoneAware != nil || u.Fallback != nil || u.TLS != nil || cfg.Admin == nil || !cfg.Admin.Bind.Auto() {
		t.Error("a section exists that the file lacks")
	}
	if u.HealthCheck == nil || u.HealthCheck.Type != "tcp" || u.HealthCheck.HTTP.Path != "/" || !slices.Equal(u.HealthCheck.HTTP.Status, []int{200}) {
		t.Errorf("health check %+v", u.HealthCheck)
	}
	if u.OutlierDetection == nil || u.OutlierDetection.ConsecutiveFailures != 5 || u.CircuitBreaker == nil || u.CircuitBreaker.Open != time.Minute {
		t.Error("outlier detection and circuit breaker are on by default")
	}
	wantEndpoint := config.Endpoint{
		Pos:     config.Pos{File: "/etc/p.yaml", Line: 3, Column: 36},
		Address: sockopt.Address{Network: "tcp", Name: "10.0.0.11:5432"}, Name: "10.0.0.11:5432", Weight: 1, State: config.Ready,
	}
	if u.Endpoints[0] != wantEndpoint {
		t.Errorf("endpoint %+v, want %+v", u.Endpoints[0], wantEndpoint)
	}
}

// whole has every key, with values that are not the defaults.
func whole(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wholeTree is the file and the files that it names.
func wholeTree(t *testing.T) config.Tree {
	t.Helper()
	cert, key := certificate(t, "a.example")
	return config.Tree{
		"/etc/p.yaml": whole(t), "/etc/a.pem": cert, "/etc/a.key": key, "/etc/ca.pem": cert,
		"/etc/sorry.txt": "-ERR sorry\r\n", "/etc/password": "s3cret\n", "/etc/token": "t0ken\n", "/etc/read": "0123456789abcdef\n", "/etc/change": "fedcba9876543210\n",
		"/etc/names.wasm": filterModule(), "/etc/words.wasm": string(rewriterOf("proxy_on_upstream_data").Bytes()),
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
	if want := []string{"/etc/p.yaml", "/etc/read", "/etc/change", "/etc/token", "/etc/names.wasm", "/etc/words.wasm", "/etc/password", "/etc/sorry.txt"}; !slices.Equal(cfg.Files, want) {
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

func TestFilesOfTheFileSystem(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p.yaml": "include: ['conf.d/*.yaml']\n" + smallest, "conf.d/a.yaml": "limits: {per_second: 7}",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, problems := config.Load(filepath.Join(dir, "p.yaml"), nil)
	if len(problems) > 0 || cfg.Limits.PerSecond != 7 {
		t.Fatalf("%+v, %v", cfg, problems)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "none.yaml: cannot be read: no such file or directory",
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
