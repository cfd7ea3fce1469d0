package listener_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/internal/listener"
)

// modeOf returns the permissions of the file with that name, of a symbolic link itself.
func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode() & (fs.ModePerm | fs.ModeSticky)
}

// treasures are files of the listening user. Another user puts them in the place of the socket:
// by put, at a path where nothing is.
func treasures(t *testing.T) map[string]struct {
	victim string
	put    func(at string) error
} {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: other, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(other, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		victim string
		put    func(at string) error
	}{
		"a link to a file":      {file, func(at string) error { return os.Symlink(file, at) }},
		"a link to a socket":    {other, func(at string) error { return os.Symlink(other, at) }},
		"a second name":         {file, func(at string) error { return os.Link(file, at) }},
		"a socket's other name": {other, func(at string) error { return os.Link(other, at) }},
	}
}

// TestSwappedPath: another user, who owns the directory, puts another file in the place of the
// socket, right after it was bound or later. That file keeps its mode, and its name.
func TestSwappedPath(t *testing.T) {
	for name, c := range treasures(t) {
		for _, spec := range []string{"", "?mode=0666"} {
			path := filepath.Join(t.TempDir(), "s")
			swap := func() {
				if err := errors.Join(os.Remove(path), c.put(path)); err != nil {
					t.Fatal(err)
				}
			}
			kept := func(when string) {
				t.Helper()
				if mode := modeOf(t, c.victim); mode != 0o600 {
					t.Errorf("%s, %s, %q: its mode is %v", name, when, spec, mode)
				}
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("%s, %s, %q: %v", name, when, spec, err)
				}
			}
			if l, err := listener.ListenSwapped(t.Context(), parse(t, "unix:"+path+spec), swap); err == nil {
				t.Errorf("%s, %q: it listens", name, spec)
				l.Close()
			}
			kept("at once")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			l := listen(t, "unix:"+path+spec, nil)
			swap()
			for _, mode := range []fs.FileMode{0o660, 0o640} {
				if err := l.SetMode(mode); err == nil {
					t.Errorf("%s: the mode is changed", name)
				}
			}
			l.Close()
			kept("later")
		}
	}
}

// TestSwappedDirectory: another user swaps the directory, for one that has a socket of that name,
// too.
func TestSwappedDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ours", "theirs"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	victim := filepath.Join(dir, "theirs", "s")
	leave(t, victim)
	if err := os.Chmod(victim, 0o600); err != nil {
		t.Fatal(err)
	}
	l := listen(t, "unix:"+filepath.Join(dir, "ours", "s")+"?mode=0600", nil)
	if err := errors.Join(os.Rename(filepath.Join(dir, "ours"), filepath.Join(dir, "away")), os.Symlink("theirs", filepath.Join(dir, "ours"))); err != nil {
		t.Fatal(err)
	}
	if err := l.SetMode(0o666); err != nil {
		t.Error(err)
	}
	if ours, theirs := modeOf(t, filepath.Join(dir, "away", "s")), modeOf(t, victim); ours != 0o666 || theirs != 0o600 {
		t.Errorf("ours is %v, theirs %v", ours, theirs)
	}
	l.Close()
	if _, err := os.Lstat(filepath.Join(dir, "away", "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ours is still there: %v", err)
	}
	if _, err := os.Lstat(victim); err != nil {
		t.Errorf("theirs was removed: %v", err)
	}
}

// TestPathIsSwappedAllTheTime: another user swaps the path for a link, and back, while it is
// bound, changed and unlinked.
func TestPathIsSwappedAllTheTime(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, away := filepath.Join(dir, "s"), filepath.Join(dir, "away")
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
	listened, changed := 0, 0
	// At least so often, and until it was there to be listened at and changed. While a busy
	// machine runs goroutines other than the swapping one, the path is never there.
	for tries, end := 0, time.Now().Add(condition.Patience); tries < 200 || (listened == 0 || changed == 0) && time.Now().Before(end); tries++ {
		l, err := listener.Listen(t.Context(), parse(t, "unix:"+path+"?mode=0666"), nil)
		if err != nil { // it was swapped
			runtime.Gosched()
			continue
		}
		listened++
		for i := range 100 {
			if l.SetMode([]fs.FileMode{0o600, 0o666}[i%2]) == nil {
				changed++
			}
		}
		l.Close()
		if mode := modeOf(t, victim); mode != 0o600 {
			t.Fatalf("the file has mode %v", mode)
		}
	}
	over.Store(true)
	swapping.Wait()
	t.Logf("listened %d times, changed the mode %d times", listened, changed)
	if listened == 0 || changed == 0 {
		t.Error("it is never tried")
	}
}

// TestModeIsTakenBack: a path whose mode is not configured any more has the mode of a path for
// which none ever was.
func TestModeIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	usual := listen(t, "unix:"+filepath.Join(dir, "usual"), nil)
	defer usual.Close()
	want := modeOf(t, filepath.Join(dir, "usual"))
	l := listen(t, "unix:"+filepath.Join(dir, "s")+"?mode=0600", nil)
	defer l.Close()
	for _, mode := range []fs.FileMode{0, 0o666, 0, 0} {
		if err := l.SetMode(mode); err != nil {
			t.Fatal(err)
		}
		if mode == 0 {
			mode = want
		}
		if has := modeOf(t, filepath.Join(dir, "s")); has != mode {
			t.Errorf("the mode is %v, want %v", has, mode)
		}
	}
}
