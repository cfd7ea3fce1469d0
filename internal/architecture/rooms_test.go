package architecture

import (
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/penstock/penstock"

// A room is a package, or with a trailing "/..." a tree of packages, and the
// rooms that it may import. Every package of the module is in one.
type room struct {
	name    string
	imports []string
}

// The rooms from the ground up: each imports rooms above it in this table only.
var rooms = []room{
	{"internal/sys", nil},
	{"internal/feature", []string{"internal/sys"}},
	{"internal/closed", nil},
	{"internal/pathcall", nil},
	{"internal/callsite", nil}, // imported with the build tag invariants alone
	{"internal/topology", []string{"internal/sys"}},
	{"internal/testutil/...", []string{"internal/sys", "internal/feature", "internal/testutil/..."}},
	{"pool", []string{"internal/closed", "internal/sys", "internal/callsite"}},
	{"pipe", []string{"internal/closed", "internal/sys", "internal/feature", "internal/callsite", "pool"}},
	{"evring", []string{"internal/closed", "internal/sys", "internal/feature"}},
	{"arena", []string{"internal/closed", "internal/sys", "internal/feature", "internal/callsite"}},
	{"vecio", []string{"internal/closed", "internal/sys", "internal/feature", "internal/callsite", "pool"}},
	{"internal/doctor", []string{"internal/sys", "internal/feature", "pipe", "arena"}},
	{"loop", []string{"internal/closed", "internal/pathcall", "internal/sys", "internal/feature", "evring"}},
	{"relay/driver", nil},
	{"relay", []string{"relay/driver", "internal/sys", "internal/feature", "internal/closed", "pool", "pipe", "arena", "loop"}},
	{"lane/internal/state", nil},
	{"lane/internal/translate", nil},
	{"lane/internal/frame", nil},
	{"lane/internal/program", []string{"internal/sys", "lane/internal/state", "lane/internal/translate"}},
	{"lane/lossy", nil},
	{"lane", []string{"internal/sys", "lane/internal/state", "lane/internal/translate", "lane/internal/program"}},
	{"proxy/clienthello", nil},
	{"proxy/internal/clientkey", nil},
	{"proxy/display", nil},
	{"proxy/internal/compare", nil},
	{"proxy/internal/completion", nil},
	{"proxy/internal/episode", nil},
	{"proxy/internal/file", []string{"internal/sys"}},
	{"proxy/internal/keypair", []string{"proxy/internal/file"}},
	{"proxy/internal/lb", nil},
	{"proxy/internal/monitor", nil},
	{"proxy/internal/tally", nil},
	{"proxy/internal/nearest", nil},
	{"proxy/internal/fanout", nil},
	{"proxy/internal/postgres", nil},
	{"proxy/internal/source", nil},
	{"proxy/rollback", nil},
	{"proxy/internal/wasm", []string{"internal/feature"}},
	{"proxy/sockopt", []string{"internal/pathcall", "internal/sys", "proxy/display", "proxy/internal/file"}},
	{"proxy/internal/health", []string{"relay", "proxy/internal/source", "proxy/sockopt"}},
	{"proxy/internal/verdict", []string{"relay", "lane"}},
	{"proxy/internal/cpuwait", nil},
	{"proxy/internal/kerneltrace", []string{"internal/sys"}},
	{"proxy/internal/perfevent", []string{"internal/sys", "internal/topology"}},
	{"proxy/internal/limit", []string{"proxy/internal/source"}},
	{"proxy/internal/firstbytes", []string{"proxy/clienthello", "proxy/internal/postgres"}},
	{"proxy/internal/proxyproto", []string{"proxy/internal/source"}},
	{"proxy/internal/match", []string{"proxy/internal/source", "proxy/internal/firstbytes", "proxy/internal/proxyproto"}},
	{"proxy/internal/filter", []string{"proxy/internal/wasm", "proxy/internal/proxyproto", "proxy/internal/tally"}},
	{"proxy/internal/record", []string{"relay", "proxy/internal/source"}},
	{"proxy/internal/traces", []string{"relay", "proxy/display", "proxy/internal/record", "proxy/internal/source", "proxy/sockopt"}},
	{"proxy/cli", []string{"internal/sys", "proxy/display"}},
	{"proxy/systemd", []string{"proxy/display", "proxy/internal/file"}},
	{"proxy/internal/sessionlog", []string{"internal/sys", "proxy/internal/file", "vecio", "relay", "proxy/internal/source", "proxy/internal/record"}},
	{"proxy/config", []string{"proxy/internal/clientkey", "internal/topology", "proxy/display", "proxy/internal/nearest", "proxy/internal/file", "proxy/internal/source", "proxy/internal/sessionlog", "proxy/internal/traces", "proxy/sockopt", "proxy/internal/firstbytes", "proxy/internal/filter", "proxy/internal/wasm", "proxy/internal/compare"}},
	{"proxy/internal/state", []string{"proxy/internal/file"}},
	{"proxy/internal/live", []string{"proxy/config", "proxy/internal/state"}},
	{"proxy/discovery", []string{"proxy/display", "proxy/internal/file", "proxy/sockopt"}},
	{"proxy/internal/listener", []string{"internal/sys", "proxy/internal/file", "loop", "proxy/sockopt"}},
	{"proxy/internal/tlsterm", []string{"proxy/internal/record", "proxy/internal/tally", "proxy/discovery", "proxy/internal/file", "proxy/internal/keypair", "proxy/sockopt"}},
	{"proxy/internal/admission", []string{"internal/sys", "proxy/internal/listener", "proxy/sockopt"}},
	{"proxy/admin", []string{"internal/sys", "proxy/internal/tally", "proxy/internal/admission", "proxy/display", "proxy/internal/nearest", "proxy/rollback", "proxy/sockopt", "proxy/internal/keypair", "proxy/internal/listener", "internal/doctor", "proxy/internal/file", "proxy/internal/source"}},
	{"proxy/internal/page", []string{"proxy/admin"}},
	{"proxy/internal/scrape", []string{"proxy/internal/admission", "proxy/internal/keypair", "proxy/internal/listener", "proxy/internal/source", "proxy/sockopt"}},
	{"proxy/internal/metrics", []string{"proxy/admin", "proxy/internal/tally", "proxy/internal/verdict", "proxy/display"}},
	{"proxy/internal/top", []string{"proxy/admin", "proxy/display"}},
	{"proxy/internal/evidence", []string{"internal/sys", "proxy/admin", "proxy/display", "proxy/internal/kerneltrace"}},
	{"proxy/internal/worker", []string{"internal/sys", "arena", "loop", "relay", "relay/driver", "lane", "proxy/clienthello", "proxy/internal/source", "proxy/internal/proxyproto", "proxy/internal/record", "proxy/internal/tally", "proxy/internal/verdict", "proxy/sockopt", "proxy/internal/firstbytes", "proxy/internal/compare", "proxy/internal/postgres"}},
	{"proxy/internal/router", []string{"proxy/internal/clientkey", "loop", "relay", "proxy/clienthello", "proxy/display", "proxy/internal/verdict", "proxy/internal/lb", "proxy/internal/source", "proxy/internal/health", "proxy/internal/limit", "proxy/internal/match", "proxy/internal/proxyproto", "proxy/internal/record", "proxy/internal/tally", "proxy/sockopt", "proxy/internal/tlsterm", "proxy/internal/worker", "proxy/internal/firstbytes", "proxy/internal/filter", "proxy/internal/postgres", "proxy/internal/fanout"}},
	{"proxy/internal/offload", []string{"proxy/clienthello", "proxy/sockopt", "proxy/internal/fanout", "proxy/internal/firstbytes", "proxy/internal/health", "proxy/internal/lb", "proxy/internal/limit", "proxy/internal/match", "proxy/internal/postgres", "proxy/internal/record", "proxy/internal/router", "proxy/internal/tlsterm", "proxy/internal/worker"}},
	{"proxy/internal/lanes", []string{"lane", "relay", "proxy/admin", "proxy/config", "proxy/internal/file", "proxy/internal/lb", "proxy/internal/record", "proxy/internal/router", "proxy/internal/source", "proxy/internal/worker", "proxy/sockopt"}},
	{"proxy/server", []string{"proxy/internal/lanes", "proxy/internal/offload", "lane", "loop", "proxy/internal/file", "proxy/internal/clientkey", "internal/sys", "internal/topology", "pipe", "arena", "relay", "proxy/internal/cpuwait", "proxy/internal/verdict", "proxy/internal/episode", "proxy/internal/lb", "proxy/internal/monitor", "proxy/internal/source", "proxy/rollback", "proxy/internal/health", "proxy/internal/limit", "proxy/internal/match", "proxy/internal/proxyproto", "proxy/internal/record", "proxy/internal/sessionlog", "proxy/internal/state", "proxy/internal/live", "proxy/internal/traces", "proxy/internal/metrics", "proxy/internal/tally", "proxy/sockopt", "proxy/systemd", "proxy/config", "proxy/discovery", "proxy/internal/listener", "proxy/internal/tlsterm", "proxy/admin", "proxy/internal/worker", "proxy/internal/router", "proxy/internal/firstbytes", "proxy/internal/filter", "proxy/internal/wasm", "proxy/internal/compare", "proxy/internal/postgres", "proxy/internal/fanout", "proxy/clienthello", "proxy/display"}},
	{"proxy/...", nil}, // a package of proxy has a row of its own above
	{"proxy/internal/testutil/...", []string{"internal/testutil/...", "proxy/..."}},
	{"bench/...", []string{"internal/sys", "internal/feature", "pool", "pipe", "evring", "arena", "vecio", "loop", "relay", "lane/lossy", "proxy/...", "bench/..."}},
	{"proxy/cmd/...", []string{"internal/sys", "internal/feature", "internal/topology", "internal/doctor", "pool", "pipe", "loop", "relay", "lane", "proxy/..."}},
	{"examples/...", []string{"pool", "pipe", "evring", "arena", "vecio", "loop", "relay"}},
	{"internal/architecture", nil},
	{"proxy/test/...", []string{"internal/sys", "proxy/...", "relay", "lane/lossy"}},
}

// What the tests of a room try it with though it does not know of that: rooms that
// satisfy its interfaces, that do the same, or that count what it does.
var satisfying = map[string][]string{
	"vecio":                   {"arena", "loop"},
	"proxy/clienthello":       {"internal/sys"},
	"proxy/config":            {"proxy/internal/match"},
	"proxy/internal/top":      {"proxy/internal/tally"},
	"proxy/internal/worker":   {"vecio"},
	"lane/internal/translate": {"lane/internal/frame"},
	"lane/internal/program":   {"lane/internal/frame"},
	"lane":                    {"lane/lossy", "lane/internal/frame"},
}

// The library half is what other programs import, and all it stands on.
var library = []string{"internal/sys", "internal/feature", "pool", "pipe", "evring", "arena", "vecio", "loop", "relay", "relay/driver"}

// forbidden lists what a room must not reach, through whatever packages, and
// why.
var forbidden = []struct {
	rooms  []string
	path   string
	reason string
}{
	{library, "log", "library code never logs"},
	{library, "log/slog", "library code never logs"},
	{library, "flag", "its flags would be those of every program that imports the library"},
	{library, "testing", "test helpers do not belong into other people's programs"},
	{library, "os/exec", "library code starts no processes"},
	{library, "os/signal", "signals belong to the program"},
	{library, "net/http", "the library works at layer 4"},
	{library, "crypto/tls", "a TLS connection is moved by its own Read and Write, like every wrapper"},
	{library, "encoding/json", "the library formats nothing"},
	{[]string{"pool"}, "net", "a pool does not know what it keeps"},
	{[]string{"proxy/..."}, "testing", "test helpers do not belong into the program"},
}

// roomOf returns the room of a package of the module: where one is within a tree, that
// one.
func roomOf(importPath string) (in room, ok bool) {
	for _, r := range rooms {
		if matches(r.name, importPath) && (len(r.name) > len(in.name) || importPath == module+"/"+r.name) {
			in, ok = r, true
		}
		if importPath == module+"/"+r.name {
			break
		}
	}
	return in, ok
}

func matches(name, importPath string) bool {
	rel, ok := strings.CutPrefix(importPath, module+"/")
	if tree, isTree := strings.CutSuffix(name, "/..."); isTree {
		return ok && (rel == tree || strings.HasPrefix(rel, tree+"/"))
	}
	return ok && rel == name
}

func (r room) mayImport(importPath string) bool {
	return slices.ContainsFunc(r.imports, func(name string) bool { return matches(name, importPath) })
}

func TestRoomsPointDownwards(t *testing.T) {
	for i, r := range rooms {
		for _, name := range r.imports {
			j := slices.IndexFunc(rooms, func(r room) bool { return r.name == name })
			if j < 0 || j > i || (j == i && !strings.HasSuffix(name, "/...")) {
				t.Errorf("room %s imports %s, which is not above it in the table", r.name, name)
			}
		}
	}
}

func TestImportDirection(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, goos, built(goos)...) {
			r, ok := roomOf(p.ImportPath)
			if !ok {
				t.Errorf("%s: package %s has no room in the table", goos, p.ImportPath)
				continue
			}
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, module+"/") && !r.mayImport(imp) {
					t.Errorf("%s: %s imports %s, its room %s may import %v", goos, p.ImportPath, imp, r.name, r.imports)
				}
			}
			for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
				if !mayTestImport(p.ImportPath, r, imp) {
					t.Errorf("%s: a test of %s imports %s", goos, p.ImportPath, imp)
				}
			}
		}
	}
}

