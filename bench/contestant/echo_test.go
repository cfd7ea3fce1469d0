package contestant_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/penstock/penstock/bench/contestant"
)

// echoes returns a directory with programs in place of echo servers.
func echoes(t *testing.T, commands map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range commands {
		if err := os.Symlink(script(t, text), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// echoNamed returns the echo server of a name in dir.
func echoNamed(t *testing.T, name, dir string) *contestant.Kind {
	t.Helper()
	for _, e := range contestant.Echoes() {
		if e.Name == name {
			return e.Kind(dir)
		}
	}
	t.Fatalf("no echo server %s", name)
	return nil
}

// This program is the echo server, started as the rival in front of an echo.
func TestAnEchoServerCarriesBytes(t *testing.T) {
	s, bin := setting(t), t.TempDir()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(me, filepath.Join(bin, childName)); err != nil {
		t.Fatal(err)
	}
	dir := echoes(t, map[string]string{"gnet": "PATH=" + bin + ":$PATH\nexec " + childName + " part rival " + s.Upstream + " copy"})
	k := echoNamed(t, "gnet", dir)
	if err := k.Available(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	c, err := k.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	carry(t, s, c, 100_000)
	if a, err := c.Account(t.Context()); a != nil || err != nil {
		t.Errorf("account: %+v, %v", a, err)
	}
	if p, err := c.Pauses(t.Context(), true); p != nil || err != nil {
		t.Errorf("pauses: %+v, %v", p, err)
	}
	if err := c.Stop(forever); err != nil {
		t.Error(err)
	}
}

func TestEchoServersThatAreNone(t *testing.T) {
	dir := echoes(t, map[string]string{"std": "echo hello", "netpoll": "echo no such luck >&2; exit 3"})
	if err := echoNamed(t, "gnet", dir).Available(t.Context(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	} else {
		wantText(t, err, "gnet is not built: ")
	}
	s := setting(t)
	for name, want := range map[string]string{"std": `std said "hello"`, "netpoll": "netpoll did not start: no such luck", "gnet": "gnet"} {
		_, err := echoNamed(t, name, dir).Start(t.Context(), s)
		wantText(t, err, want)
	}
}

// A Go program has the versions it was built with; a script has none.
func TestVersionsOfEchoServers(t *testing.T) {
	dir := echoes(t, map[string]string{"gnet": ":"})
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"std", "netpoll"} {
		if err := os.Symlink(me, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"std": runtime.Version(), "netpoll": "", "gnet": ""} {
		if got := echoNamed(t, name, dir).Version(t.Context(), nil); got != want {
			t.Errorf("%s: version %q, want %q", name, got, want)
		}
	}
}
