package pool_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

// stressTime is how long the ownership stress runs with each variant; PENSTOCK_STRESS
// overrides it.
func stressTime(t *testing.T) time.Duration {
	if s := os.Getenv("PENSTOCK_STRESS"); s != "" {
		return must.Get(time.ParseDuration(s))(t)
	}
	if testing.Short() {
		return 500 * time.Millisecond
	}
	return 3 * time.Second
}

// TestOwnershipStress lets many goroutines use a pool in every way, while
// processors come and go, until it is closed under their hands. No item may be in
// two hands, closed twice, closed before its time, or lost, and there may never
// be too many idle ones. It runs in episodes of some milliseconds.
func TestOwnershipStress(t *testing.T) {
	setProcs(t, runtime.GOMAXPROCS(0))
	end := time.Now().Add(stressTime(t))
	for n := 0; n < len(plots) || time.Now().Before(end); n++ {
		for _, v := range pool.Variants() {
			s := &stress{plot: plots[n%len(plots)]}
			runtime.GOMAXPROCS(s.procs)
			if !v.Duel(1, duel) || !v.Duel(4, duel) {
				s.fail("a latch let two in at once")
			} else {
				s.run(t, v)
			}
			if what := s.wrong.Load(); what != nil {
				t.Fatalf("episode %d, %s, %+v: %s", n, v.Name, s.plot, *what)
			}
		}
	}
}

// A plot is the course of an episode.
type plot struct {
	procs   int // at first
	workers int
	maxIdle int
	hold    int  // items that a worker has at most
	sweep   bool // sweeps, else trims
	resize  bool // GOMAXPROCS changes
	collect bool
	tight   bool // nothing but Get and Put, as fast as can be
}

var plots = []plot{
	{procs: 2, workers: 2, maxIdle: 1000, hold: 1, tight: true},
	{procs: 2, workers: 4, maxIdle: 1000, hold: 1, sweep: true, resize: true, tight: true},
	{procs: 2, workers: 2, maxIdle: 1000, hold: 1, sweep: true},
	{procs: 4, workers: 4, maxIdle: 1000, hold: 40, sweep: true, collect: true},
	{procs: 2, workers: 3, maxIdle: 40, hold: 20, sweep: true},
	{procs: 3, workers: 5, maxIdle: 100, hold: 30},
	{procs: 8, workers: 16, maxIdle: 300, hold: 50, resize: true, collect: true},
	{procs: 2, workers: 8, maxIdle: 200, hold: 200, sweep: true, resize: true},
	{procs: 4, workers: 4, maxIdle: 1, hold: 2},
	{procs: 4, workers: 4, maxIdle: 3, hold: 4, sweep: true, resize: true},
}

// An episode begins with two duels for a single latch.
const (
	episode = 15 * time.Millisecond
	duel    = 5 * time.Millisecond
)

type stress struct {
	plot
	maker
	p        *pool.Pool[*probe]
	team     []*worker
	interval atomic.Int64
	ending   atomic.Bool // Close is about to be called
	stop     atomic.Bool
}

func (s *stress) run(t *testing.T, v pool.Variant) {
	runtime.GOMAXPROCS(s.procs)
	cfg := s.config(s.maxIdle)
	cfg.Close = s.closeProbe
	if !s.tight {
		cfg.Reset = func(*probe) bool { return rand.IntN(50) > 0 }
	}
	s.p = newPool(t, v, cfg)
	for range s.workers {
		s.team = append(s.team, &worker{stress: s, r: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))})
	}

	var workers, others sync.WaitGroup
	for _, w := range s.team {
		workers.Go(w.work)
	}
	others.Go(func() { s.until(s.disturb) })
	if s.resize {
		others.Go(func() { s.until(func() { runtime.GOMAXPROCS(1 + rand.IntN(8)) }) })
	}
	if s.collect {
		others.Go(func() { s.until(runtime.GC) })
	}
	time.Sleep(episode)
	s.ending.Store(true)
	s.p.Close() // the workers are at it
	s.stop.Store(true)
	workers.Wait()
	others.Wait()
	s.settle()
}

func (s *stress) until(f func()) {
	for !s.stop.Load() && s.wrong.Load() == nil {
		f()
	}
}

// disturb checks the statistics, and drops idle items.
func (s *stress) disturb() {
	st := s.p.Stats()
	switch {
	case st.Idle > int64(s.maxIdle):
		s.fail("more than MaxIdle items are idle")
	case st.Live < 0 || st.Idle < 0:
		s.fail("a negative number of items")
	}
	if !s.sweep {
		for range 10 {
			s.p.Trim(rand.IntN(s.maxIdle))
		}
		return
	}
	s.p.Sweep()
	s.interval.Add(1) // not before the sweep is over
}

// closeProbe is maker's close, and checks the age of a swept item. An item that
// was put after the previous sweep must stay.
func (s *stress) closeProbe(x *probe) {
	s.close(x)
	if s.sweep && !s.ending.Load() && !s.inPut(x) && x.since.Load() == s.interval.Load() {
		s.fail("an item was swept before its time")
	}
}

// inPut reports whether x is closed by Put or Discard. It may be wrong about an
// item that Put has just handed over.
func (s *stress) inPut(x *probe) bool {
	for _, w := range s.team {
		if w.giving.Load() == x {
			return true
		}
	}
	return false
}

// settle verifies that everything has been closed. The pool is closed, and no
// goroutine has an item.
func (s *stress) settle() {
	st := s.p.Stats()
	switch made := s.made.Load(); {
	case s.closed.Load() < made:
		s.fail("an item was lost")
	case st.Made != made || st.Closed != made || st.Live != 0 || st.Idle != 0:
		s.fail("the statistics are wrong")
	}
	if err := s.p.Check(); err != nil {
		s.fail(err.Error())
	}
}

