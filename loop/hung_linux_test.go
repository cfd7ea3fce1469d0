package loop_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// TestConnectOnAHungFileSystem: a loop goes on while the file system of a path does not answer. Dials to the path fail when their
// time is over, or are cancelled, and other paths are dialed meanwhile.
func TestConnectOnAHungFileSystem(t *testing.T) {
	t.Parallel()

	dir := hung.Dir(t)
	path := filepath.Join(dir, "s")
	listenOn(t, "unix", path)
	well := filepath.Join(sockets.Dir(t), "s")
	listenOn(t, "unix", well)
	var mu sync.Mutex
	now := int64(1)
	clock := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	advance := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now += int64(d)
	}
	l := newLoop(t, &loop.Config{Now: clock})
	connect := func(path string) *dialer {
		d := newDialer(t, l)
		l.Connect(&d.Dial, 0, loop.Address{Path: path}, &loop.DialConfig{Timeout: time.Second}, d)
		return d
	}
	must.Do(t, connect(path).one(t, l).err) // and the path is found to be local
	if next := connect(path); len(next.ends) != 1 || next.ends[0].err != nil {
		t.Errorf("%+v, want a connection at once", next.ends)
	}

	advance(time.Minute)
	turn(t, l)
	release := hung.Mount(t, dir)
	alarm := time.AfterFunc(condition.Patience, func() {
		t.Error("the loop waits for a file system")
		release()
	})
	defer alarm.Stop()
	var waiting []*dialer
	for range 20 {
		waiting = append(waiting, connect(path))
	}
	cancelled := connect(path)
	cancelled.Cancel()
	must.Do(t, connect(well).one(t, l).err)
	advance(time.Minute)
	for _, d := range waiting {
		if err := d.one(t, l).err; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	}
	if len(cancelled.ends) != 0 {
		t.Errorf("%+v", cancelled.ends)
	}
}
