package claims

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// A candidate is a contestant: it does something n times.
type candidate struct {
	name string
	run  func(n int)
}

// slice is how long a candidate runs at a time: so short that most slices pass
// undisturbed, and long against the clock's own cost.
const slice = time.Millisecond

// rounds is the times of contestants, in seconds per operation, a value for each round.
type rounds struct {
	names []string
	took  []report.Sample
}

// alternate lets the contestants take turns, n rounds of a slice each; none always follows the
// same one.
func alternate(ctx context.Context, n int, all ...candidate) (*rounds, error) {
	r, ops := &rounds{took: make([]report.Sample, len(all))}, make([]int, len(all))
	for i, c := range all {
		r.names = append(r.names, c.name)
		ops[i] = calibrate(c)
	}
	for round := range n {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for i := range all {
			k := (i + round) % len(all)
			took := stopwatch(func() { all[k].run(ops[k]) })
			r.took[k] = append(r.took[k], took.Seconds()/float64(ops[k]))
		}
	}
	return r, nil
}

func stopwatch(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// calibrate finds how many operations fill a slice. It believes the faster of
// two runs: the other was disturbed, or cold.
func calibrate(c candidate) int {
	for n := 1; ; n *= 2 {
		run := func() { c.run(n) }
		if d := min(stopwatch(run), stopwatch(run)); d >= slice/2 {
			return max(1, int(float64(n)*float64(slice)/float64(d)))
		}
	}
}

// median returns the figure of the contestant's time, with scale operations
// taken for one.
func (r *rounds) median(name string, scale float64) Figure {
	f := spread("", Seconds, scaled(r.sample(name), scale))
	f.Of = name
	return f
}

// ratio returns the ratio of the times of a to those of b, round by round.
func (r *rounds) ratio(a, b string) Figure {
	return spread(a+" / "+b, Ratio, r.sample(a).Over(r.sample(b)))
}

func (r *rounds) sample(name string) report.Sample { return r.took[slices.Index(r.names, name)] }

func scaled(s report.Sample, by float64) report.Sample {
	s = slices.Clone(s)
	for i := range s {
		s[i] *= by
	}
	return s
}

func spread(name string, unit Unit, s report.Sample) Figure {
	low, high := s.Stray()
	return Figure{Name: name, Unit: unit, Value: s.Median(), Low: low, High: high}
}

func allocations(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
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

// alternate lets contestants take turns that note their failures here, and returns the first failure, if there is one.
func (f *failure) alternate(ctx context.Context, n int, all ...candidate) (*rounds, error) {
	r, err := alternate(ctx, n, all...)
	return r, cmp.Or(err, f.first)
}

// err is for when the contestants have ended.
func (f *failure) err() error { return f.first }
