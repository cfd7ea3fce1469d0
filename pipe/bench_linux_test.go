package pipe_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pipe"
)

// madePipe is the least a pipe can be: three system calls, no allocation.
func madePipe() {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		panic(err)
	}
	sys.Close(r)
	sys.Close(w)
}

// finalized is the design of Go's internal/poll: a sync.Pool of pipes of 1 MiB,
// which a finalizer closes once the collector has dropped them.
type finalized struct {
	r, w int
	data int
}

var finalizedPool = sync.Pool{New: func() any {
	f, err := makeFinalized()
	if err != nil {
		return nil
	}
	runtime.SetFinalizer(f, (*finalized).close)
	return f
}}

func makeFinalized() (*finalized, error) {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	sys.SetPipeSize(r, 1<<20)
	return &finalized{r: r, w: w}, nil
}

func (f *finalized) close() {
	sys.Close(f.r)
	sys.Close(f.w)
}

func getFinalized() *finalized { return finalizedPool.Get().(*finalized) }

func putFinalized(f *finalized) {
	if f.data != 0 {
		runtime.SetFinalizer(f, nil)
		f.close()
		return
	}
	finalizedPool.Put(f)
}

func poolOp(b *testing.B, pl *pipe.Pool) func() {
	return func() {
		p, err := pl.Get(0)
		if err != nil {
			b.Error(err)
			return
		}
		pl.Put(p)
	}
}

func finalizedOp() { putFinalized(getFinalized()) }

func resizedOp() {
	f, err := makeFinalized()
	if err != nil {
		panic(err)
	}
	f.close()
}

// pipeOps are the ways of having a pipe for a moment.
func pipeOps(b *testing.B) (ops []contestant, fns []func()) {
	pl := newPool(b, nil)
	fns = []func(){poolOp(b, pl), madePipe, resizedOp, finalizedOp}
	for i, name := range []string{"Pool", "Make", "Make1MiB", "SyncPool"} {
		ops = append(ops, timed(name, fns[i]))
	}
	return ops, fns
}

// BenchmarkSplicePipe has a pipe for a moment: from the pool, made and closed
// (bare, and of 1 MiB as Go makes them), and by Go's own design. Paired reports
// how much less time the pool takes than each, by rounds that alternate.
func BenchmarkSplicePipe(b *testing.B) {
	ops, fns := pipeOps(b)
	for i, c := range ops {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fns[i]()
			}
		})
	}
	b.Run("Paired", func(b *testing.B) { paired(b, true, ops[0], ops[1], ops[2]) })
	b.Run("PairedSyncPool", func(b *testing.B) { paired(b, false, ops[0], ops[3]) })
}

// BenchmarkSplicePipeParallel is the same on all Ps at once.
func BenchmarkSplicePipeParallel(b *testing.B) {
	ops, fns := pipeOps(b)
	for i, c := range ops {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					fns[i]()
				}
			})
		})
		ops[i] = onAllPs(c)
	}
	b.Run("Paired", func(b *testing.B) { paired(b, true, ops[0], ops[1], ops[2]) })
	b.Run("PairedSyncPool", func(b *testing.B) { paired(b, false, ops[0], ops[3]) })
}

// onAllPs runs a contestant on every P, each the whole number of times, and takes
// the time until the last has finished.
func onAllPs(c contestant) contestant {
	return contestant{c.name, func(n int) time.Duration {
		var wg sync.WaitGroup
		start := time.Now()
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() { c.run(n) })
		}
		wg.Wait()
		return time.Since(start)
	}}
}