// A worker takes and gives.
type worker struct {
	*stress
	r      *rand.Rand
	hand   []*probe
	giving atomic.Pointer[probe] // the argument of its last Put or Discard
}

func (w *worker) work() {
	if w.tight {
		w.until(w.pairs)
		return
	}
	target := 0
	w.until(func() {
		if len(w.hand) == target {
			target = w.r.IntN(w.hold + 1)
		}
		if len(w.hand) <= target {
			w.take()
		} else {
			w.give()
		}
	})
	for len(w.hand) > 0 {
		w.give()
	}
}

func (w *worker) pairs() {
	for range 100 {
		x, err := w.p.Get(context.Background())
		if err != nil {
			return
		}
		w.got(x)
		w.gives(x, w.interval.Load())
		w.giving.Store(x)
		w.p.Put(x)
	}
	w.giving.Store(nil)
}

func (w *worker) take() {
	var x *probe
	ok := false
	if w.r.IntN(4) == 0 {
		x, ok = w.p.TryGet()
	} else {
		var err error
		x, err = w.p.Get(context.Background())
		ok = err == nil // else the pool is closed
	}
	if ok {
		w.got(x)
		w.hand = append(w.hand, x)
	}
}

func (w *worker) give() {
	last := len(w.hand) - 1
	x := w.hand[last]
	w.hand = w.hand[:last]
	w.gives(x, w.interval.Load())
	w.giving.Store(x)
	if w.r.IntN(200) == 0 {
		w.p.Discard(x)
	} else {
		w.p.Put(x)
	}
	w.giving.Store(nil)
}

// mutants lack a safety mechanism each: in a file of the package the first of two texts gives way to the second.
var mutants = map[string]struct {
	file  string
	edits [][2]string
}{
	"a revoked owner may not know it yet":                     {"owner_biased_linux_amd64.go", [][2]string{{"func barrier() {", "func barrier() {\n\treturn"}}},
	"the holder of mu does not wait until the owner has left": {"latch.go", [][2]string{{"; l.occupied(); i++", "; false; i++"}}},
	"the owner does not look whether it is revoked":           {"owner_biased_linux_amd64.go", [][2]string{{"if l.state.Load() == open {", "if true {"}}},
	"used items count as idle for the whole interval":         {"depot.go", [][2]string{{"m.low = min(m.low, n)", ""}}},
	"slots are filled without being reserved":                 {"depot.go", [][2]string{{"d.free -= n", "n = int(want)"}, {"if d.free == 0 {", "if false {"}}},
	"a closed pool takes items":                               {"core.go", [][2]string{{"if s.shut {", "if false {"}}},
	"inside, an owner may move to another P or be stopped": {"pin.go", [][2]string{
		{"linkname procPin", "linkname pin"},
		{"linkname procUnpin", "linkname unpin"},
		{"func procPin() int", "func pin() int\n\nfunc procPin() int { defer unpin(); return pin() }"},
		{"func procUnpin()", "func unpin()\n\nfunc procUnpin() {}"},
	}},
}

// TestMutants builds the package once as each mutant, and expects the ownership stress to fail within three
// minutes. CI runs it with
//
//	PENSTOCK_MUTANTS=1 go test -timeout 20m -v -run '^TestMutants$' ./pool
func TestMutants(t *testing.T) {
	if os.Getenv("PENSTOCK_MUTANTS") == "" {
		t.Skip("takes minutes; set PENSTOCK_MUTANTS=1")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("takes two cores: on one, no load overtakes another thread's store")
	}
	if len(pool.Variants()) < 2 {
		t.Skip("shards have no owners in this build, or the kernel refuses membarrier(2)")
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			path := must.Get(filepath.Abs(m.file))(t)
			text := string(must.Get(os.ReadFile(path))(t))
			for _, edit := range m.edits {
				if strings.Count(text, edit[0]) != 1 {
					t.Fatalf("%s has not %q once", m.file, edit[0])
				}
				text = strings.Replace(text, edit[0], edit[1], 1)
			}
			changed, overlay := filepath.Join(t.TempDir(), m.file), filepath.Join(t.TempDir(), "overlay.json")
			must.Do(t, os.WriteFile(changed, []byte(text), 0o600),
				os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, path, changed), 0o600))
			kill(t, overlay)
		})
	}
	t.Run("none", survive)
}

// kill expects the stress to fail in the build with the overlay. The rarest failure, of pin.go, takes
// 20 s on average, more than 55 s once in twenty runs: there are three.
func kill(t *testing.T, overlay string) {
	begin := time.Now()
	var out string
	for range 3 {
		var err error
		if out, err = stressed(t, "55s", "-overlay", overlay); err != nil {
			t.Logf("found after %.1f s: %s", time.Since(begin).Seconds(), complaint(out))
			return
		}
	}
	t.Fatalf("the stress did not notice\n%s", out)
}

// survive expects the stress to pass in the correct build: so it is not the
// stress itself that kills the others.
func survive(t *testing.T) {
	if out, err := stressed(t, "20s"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// stressed builds the test binary and runs the stress for a time, less than a minute.
func stressed(t *testing.T, d string, flags ...string) (string, error) {
	binary := filepath.Join(t.TempDir(), "stress.test")
	build := exec.Command("go", append(append([]string{"test", "-c", "-o", binary}, flags...), ".")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary, "-test.run", "^TestOwnershipStress$", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), "PENSTOCK_STRESS="+d, "GOTRACEBACK=single")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// complaint returns the line of the output that has the failure.
func complaint(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "episode") || strings.Contains(line, "panic:") || strings.Contains(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}
