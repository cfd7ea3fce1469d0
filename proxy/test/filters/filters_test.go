// Package filters_test builds the filters of examples/filters, and asks them about clients.
package filters_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

func TestMain(m *testing.M) { leak.Main(m) }

func build(t testing.TB, name string) []byte {
	t.Helper()
	const root = "../../.."
	if _, err := os.Stat(filepath.Join(root, "examples", "filters")); err != nil {
		t.Skip("the examples are not here: this module is tested by itself")
	}
	to := filepath.Join(t.TempDir(), name+".wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", to, "./examples/filters/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile(to)
	must(t, err)
	return code
}

// load loads a filter with 8 MiB, and with all the time that a machine needs that has other work to do.
func load(t testing.TB, code []byte, cfg filter.Config) *filter.Filter {
	t.Helper()
	cfg.Name, cfg.Timeout, cfg.OnError = "example", 10*time.Second, filter.Deny
	cfg.Bounds.Memory, cfg.Bounds.Start = 8<<20, time.Minute
	f, err := filter.New(t.Context(), code, cfg)
	must(t, err)
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
	a, _ := c.Answer()
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return a
}

// interpreted begins sooner than compiled.
var interpreted = wasm.Bounds{Interpret: true}

// TestExamples: the filters of examples/filters do what their comments say.
func TestExamples(t *testing.T) {
	software.Long(t, "filters that the Go compiler makes")
	t.Run("names", func(t *testing.T) {
		f := load(t, build(t, "names"), filter.Config{Config: "a.example  B.example\n", Preread: 100})
		for name, want := range map[string]filter.Verdict{"a.example": filter.Allow, "b.example": filter.Allow, "c.example": filter.Deny, "": filter.Deny} {
			if a := ask(t, f, filter.Connection{ServerName: name, First: []byte("x")}); a.Verdict != want {
				t.Errorf("%q: %+v", name, a)
			}
		}
	})
	t.Run("rate", func(t *testing.T) {
		f := load(t, build(t, "rate"), filter.Config{Config: "0.001", Bounds: interpreted})
		for i, want := range []filter.Verdict{filter.Allow, filter.Deny, filter.Deny} {
			if a := ask(t, f, filter.Connection{Source: netip.MustParseAddrPort("192.0.2.1:5")}); a.Verdict != want {
				t.Errorf("client %d: %+v", i, a)
			}
		}
		if a := ask(t, f, filter.Connection{Source: netip.MustParseAddrPort("192.0.2.2:5")}); a.Verdict != filter.Allow {
			t.Errorf("another address: %+v", a)
		}
	})
	t.Run("protocol", func(t *testing.T) {
		f := load(t, build(t, "protocol"), filter.Config{Preread: 8, Upstreams: []string{"web"}, Bounds: interpreted})
		for first, want := range map[string]filter.Answer{
			"GET / HT": {Verdict: filter.Route, Upstream: "web", Tags: "protocol=http"}, "GE": {Verdict: filter.More},
			"SSH-2.0": {Tags: "protocol=ssh"}, "\x16\x03\x01": {Tags: "protocol=tls"}, "*1\r\n$4\r\n": {Tags: "protocol=unknown"},
		} {
			if a := ask(t, f, filter.Connection{First: []byte(first)}); a != want {
				t.Errorf("%q: %+v, want %+v", first, a, want)
			}
		}
	})
}

// BenchmarkExample: the filter of examples/filters/names is asked, compiled and interpreted.
func BenchmarkExample(b *testing.B) {
	code := build(b, "names")
	for _, engine := range []string{wasm.Compiler, wasm.Interpreter} {
		b.Run(engine, func(b *testing.B) {
			f := load(b, code, filter.Config{Config: "a.example", Preread: 100, Bounds: wasm.Bounds{Interpret: engine == wasm.Interpreter}})
			of := filter.Connection{ServerName: "a.example", First: []byte(strings.Repeat("x", 100))}
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				ask(b, f, of)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
