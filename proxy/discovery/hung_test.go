package discovery_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/proxy/discovery"
)

// TestWatchOfAHungFileSystem: a watch of files that do not answer ends when it is told to, and another one that shares its
// inotify instance sees changes.
func TestWatchOfAHungFileSystem(t *testing.T) {
	t.Parallel()
	dir, good := hung.Dir(t), filepath.Join(t.TempDir(), "good")
	share := new(discovery.Inotify)
	release := hung.Mount(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	run := func(path string) (changed, ended chan bool) {
		changed, ended = make(chan bool, 8), make(chan bool)
		w := discovery.NewWatch(discovery.WatchConfig{Paths: []string{path}, Share: share})
		go func() {
			defer close(ended)
			w.Run(ctx, func() { changed <- true })
		}()
		return changed, ended
	}
	_, one := run(filepath.Join(dir, "list"))
	changed, other := run(good)
	if err := os.WriteFile(good, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	condition.Receive(t, "the change of the other file", changed)
	stop()
	condition.Receive(t, "the end of the watch that hangs", one)
	condition.Receive(t, "the end of the other watch", other)
	release()
}
