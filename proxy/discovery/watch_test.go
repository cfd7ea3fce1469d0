package discovery_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/discovery"
)

// watched runs a watch and returns the channel of its changes.
func watched(t *testing.T, cfg discovery.WatchConfig) <-chan struct{} {
	t.Helper()
	if cfg.Clock == nil {
		cfg.Quiet, cfg.Poll = 5*time.Millisecond, time.Hour // only the kernel reports changes
	}
	w := discovery.NewWatch(cfg)
	changes := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, func() { changes <- struct{}{} })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return changes
}

func changed(t *testing.T, changes <-chan struct{}) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(condition.Patience):
		t.Fatal("no change is reported")
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

// replace renames a new file over path.
func replace(path, text string) error {
	if err := write(path+".tmp", text); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// link makes path a symbolic link to target, at once.
func link(target, path string) error {
	if err := os.Symlink(target, path+".tmp"); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func TestWatchOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	changes := watched(t, discovery.WatchConfig{Paths: []string{path}})
	for _, step := range []func() error{
		func() error { return write(path, "one") }, // the file is created
		func() error { return write(path, "two") }, // in place
		func() error { return replace(path, "three") },
		func() error { return replace(path, "four") },
		func() error { return os.Remove(path) },
		func() error { return write(path, "five") },
		func() error { return os.Rename(path, path+".away") },
		func() error { return os.Rename(path+".away", path) },
	} {
		must(t, step())
		changed(t, changes)
	}
}

// TestWatchOfAConfigMap: Kubernetes writes a directory aside and swaps one link.
func TestWatchOfAConfigMap(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/..1", 0o755), write(dir+"/..1/f", "one"), os.Symlink("..1", dir+"/..data"), os.Symlink("..data/f", dir+"/f"))
	share := &discovery.Inotify{}
	changes := watched(t, discovery.WatchConfig{Paths: []string{dir + "/f"}, Share: share})
	must(t, os.Mkdir(dir+"/..2", 0o755), write(dir+"/..2/f", "two"), link("..2", dir+"/..data"))
	changed(t, changes)
	must(t, write(dir+"/..2/f", "three")) // the new directory is watched
	changed(t, changes)
	must(t, write(dir+"/..1/f", "four")) // the old one is not
	equal(t, share.Heeds(dir+"/..1"), false)
	equal(t, share.Heeds(dir+"/..2"), true)
	must(t, os.RemoveAll(dir+"/..1"), os.RemoveAll(dir+"/..2"))
	changed(t, changes)
}

// TestWatchOfADirectoryThatMoves: a release is a directory to which a link leads, or a directory that is moved
// itself.
func TestWatchOfADirectoryThatMoves(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/r1/etc", 0o755), os.MkdirAll(dir+"/r2/etc", 0o755), write(dir+"/r1/etc/f", "one"), write(dir+"/r2/etc/f", "two"))
	must(t, link(dir+"/r1", dir+"/current"))
	changes := watched(t, discovery.WatchConfig{Paths: []string{dir + "/current/etc/f"}})
	must(t, link("r2", dir+"/current"))
	changed(t, changes)
	must(t, os.Rename(dir+"/r2", dir+"/r3"))
	changed(t, changes) // the directory has gone
	must(t, os.Rename(dir+"/r1", dir+"/r2"))
	changed(t, changes)
}

func TestWatchOfAPattern(t *testing.T) {
	dir := t.TempDir()
	must(t, write(dir+"/a.yaml", "one"))
	changes := watched(t, discovery.WatchConfig{Globs: []string{dir + "/*.yaml"}})
	must(t, write(dir+"/b.yaml", "two"))
	changed(t, changes)
	must(t, os.Rename(dir+"/b.yaml", dir+"/c.yaml")) // another name is another set
	changed(t, changes)
	must(t, os.Remove(dir+"/a.yaml"))
	changed(t, changes)
}

// TestPolling: a watch without inotify polls, by a clock that shows the interval.
func TestPolling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, write(path, "one"))
	clock := newManual()
	changes := watched(t, discovery.WatchConfig{Paths: []string{path}, NoEvents: true, Clock: clock})
	for _, text := range []string{"two", "two", "three"} {
		equal(t, clock.pause(t), time.Second)
		before, err := os.ReadFile(path)
		must(t, err, replace(path, text))
		clock.pass(time.Second)
		if string(before) != text {
			changed(t, changes)
		}
	}
	clock.pause(t)
	equal(t, len(changes), 0) // the same content again is no change
}

func TestWatchBeginsWhenItIsMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, write(path, "one"))
	w := discovery.NewWatch(discovery.WatchConfig{Paths: []string{path}})
	equal(t, w.Changed(), false)
	must(t, replace(path, "two")) // before Run
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	w.Run(ctx, func() { n++; cancel() })
	equal(t, n, 1)
	equal(t, w.Changed(), false)
}

// TestWatchWaitsForQuiet: many writes are one change.
func TestWatchWaitsForQuiet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	clock := newManual()
	changes := watched(t, discovery.WatchConfig{Paths: []string{path}, Clock: clock})
	equal(t, clock.pause(t), 10*time.Second)
	for i := range 3 {
		must(t, replace(path, string(rune('a'+i))))
		for clock.pause(t) != 100*time.Millisecond {
		}
	}
	equal(t, len(changes), 0)
	clock.pass(100 * time.Millisecond)
	changed(t, changes)
}

func TestWatchUnderCeaselessWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	clock := newManual()
	changes := watched(t, discovery.WatchConfig{Paths: []string{path}, Clock: clock})
	equal(t, clock.pause(t), 10*time.Second)
	for i := range 200 {
		must(t, replace(path, string(rune('a'+i%26))))
		for again := false; !again; {
			select {
			case <-changes:
				if i < 10 {
					t.Errorf("reported after %d writes", i)
				}
				return
			case d := <-clock.asked:
				again = d == 100*time.Millisecond // the watch waits for quiet again
			case <-time.After(condition.Patience):
				t.Fatal("neither a wait nor a change")
			}
		}
		clock.pass(90 * time.Millisecond)
	}
	t.Error("no change is reported while writes continue")
}

func TestWatchOfWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	changes := watched(t, discovery.WatchConfig{Paths: []string{dir + "/d", dir + "/loop"}})
	must(t, os.Symlink("loop", dir+"/loop"))
	changed(t, changes)
	must(t, os.Mkdir(dir+"/d", 0o755))
	changed(t, changes)
}

// TestWatchOfAHugeFile: a file that no reader accepts is not read by the watch either, and its
// changes are reported.
func TestWatchOfAHugeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "endpoints")
	must(t, write(path, "small"))
	changes := watched(t, discovery.WatchConfig{Paths: []string{path}})
	for _, size := range []int64{1 << 38, 1<<38 + 1} { // the file is sparse; reading it would take minutes
		must(t, write(path+".tmp", ""), os.Truncate(path+".tmp", size), os.Rename(path+".tmp", path))
		changed(t, changes)
	}
	must(t, replace(path, "small"))
	changed(t, changes)
}

// TestSharedNotifications: watches of one inotify instance each receive their own events, and
// the instance is closed with the last one.
func TestSharedNotifications(t *testing.T) {
	dir, share := t.TempDir(), &discovery.Inotify{}
	before := inotifies(t)
	t.Run("at work", func(t *testing.T) {
		var changes []<-chan struct{}
		paths := []string{dir + "/a", dir + "/b", dir + "/b"}
		for _, path := range paths {
			changes = append(changes, watched(t, discovery.WatchConfig{Paths: []string{path}, Share: share}))
		}
		t.Run("a fourth one comes and goes", func(t *testing.T) {
			one := watched(t, discovery.WatchConfig{Paths: []string{dir + "/b"}, Share: share})
			must(t, replace(dir+"/b", "one"))
			changed(t, one)
		})
		changed(t, changes[1])
		changed(t, changes[2])
		must(t, replace(dir+"/a", "two"))
		changed(t, changes[0])
		must(t, replace(dir+"/b", "three"))
		changed(t, changes[1])
		changed(t, changes[2])
		equal(t, len(changes[0]), 0)
		if n := inotifies(t) - before; n > 1 {
			t.Errorf("%d inotify instances", n)
		}
	})
	equal(t, inotifies(t), before)
	again := watched(t, discovery.WatchConfig{Paths: []string{dir + "/a"}, Share: share})
	must(t, write(dir+"/a", "four"))
	changed(t, again)
}

// inotifies counts this process's inotify instances, if that can be found out.
func inotifies(t *testing.T) (n int) {
	t.Helper()
	for _, what := range leak.Take() {
		if what == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
