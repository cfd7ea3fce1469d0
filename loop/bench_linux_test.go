package loop_test

import (
	"fmt"
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

// BenchmarkPost: one goroutine, and as many as there are CPUs, post functions to a
// loop that runs; the time is until all were called. In both cases a poster waits
// when it is 512 ahead, so that what is measured is not the memory for a backlog.
func BenchmarkPost(b *testing.B) {
	b.Run("one goroutine", func(b *testing.B) {
		l := running(b, nil)
		b.ReportAllocs()
		post(b, l, b.Loop)
	})
	b.Run("parallel", func(b *testing.B) {
		l := running(b, nil)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) { post(b, l, pb.Next) })
	})
	b.Run("to a sleeping loop and back", func(b *testing.B) {
		l := running(b, nil)
		back := make(chan struct{}, 1) // the loop must not wait
		f := func() { back <- struct{}{} }
		for b.Loop() {
			_ = l.Post(f)
			<-back
		}
	})
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

// BenchmarkTimerExpires: what one of so many timers takes that are due at times of a minute,
// from being armed to being called; nobody has anything else to do.
func BenchmarkTimerExpires(b *testing.B) {
	for _, n := range []int{1, 16, 1e3, 1e5} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			const span = int64(time.Minute)
			w, timers, now := loop.NewWheelBy(0, monotonic), make([]loop.Timer, n), int64(0)
			b.ReportAllocs()
			for b.Loop() {
				for i := range timers {
					w.Arm(&timers[i], expirer(func() {}), now+1+int64(i)*(span/int64(n)))
				}
				for end := now + span; now < end; {
					now += max(w.UntilNext(now), 0)
					w.Advance(now)
					if w.UntilNext(now) < 0 {
						now = end
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/timer")
			b.ReportMetric(0, "ns/op")
		})
	}
}

var benchStart = time.Now()

func monotonic() int64 { return int64(time.Since(benchStart)) }
