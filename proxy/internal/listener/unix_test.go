package listener_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// leave makes a path on which no process answers, as a process that was killed does.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestStalePathIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	leave(t, path)
	s := start(t, listen(t, "unix:"+path, nil))
	dial(t, s.Listener)
	<-s.conns
	s.end(t)
}

func TestPathOnWhichSomebodyAnswersIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := start(t, listen(t, "unix:"+path, nil))
	_, err := listener.Listen(context.Background(), parse(t, "unix:"+path), nil)
	want := "listen on unix:" + path + ": address already in use, a process listens there"
	if !errors.Is(err, syscall.EADDRINUSE) || err.Error() != want {
		t.Errorf("error is %v, want %v", err, want)
	}
	(<-s.conns).Close() // the question
	dial(t, s.Listener)
	<-s.conns
	s.end(t)
}

func TestFileThatIsNoSocketIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		_, err := listener.Listen(context.Background(), parse(t, "unix:"+path), nil)
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("error is %v", err)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

func TestDatagramSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = listener.Listen(context.Background(), parse(t, "unix:"+path), nil)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestMissingDirectoryIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone", "s")
	_, err := listener.Listen(context.Background(), parse(t, "unix:"+path), nil)
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %v", err)
	}
}

func TestModeOfThePath(t *testing.T) {
	for spec, want := range map[string]fs.FileMode{
		"?mode=0600": 0o600, "?mode=0660": 0o660, "?mode=0666": 0o666, "?mode=0777": 0o777,
	} {
		path := filepath.Join(t.TempDir(), "s")
		l := listen(t, "unix:"+path+spec, nil)
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s gives %v, %v", spec, info.Mode(), err)
		}
		l.Close()
	}
}

// The mode that the path has from the first moment on, before chmod(2).
func TestPathIsNeverWiderThanAsked(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o640} {
		path := filepath.Join(t.TempDir(), "s")
		lc := net.ListenConfig{Control: listener.Restrict(sockopt.Address{Network: "unix", Name: path, Mode: mode})}
		l, err := lc.Listen(context.Background(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm()&^mode != 0 {
			t.Errorf("with %v the path begins as %v, %v", mode, info.Mode(), err)
		}
	}
}

func TestPathIsUnlinkedOnExit(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *server){
		"stop":  func(t *testing.T, s *server) { s.end(t) },
		"close": func(_ *testing.T, s *server) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			s := start(t, listen(t, "unix:"+path, nil))
			end(t, s)
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the path is still there: %v", err)
			}
			if name == "close" {
				s.end(t)
			}
		})
	}
}

// The path goes at the stop, not at the end of the last session, so that another
// process can take over while this one drains.
func TestPathIsFreeWhileSessionsDrain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old := start(t, listen(t, "unix:"+path, nil))
	dial(t, old.Listener)
	<-old.conns
	old.stop()
	waitGone(t, path)
	next := start(t, listen(t, "unix:"+path, nil))
	old.end(t)
	dial(t, next.Listener) // the old one did not unlink the new path
	<-next.conns
	next.end(t)
}

func waitGone(t *testing.T, path string) {
	t.Helper()
	condition.Await(t, path+" is gone", func() bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func TestPathOfSomebodyElseIsNotUnlinked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := start(t, listen(t, "unix:"+path, nil))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	leave(t, path)
	s.end(t)
	if _, err := os.Lstat(path); err != nil {
		t.Error("the path of another process was unlinked: ", err)
	}
}

func TestOneOfManyTakesAStalePathOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 100 {
		leave(t, path)
		var starts sync.WaitGroup
		ready := make(chan struct{})
		won := make(chan *listener.Listener, 8)
		for range cap(won) {
			starts.Go(func() {
				<-ready
				l, err := listener.Listen(context.Background(), parse(t, "unix:"+path), nil)
				if err == nil {
					won <- l
				} else if !errors.Is(err, syscall.EADDRINUSE) {
					t.Error(err)
				}
			})
		}
		close(ready)
		starts.Wait()
		if len(won) != 1 {
			t.Fatalf("%d listeners have the same path", len(won))
		}
		l := <-won
		dial(t, l)
		if !l.Queued() {
			t.Error("the path is not the winner's")
		}
		l.Close()
	}
}

// Any user who may read a directory can lock it, without end.
func TestLockedDirectoryDoesNotKeepFromListening(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := listener.Listen(ctx, parse(t, "unix:"+dir+"/s"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the context's", err)
	}
	opened := make(chan *listener.Listener)
	go func() { opened <- listen(t, "unix:"+dir+"/s", nil) }()
	select {
	case l := <-opened:
		dial(t, l)
	case <-time.After(condition.Patience):
		f.Close() // which unlocks it
		<-opened
		t.Error("it waits for the lock")
	}
}

func TestDirectoryThatIsAPipeIsNamed(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.Listen(context.Background(), parse(t, "unix:"+pipe+"/s"), nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("error is %v, want ENOTDIR", err)
	}
}

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

// TestPathThatHangs: the file system of two paths does not answer. Their listeners are closed, and the paths are removed later.
// Meanwhile other calls about paths in the directory fail at once.
func TestPathThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, next := listen(t, "unix:"+dir+"/s", nil), listen(t, "unix:"+dir+"/next", nil)
	answer, answerNext := l.HangPath(), next.HangPath()
	defer answer()
	defer answerNext()
	gaveUp := make(chan error, 5)
	go func() {
		gaveUp <- l.SetMode(0o600)
		_, err := listener.Listen(t.Context(), parse(t, "unix:"+dir+"/other"), nil)
		gaveUp <- err
		gaveUp <- l.Unlink()
		gaveUp <- l.Close()
		gaveUp <- next.Unlink()
	}()
	for _, what := range []string{"chmod", "listen", "unlink", "close", "unlink the next"} {
		if err := condition.Receive(t, what, gaveUp); errors.Is(err, os.ErrDeadlineExceeded) == (what == "close") {
			t.Errorf("%s: %v", what, err)
		}
	}
	answer()
	answerNext()
	waitGone(t, dir+"/s")
	waitGone(t, dir+"/next")
}

// A slow context waits for hang when it is asked for its end.
type slow struct {
	context.Context
	hang chan bool
}

func (c *slow) Done() <-chan struct{} {
	<-c.hang
	return c.Context.Done()
}

// TestLateSocketIsClosed: a socket that is bound after its file system was given up is closed, and its path removed.
func TestLateSocketIsClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) // while it waits for the lock, the context is asked
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx := &slow{t.Context(), make(chan bool)}
	if _, err := listener.Listen(ctx, parse(t, "unix:"+dir+"/s"), nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	f.Close() // which unlocks it
	close(ctx.hang)
	condition.Await(t, "the file system is used again", func() bool {
		l, err := listener.Listen(t.Context(), parse(t, "unix:"+dir+"/other"), nil)
		return err == nil && l.Close() == nil
	})
	if _, err := os.Lstat(dir + "/s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path is still there: %v", err)
	}
}

// TestSharedDirectory: no socket is made where every user may replace it.
func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d", "s")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.Chmod(filepath.Dir(path), 0o777)); err != nil {
		t.Fatal(err)
	}
	if l, err := listener.Listen(context.Background(), parse(t, "unix:"+path), nil); !errors.Is(err, file.ErrUnsafe) {
		t.Errorf("%v, %v", l, err)
	}
}
