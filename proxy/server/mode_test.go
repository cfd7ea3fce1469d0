package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// unixListener is a configuration with a listener at a path, and a further one.
func unixListener(path, upstream string) string {
	return fmt.Sprintf(`
listeners: [{name: l, bind: %q, upstream: u}, {name: other, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, "unix:"+path, upstream)
}

// TestModeIsTakenBackByAReload: a path whose mode the file does not name any more has the one
// that it would have begun with.
func TestModeIsTakenBackByAReload(t *testing.T) {
	dir, up := t.TempDir(), named(t, "a")
	usual, path := filepath.Join(dir, "usual"), filepath.Join(dir, "s")
	want := func(mode os.FileMode) {
		t.Helper()
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, mode)
		}
	}
	r := start(t, unixListener(usual, up))
	info, err := os.Lstat(usual)
	if err != nil {
		t.Fatal(err)
	}
	r.Reload(unixListener(path+"?mode=0600", up))
	want(0o600)
	r.Reload(unixListener(path, up))
	want(info.Mode().Perm())
	r.Reload(unixListener(path+"?mode=0606", up))
	want(0o606)
}

// TestReloadsWhileAPathIsSwapped: a directory's owner swaps the path of a socket for a link to
// a file of the one who listens, during reloads that change the mode. The file keeps its own.
func TestReloadsWhileAPathIsSwapped(t *testing.T) {
	dir, victim, up := t.TempDir(), filepath.Join(t.TempDir(), "file"), named(t, "a")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, away := filepath.Join(dir, "s"), filepath.Join(dir, "away")
	r := start(t, unixListener(path+"?mode=0666", up))
	var over atomic.Bool
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for !over.Load() {
			if os.Rename(path, away) == nil && os.Symlink(victim, path) == nil {
				_ = os.Remove(path)
			}
			_ = os.Rename(away, path)
		}
	})
	for i := range 100 {
		r.Reload(unixListener(path+[]string{"?mode=0600", "", "?mode=0666"}[i%3], up))
		if info, err := os.Lstat(victim); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("reload %d: the file has mode %v, %v", i, info.Mode(), err)
		}
	}
	over.Store(true)
	swapping.Wait()
}
