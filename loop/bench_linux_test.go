package loop_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/loop"
)

// running makes a loop that runs until the test ends.
func running(t testing.TB, cfg *loop.Config) *loop.Loop {
	t.Helper()
	l := newLoop(t, cfg)
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	t.Cleanup(func() {
		l.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

// newLoop makes a loop that is closed when the test ends.
func newLoop(t testing.TB, cfg *loop.Config) *loop.Loop {
	t.Helper()
	l := must.Get(loop.New(cfg))(t)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
