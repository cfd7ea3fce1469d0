package server_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/hung"
)

// TestHungStateFile: while the state file's file system does not answer, a change by hand is in force, its answer and the status
// say that it is not kept, and other changes go on. It is kept once the file system answers.
func TestHungStateFile(t *testing.T) {
	t.Parallel()

	dir := hung.Dir(t)
	path := filepath.Join(dir, "state")
	text := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [{name: a, address: %q}, {name: b, address: %[1]q}]}]`, named(t, "a"))
	r := startAt(t, path, text)
	c := stopClock(r.rig)
	release := hung.Mount(t, dir)
	for weight := range 2 {
		if done := r.change(t, "weight", "a", 3+weight); !strings.Contains(done.Unkept, path) || !strings.Contains(done.Unkept, "tries again") {
			t.Errorf("%+v", done)
		}
	}
	if st := r.Status(); st.StateFile == nil || !strings.Contains(st.StateFile.Problem, "does not answer") {
		t.Errorf("%+v", st.StateFile)
	}
	r.Reload(strings.Replace(text, "name: l", "name: m", 1))
	again := c.any(10 * time.Second)
	release()
	r.Until("the write that hung has returned", func() bool { return r.store.Flush() == nil })
	if _, ok := again.step(); !ok {
		t.Fatal("the alarm was stopped")
	}
	r.Logs("the state file can be written again")
	next := r.restart(t, path, text)
	if got := next.live(); len(got) != 1 || !strings.Contains(got[0], "weight 4") {
		t.Errorf("after a restart: %q", got)
	}
}

// TestHungSessionLog: a reload to a session log on a file system that does not answer is refused. Meanwhile the status is
// answered, and the drain can begin.
func TestHungSessionLog(t *testing.T) {
	t.Parallel()

	dir := hung.Dir(t)
	const text = `
session_log: {to: %q}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`
	echo := named(t, "a")
	r := start(t, fmt.Sprintf(text, "a.log", echo))
	cfg := r.Load(fmt.Sprintf(text, filepath.Join(dir, "b.log"), echo))
	hung.Mount(t, dir)
	if err := r.meanwhile(t, func() error { return r.Apply(t.Context(), cfg) }); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "b.log") {
		t.Error(err)
	}
}

// TestHungListenerPath: a reload to a listener on a file system that does not answer is refused, and meanwhile the status is
// answered.
func TestHungListenerPath(t *testing.T) {
	t.Parallel()

	dir := hung.Dir(t)
	const text = `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: %q, upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`
	echo := named(t, "a")
	r := start(t, fmt.Sprintf(text, "unix:"+filepath.Join(dir, "s"), echo))
	hung.Mount(t, dir)
	cfg := r.Load(fmt.Sprintf(text, "unix:"+filepath.Join(dir, "other"), echo))
	if err := r.meanwhile(t, func() error { return r.Apply(t.Context(), cfg) }); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "other") {
		t.Error(err)
	}
}

// meanwhile calls something that waits for a file system, and fails the test if few statuses are answered meanwhile.
func (r *rig) meanwhile(t *testing.T, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- call() }()
	for looks := 0; ; looks++ {
		select {
		case err := <-done:
			if looks < 10 {
				t.Errorf("%d statuses in %v", looks, time.Since(began))
			}
			return err
		case <-time.After(time.Second / 100):
			r.Status()
		}
	}
}