// mayTestImport: tests may import what their package may, their package, what
// satisfies its interfaces, and the test helpers, of which one knows the proxy.
func mayTestImport(importPath string, r room, imp string) bool {
	if slices.ContainsFunc(satisfying[r.name], func(name string) bool { return matches(name, imp) }) {
		return true
	}
	if matches("proxy/internal/testutil/...", imp) && !strings.HasPrefix(r.name, "proxy") && !slices.Contains(r.imports, "proxy/...") {
		return false
	}
	return !strings.HasPrefix(imp, module+"/") || imp == importPath ||
		r.mayImport(imp) || matches("internal/testutil/...", imp) || matches("proxy/internal/testutil/...", imp)
}

func TestOnlySysImportsUnix(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, goos, built(goos)...) {
			if matches("internal/sys", p.ImportPath) {
				continue
			}
			for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				if imp == "golang.org/x/sys/unix" || imp == "golang.org/x/sys/windows" {
					t.Errorf("%s: %s imports %s: system calls are made in internal/sys alone", goos, p.ImportPath, imp)
				}
			}
		}
	}
}

func TestLibraryNeedsOnlySys(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, name := range library {
			for _, p := range list(t, goos, "-deps", "./"+name) {
				own := strings.HasPrefix(p.ImportPath, module+"/")
				if !own && !p.Standard && !strings.HasPrefix(p.ImportPath, "golang.org/x/sys/") {
					t.Errorf("%s: %s needs %s: the library half needs golang.org/x/sys and nothing else", goos, name, p.ImportPath)
				}
				if matches("internal/testutil/...", p.ImportPath) || matches("proxy/internal/testutil/...", p.ImportPath) {
					t.Errorf("%s: %s needs %s, which is for tests", goos, name, p.ImportPath)
				}
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range list(t, "linux", everything...) {
		for _, f := range forbidden {
			in := slices.ContainsFunc(f.rooms, func(name string) bool { return matches(name, p.ImportPath) }) && !matches("proxy/internal/testutil/...", p.ImportPath)
			if in && slices.Contains(p.Deps, f.path) {
				t.Errorf("%s reaches %s: %s", p.ImportPath, f.path, f.reason)
			}
		}
	}
}

// TestNoDrawers: a package is named after what it is.
func TestNoDrawers(t *testing.T) {
	for _, p := range list(t, "linux", everything...) {
		switch name := path.Base(p.ImportPath); name {
		case "util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "lib":
			t.Errorf("package %s: %q says nothing of what is in it", p.ImportPath, name)
		}
	}
}
