package loop_test

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/penstock/penstock/loop"
)

func newGroup(t *testing.T, n int) *loop.Group {
	t.Helper()
	g, err := loop.NewGroup(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestGroup: every loop runs, at the same time as the others, and all have ended when
// Run returns.
func TestGroup(t *testing.T) {
	t.Parallel()

	const n = 3
	g := newGroup(t, n)
	if len(g.Loops()) != n {
		t.Fatalf("%d loops, want %d", len(g.Loops()), n)
	}
	var all sync.WaitGroup
	all.Add(n)
	for _, l := range g.Loops() {
		if err := l.Post(func() {
			all.Done()
			all.Wait() // for the others, which must be running
		}); err != nil {
			t.Fatal(err)
		}
	}
	go func() { all.Wait(); g.Stop() }()
	if err := g.Run(); err != nil {
		t.Fatal(err)
	}
}

func TestGroupOfAsManyAsThereAreCPUs(t *testing.T) {
	if n := len(newGroup(t, 0).Loops()); n != runtime.GOMAXPROCS(0) {
		t.Fatalf("%d loops, want %d", n, runtime.GOMAXPROCS(0))
	}
}

// TestGroupStopBeforeRun: it is not forgotten.
func TestGroupStopBeforeRun(t *testing.T) {
	t.Parallel()

	g := newGroup(t, 2)
	g.Stop()
	if err := g.Run(); err != nil {
		t.Fatal(err)
	}
}

// TestGroupFails: one loop that cannot run ends the others.
func TestGroupFails(t *testing.T) {
	t.Parallel()

	g := newGroup(t, 2)
	if err := g.Loops()[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Run(); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("got %v, want os.ErrClosed", err)
	}
}
