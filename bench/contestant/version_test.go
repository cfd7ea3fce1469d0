package contestant_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
)

func TestVersion(t *testing.T) {
	for name, test := range map[string]struct{ binary, says, want string }{
		"haproxy-2": {"haproxy", "HAProxy version 2.6.12-1+deb12u1 2023/12/16 - https://haproxy.org/", "2.6.12-1+deb12u1"},
		"nginx":     {"nginx", "nginx version: nginx/1.22.1 >&2", "1.22.1"},
		"envoy":     {"envoy", "envoy  version: 0123abcd/1.30.1/Clean/RELEASE/BoringSSL", "1.30.1"},
		"haproxy-1": {"haproxy", "something else", ""},
	} {
		path := filepath.Join(t.TempDir(), test.binary)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+test.says+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		k, err := contestant.Named(name)
		if err != nil {
			t.Fatal(err)
		}
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

// A program hangs, and its child has its output. Both are killed when the context ends.
func TestAProgramThatHangsIsGivenUp(t *testing.T) {
	for name, binary := range map[string]string{"haproxy-1": "haproxy", "nginx": "nginx"} {
		dir := t.TempDir()
		began := filepath.Join(dir, "began")
		// The last word is of the child; the first one says that the child exists.
		path := script(t, "sleep 1000 & echo $! >"+began+".new; mv "+began+".new "+began+"; wait")
		k, err := contestant.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			for {
				if _, err := os.Stat(began); err == nil {
					cancel(errEnough)
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		s := &contestant.Setting{Binaries: map[string]string{binary: path}}
		if binary == "nginx" {
			if err := k.Available(ctx, s); !errors.Is(err, errEnough) {
				t.Errorf("%s: %v", name, err)
			}
		} else if v := k.Version(ctx, s); v != "" || ctx.Err() == nil {
			t.Errorf("%s: version %q, %v", name, v, ctx.Err())
		}
		pid, err := os.ReadFile(began)
		if err != nil {
			t.Fatal(err)
		}
		gone(t, strings.TrimSpace(string(pid)))
	}
}

var errEnough = errors.New("enough")

// gone waits for the end of a process.
func gone(t *testing.T, pid string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("process %s is alive", pid)
}

func TestAProgramThatIsAnother(t *testing.T) {
	s := setting(t)
	s.Binaries = map[string]string{"haproxy": script(t, "exit 0")}
	wantText(t, refused(t, "haproxy-1", s), "exit status 0: is "+s.Binaries["haproxy"]+" really haproxy? --binary haproxy=PATH names another")
}
