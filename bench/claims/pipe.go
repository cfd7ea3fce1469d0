package claims

import (
	"context"
	"runtime"
	"sync"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pipe"
)

// pipeRounds is how many rounds the ways of having a pipe get.
const pipeRounds = 120

// The ways of having a pipe for a moment, nothing moved.
const (
	leased     = "leased"
	made       = "made"
	madeLikeGo = "made like Go"
	goPool     = "Go's pool"
)

func measurePipePool(ctx context.Context) (Result, error) { return measurePipes(ctx, 1) }

func measurePipePoolParallel(ctx context.Context) (Result, error) {
	return measurePipes(ctx, runtime.GOMAXPROCS(0))
}

// measurePipes has so many Ps have pipes at once. Times are until all of them have finished,
// divided by the operations of all of them.
func measurePipes(ctx context.Context, ps int) (r Result, err error) {
	pl, err := pipe.NewPool(nil)
	if err != nil {
		return r, err
	}
	defer pl.Close()
	var failed failure
	var idle sync.Pool
	ways := []contestant{
		{leased, repeat(func() { failed.note(lease(pl)) })},
		{made, repeat(func() { failed.note(makePipe()) })},
		{madeLikeGo, repeat(func() { failed.note(makeFinalized()) })},
		{goPool, repeat(func() { failed.note(useFinalized(&idle)) })},
	}
	leases, makes := allocated(ways[0], 1000, 1), allocated(ways[2], 1000, 1)
	if ps > 1 {
		for i, w := range ways {
			ways[i] = onAllPs(w.name, func(_, n int) { w.run(n) })
		}
	}
	times, err := alternate(ctx, pipeRounds, ways...)
	if err == nil {
		err = failed.err()
	}
	if err != nil {
		return r, err
	}
	each := 1 / float64(ps)
	r.Figures = []Figure{
		times.median(leased, each), leases, times.median(made, each), times.median(madeLikeGo, each), makes,
		times.ratio(leased, made), times.ratio(leased, goPool),
	}
	return r, nil
}

func repeat(op func()) func(n int) {
	return func(n int) {
		for range n {
			op()
		}
	}
}

// A failure is the first error of contestants, which cannot return it.
type failure struct {
	once  sync.Once
	first error
}

func (f *failure) note(err error) {
	if err != nil {
		f.once.Do(func() { f.first = err })
	}
}

// err is for when the contestants have ended.
func (f *failure) err() error { return f.first }

func lease(pl *pipe.Pool) error {
	p, err := pl.Get(0)
	if err != nil {
		return err
	}
	pl.Put(p)
	return nil
}

// makePipe is the least that a pipe can cost: pipe2 and two closes.
func makePipe() error {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return err
	}
	sys.Close(r)
	sys.Close(w)
	return nil
}

// finalized is a pipe after the design of Go's internal/poll (splice_linux.go):
// 1 MiB, kept in a sync.Pool, and closed by a finalizer once the collector has
// dropped it.
type finalized struct {
	r, w int // owned
	_    int // how much is inside; nothing ever is here
}

// newFinalized makes one. That the user's quota does not allow the size is no
// error, as it is none to package net. It is not inlined because the pipe must
// not live on the stack.
//
//go:noinline
func newFinalized() (*finalized, error) {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	_, _ = sys.SetPipeSize(r, 1<<20)
	return &finalized{r: r, w: w}, nil
}

func (f *finalized) close() {
	sys.Close(f.r)
	sys.Close(f.w)
}

// makeFinalized makes one and closes it, as Go did before it had the pool.
func makeFinalized() error {
	f, err := newFinalized()
	if err == nil {
		f.close()
	}
	return err
}

// useFinalized has one from the pool of that design.
func useFinalized(idle *sync.Pool) (err error) {
	f, _ := idle.Get().(*finalized)
	if f == nil {
		if f, err = newFinalized(); err != nil {
			return err
		}
		runtime.SetFinalizer(f, (*finalized).close)
	}
	idle.Put(f)
	return nil
}
