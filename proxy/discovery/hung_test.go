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

// TestWatchOfAHungFileSystem: two watches of a file that does not answer end when they are told to, one after the other, and
// another one that shares their inotify instance sees changes. Nothing is watched once the file system answers.
func TestWatchOfAHungFileSystem(t *testing.T) {
	t.Parallel()
	dir, good := hung.Dir(t), filepath.Join(t.TempDir(), "good")
	share := new(discovery.Inotify)
	watch := func(path string) *discovery.Watch {
		return discovery.NewWatch(discovery.WatchConfig{Paths: []string{path}, Share: share})
	}
	one, two, other := watch(filepath.Join(dir, "list")), watch(filepath.Join(dir, "list")), watch(good)
	release := hung.Mount(t, dir)
	run := func(w *discovery.Watch) (changed chan bool, end func()) {
		ctx, stop := context.WithCancel(t.Context())
		changed, ended := make(chan bool, 8), make(chan bool)
		go func() {
			defer close(ended)
			w.Run(ctx, func() { changed <- true })
		}()
		return changed, func() {
			stop()
			condition.Receive(t, "the end of a watch", ended)
		}
	}
	_, endOne := run(one)
	_, endTwo := run(two)
	changed, endOther := run(other)
	if err := os.WriteFile(good, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	condition.Receive(t, "the change of the other file", changed)
	endOne()
	endTwo()
	endOther()
	release()
	condition.Await(t, "nothing is watched any more", func() bool { return !share.Heeds("/") })
}

// TestResolvConfOfAHungFileSystem: while the file does not answer, the name servers stay as they are.
func TestResolvConfOfAHungFileSystem(t *testing.T) {
	t.Parallel()
	dir := hung.Dir(t)
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 10.1.2.3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := discovery.NewServers(conf)
	s.Order()
	hung.Mount(t, dir)
	order := make(chan []string, 1)
	go func() { order <- s.Order() }()
	if got := condition.Receive(t, "the name servers", order); len(got) != 1 || got[0] != "10.1.2.3:53" {
		t.Errorf("the name servers are %q", got)
	}
}
