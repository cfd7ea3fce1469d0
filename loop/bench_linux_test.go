package loop_test

import (
	"sync/atomic"
	"testing"
	"time"

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

func post(b *testing.B, l *loop.Loop, next func() bool) {
	var called atomic.Int64
	f := func() { called.Store(called.Load() + 1) }
	flushed := make(chan struct{}, 1)
	flush := func() { flushed <- struct{}{} }
	n := 0
	for ; next(); n++ {
		if n%512 == 511 {
			_ = l.Post(flush)
			<-flushed
		}
		if err := l.Post(f); err != nil {
			b.Error(err)
		}
	}
	_ = l.Post(flush)
	<-flushed
	if called.Load() != int64(n) {
		b.Errorf("%d of %d were called", called.Load(), n)
	}
}

var benchStart = time.Now()

func monotonic() int64 { return int64(time.Since(benchStart)) }
