package relay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
)

// lead drives d by hand until it ends, and checks after every step what must hold
// after every step. It fails if d asks to wait for what is not blocked, or steps
// more often than its events can explain.
func lead(t interface {
	Helper()
	Fatalf(string, ...any)
}, d *direction, src *scriptedSource, dst *scriptedSink, from *scriptedLender,
) {
	t.Helper()
	size := 0
	for _, e := range slices.Concat(src.events, dst.events) {
		size += e.n
	}
	bound := 100 + 10*(len(src.events)+len(dst.events)+size)
	for range bound {
		w := d.step()
		if from.buffers+from.pipes > 1 && !(d.residue() > 0) {
			t.Fatalf("holds %d buffers and %d pipes at once", from.buffers, from.pipes)
		}
		switch w {
		case waitSource:
			if from.buffers+from.pipes != 0 {
				t.Fatalf("waits for its source with %d buffers and %d pipes leased", from.buffers, from.pipes)
			}
			if !src.wake() {
				t.Fatalf("waits for a source that is not blocked: %v", src.events)
			}
		case waitSink:
			if d.mode != transferring && d.residue() == 0 {
				t.Fatalf("waits for its sink with nothing to give it")
			}
			if !dst.wake() {
				t.Fatalf("waits for a sink that is not blocked: %v", dst.events)
			}
		case waitTokens:
			w := d.pacer()
			if !w.afterward && from.buffers+from.pipes != 0 {
				t.Fatalf("waits for its rate with %d buffers and %d pipes leased", from.buffers, from.pipes)
			}
			left := w.remaining(w.clock.now())
			if left <= 0 {
				t.Fatalf("waits for a rate that allows more")
			}
			w.clock.(*handClock).t += int64(left)
			for !d.rested() {
				w.clock.(*handClock).t += int64(w.remaining(w.clock.now()))
			}
		case waitDone:
			if d.step() != waitDone {
				t.Fatalf("moves after its end")
			}
			return
		}
	}
	t.Fatalf("spins: not ended after %d steps; source %v, sink %v", bound, src.events, dst.events)
}

// checkEnd checks the books after the end.
func checkEnd(t interface {
	Helper()
	Fatalf(string, ...any)
}, d *direction, src *scriptedSource, dst *scriptedSink, from *scriptedLender,
) {
	t.Helper()
	want := make([]byte, len(dst.got))
	if fillPattern(want, 0); !bytes.Equal(dst.got, want) {
		t.Fatalf("other bytes among %d", len(dst.got))
	}
	residue := d.residue()
	queued := src.queued()
	d.abandon(true)
	f := d.flow()
	if f.Bytes() != int64(len(dst.got)) {
		t.Fatalf("counted %d spliced + %d copied, the sink took %d", f.Spliced, f.Copied, len(dst.got))
	}
	if src.given != len(dst.got)+residue {
		t.Fatalf("took %d, delivered %d, holds %d", src.given, len(dst.got), residue)
	}
	wantLost := int64(residue + queued)
	if d.is(eofSeen) || d.spent() {
		wantLost = int64(residue)
	}
	if f.Lost != wantLost {
		t.Fatalf("lost %d, want %d", f.Lost, wantLost)
	}
	if from.buffers != 0 || from.pipes != 0 {
		t.Fatalf("%d buffers and %d pipes still leased", from.buffers, from.pipes)
	}
	if f.Reason == ReasonEOF && !d.is(oneWay) {
		if dst.ended != 1 || f.Lost != 0 || from.dirty != 0 {
			t.Fatalf("clean end with %d ends passed on, %d lost, %d dirty pipes", dst.ended, f.Lost, from.dirty)
		}
	} else if dst.ended != 0 {
		t.Fatalf("passed on an end although it failed: %v", d.failure())
	}
}

var modes = map[string]mode{"copy": copying, "splice": splicing, "transfer": transferring}

// TestDirectionEveryInterleaving leads a direction through every script of up to
// four source and two sink events, and of up to three each, in every mode, pinned
// and not.
func TestDirectionEveryInterleaving(t *testing.T) {
	t.Parallel()

	if testing.Short() {
		t.Skip("-short: a state machine is the same for every user; the run without -short has it")
	}
	source := []event{{evBytes, 5}, {evBlock, 0}, {evEINTR, 0}, {evRefuse, 0}, {evUrgent, 0}, {evEnd, 0}, {evReset, 0}}
	sink := []event{{evBytes, 2}, {evBlock, 0}, {evEINTR, 0}, {evRefuse, 0}, {evReset, 0}}
	spare := new(buffer)
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			for _, s := range scripts(source, 4) {
				for _, k := range scripts(sink, 2+min(1, 4-len(s))) {
					if m == transferring && hasAny(s, evBlock, evUrgent, evReset) {
						continue // a regular file has none of these
					}
					for _, fixed := range []bool{true, false} {
						d, src, dst, from := scripted(m, slices.Clone(s), slices.Clone(k))
						d.set(pinned, fixed)
						from.spare = spare
						lead(scriptT{t, s, k}, d, src, dst, from)
						checkEnd(scriptT{t, s, k}, d, src, dst, from)
					}
				}
			}
		})
	}
}

// scriptT names the script in a failure.
type scriptT struct {
	*testing.T
	source, sink []event
}

func (t scriptT) Fatalf(format string, args ...any) {
	t.Helper()
	t.T.Fatalf("source %v, sink %v: %s", t.source, t.sink, fmt.Sprintf(format, args...))
}

// scripts returns every sequence of at most n of the events.
func scripts(events []event, n int) [][]event {
	all := [][]event{nil}
	for i := 0; n > 0; n-- {
		end := len(all)
		for ; i < end; i++ {
			for _, e := range events {
				all = append(all, append(slices.Clone(all[i]), e))
			}
		}
	}
	return all
}

func hasAny(events []event, kinds ...eventKind) bool {
	return slices.ContainsFunc(events, func(e event) bool { return slices.Contains(kinds, e.kind) })
}

// TestDirectionModel leads a direction through long random scripts, with limits,
// and pipes that are not to be had.
func TestDirectionModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, directionModel)
}

func directionModel(t *rapid.T) {
	draw := func(name string, kinds []eventKind) []event {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event {
			e := event{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
			if e.kind == evBytes {
				e.n = rapid.SampledFrom([]int{1, 2, 3, 7, 8, 100, 4096, 65536, 200000}).Draw(t, "n")
			}
			return e
		}), 0, 30).Draw(t, name)
	}
	source := draw("source", []eventKind{evBytes, evBytes, evBytes, evBlock, evEINTR, evUrgent, evRefuse, evReset})
	sink := draw("sink", []eventKind{evBytes, evBytes, evBlock, evEINTR, evRefuse, evReset})
	d, src, dst, from := scripted(rapid.SampledFrom([]mode{copying, splicing}).Draw(t, "mode"), source, sink)
	d.set(pinned, rapid.Bool().Draw(t, "pinned"))
	src.urgentAs = rapid.SampledFrom([]error{nil, syscall.EAGAIN}).Draw(t, "urgentAs")
	from.dry = rapid.SampledFrom([]error{nil, pipe.ErrBudget, pipe.ErrNotSupported, syscall.EMFILE}).Draw(t, "dry")
	if rapid.Bool().Draw(t, "limited") {
		limit := rapid.IntRange(0, 300000).Draw(t, "limit")
		d.set(oneWay, true)
		d.limit(int64(limit))
		lead(t, d, src, dst, from)
		if src.given+int(d.rareState().remain) != limit {
			t.Fatalf("took %d bytes, %d are left of a limit of %d", src.given, d.rareState().remain, limit)
		}
	} else {
		lead(t, d, src, dst, from)
	}
	checkEnd(t, d, src, dst, from)
}

// TestDirectionFlush: the last attempt survives an interrupted call and a refusal,
// delivers all that a dead source had sent, and nothing but the residue of one
// that lives.
func TestDirectionFlush(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name      string
		mode      mode
		then      event
		all       bool
		got, lost int
	}{
		{"interrupted", copying, event{evEINTR, 0}, false, 100, 70},
		{"refused", splicing, event{evRefuse, 0}, false, 100, 70},
		{"all", copying, event{evEINTR, 0}, true, 170, 0},
		{"all spliced", splicing, event{evRefuse, 0}, true, 170, 0},
		{"blocked", copying, event{evBlock, 0}, true, 0, 170},
	} {
		source := []event{{evBytes, 100}, {evBlock, 0}, {evBytes, 70}, {evReset, 0}}
		d, src, dst, from := scripted(c.mode, source, []event{{evBlock, 0}, c.then})
		d.set(pinned, true)
		for d.step() != waitSink {
		}
		src.wake()
		dst.wake()
		d.fail("read", sideSource, syscall.ETIMEDOUT) // as by a cut
		d.flush(c.all)
		d.abandon(true)
		if !d.is(ended) || d.failure().err != syscall.ETIMEDOUT || d.flow().Reason != ReasonError || dst.ended != 0 {
			t.Errorf("%s: how it ended has changed: %v, %v, %d ends passed on", c.name, d.failure(), d.flow().Reason, dst.ended)
		}
		if len(dst.got) != c.got || d.flow().Lost != int64(c.lost) || from.buffers+from.pipes != 0 {
			t.Errorf("%s: delivered %d, lost %d, %d leases; want %d, %d, 0", c.name, len(dst.got), d.flow().Lost, from.buffers+from.pipes, c.got, c.lost)
		}
	}
}

// TestDirectionDry: without a pipe a direction copies, says why once for each
// stretch, and splices again as soon as it gets one.
func TestDirectionDry(t *testing.T) {
	t.Parallel()

	for err, want := range map[error]Fallback{
		pipe.ErrBudget:                             FallbackBudget,
		fmt.Errorf("pipe2: %w", syscall.EMFILE):    FallbackDescriptors,
		fmt.Errorf("no: %w", pipe.ErrNotSupported): FallbackUnsupported,
	} {
		d, src, dst, from := scripted(splicing, []event{{evBytes, 200000}, {evBlock, 0}, {evBytes, 100}}, nil)
		d.set(pinned, true)
		from.dry = err
		for d.step() != waitSource {
		}
		if f := d.flow(); f.Copied != 200000 || f.Fallbacks[want] != 1 {
			t.Fatalf("%v: %+v, want 200000 copied and one %v", err, f, want)
		}
		from.dry = nil
		src.wake()
		lead(t, d, src, dst, from)
		if f := d.flow(); (f.Spliced == 100) != (want != FallbackUnsupported) {
			t.Fatalf("%v: %+v once pipes are to be had", err, f)
		}
	}
}

// TestDirectionAdapts: large reads promote, small ones demote, and a single read
// of the other kind does neither.
func TestDirectionAdapts(t *testing.T) {
	t.Parallel()

	d, _, _, _ := scripted(copying, nil, nil) // promotes at 2 of 8 bytes, demotes at 2 under 4
	for i, step := range []struct {
		n    int
		want mode
	}{
		{8, copying},
		{7, copying},
		{8, copying},
		{9, splicing},
		{3, splicing},
		{4, splicing},
		{3, splicing},
		{1, copying},
	} {
		d.adapt(step.n)
		if d.mode != step.want {
			t.Fatalf("read %d of %d bytes: mode %d, want %d", i, step.n, d.mode, step.want)
		}
	}
	if got := d.env().counts.stats(); got != (DriverStats{Promotions: 1, Demotions: 1}) {
		t.Errorf("counted %+v", got)
	}
}

// TestDirectionGrows: a direction that keeps filling its pipe, or fills much of it each time, asks for a larger one. A source that runs
// dry after each small fill needs none, and neither does a burst of two.
func TestDirectionGrows(t *testing.T) {
	t.Parallel()

	var bursts []event
	for i := range 100 {
		bursts = append(bursts, event{evBytes, 30000}, event{evBlock, 0})
		if i%2 == 0 {
			bursts = append(bursts, event{evBytes, 30000}, event{evBytes, 30000}, event{evBlock, 0})
		}
	}
	for name, c := range map[string]struct {
		source []event
		most   int // that is asked for
		grown  int64
	}{
		"never dry":   {[]event{{evBytes, 4 << 20}}, defaultMaxPipeSize, 2},
		"in step":     {bulk(pipe.DefaultSize, growAt+1), 4 * pipe.DefaultSize, 1},
		"small fills": {bursts, pipe.DefaultSize, 0},
	} {
		d, src, dst, from := scripted(splicing, c.source, nil)
		d.set(pinned, true)
		lead(t, d, src, dst, from)
		if most := slices.Max(from.sizes); most != c.most || c.grown > 0 && !slices.Contains(from.sizes, 4*pipe.DefaultSize) {
			t.Errorf("%s: asked for pipes of %v bytes, want growth to %d", name, from.sizes, c.most)
		}
		if got := d.env().counts.stats(); got != (DriverStats{PipeGrowths: c.grown}) || d.flow().Copied != 0 {
			t.Errorf("%s: counted %+v, want %d growths; %+v", name, got, c.grown, d.flow())
		}
	}
}

// TestDirectionAllocates: a step that moves bytes allocates nothing.
func TestDirectionAllocates(t *testing.T) {
	r := must.Get(New(nil))(t)
	defer r.Close()
	d, src, dst, _ := scripted(copying, nil, nil)
	d.env().leaser = r
	d.set(pinned, true)
	dst.got = make([]byte, 0, 1<<20)
	events := make([]event, 2)
	n := testing.AllocsPerRun(1000, func() {
		src.events = append(events[:0], event{evBytes, 64}, event{evBlock, 0})
		for d.step() != waitSource {
		}
		dst.got = dst.got[:0]
	})
	if n != 0 {
		t.Fatalf("%v allocations per message", n)
	}
}

// bulk is a source that runs dry after each n bytes, m times.
func bulk(n, m int) []event {
	var events []event
	for range m {
		events = append(events, event{evBytes, n}, event{evBlock, 0})
	}
	return events
}

const handTick = time.Millisecond

// A handTimer fires when the test says so.
type handTimer struct {
	f     func()
	armed bool
}

func (c *handTimer) now() int64 { return 0 }

func (c *handTimer) afterFunc(d time.Duration, f func()) timer {
	c.f = f
	c.Reset(d)
	return c
}

func (c *handTimer) Reset(d time.Duration) bool {
	if d != handTick {
		panic("armed for another time")
	}
	c.armed = true
	return false
}

func (c *handTimer) Stop() bool { return false }

func (c *handTimer) fire() { c.armed = false; c.f() }

// TestGuard: the mark of a direction that moves stays raised; that of one which
// moved nothing since the last look is lowered, and must prove twice as much before
// it is raised again. The timer runs only as long as a mark is raised.
func TestGuard(t *testing.T) {
	t.Parallel()

	clock := &handTimer{}
	g := &guard{clock: clock, tick: handTick}
	raised := func() (*direction, *scriptedSource) {
		d, src, _, _ := scripted(splicing, nil, nil)
		d.rareState().mark = &lowWaterMark{proof: markProof}
		d.pipeSize = pipeOf(markPipe)
		d.spliced.Store(markProof)
		d.raiseMark()
		g.add(d)
		return d, src
	}
	busy, busySource := raised()
	idle, idleSource := raised()
	busy.spliced.Add(1)
	clock.fire()
	if len(busySource.marks) != 1 || !slices.Equal(idleSource.marks, []int{512 << 10, 1}) || !clock.armed {
		t.Fatalf("after a look: busy %v, idle %v, timer armed: %v", busySource.marks, idleSource.marks, clock.armed)
	}
	if got := idle.env().counts.stats(); got != (DriverStats{MarksRaised: 1, MarksLowered: 1}) {
		t.Errorf("counted %+v", got)
	}
	idle.spliced.Add(markProof)
	if idle.raiseMark(); len(idleSource.marks) != 2 {
		t.Fatal("raised again after as little as at first")
	}
	idle.spliced.Add(markProof)
	if idle.raiseMark(); len(idleSource.marks) != 3 {
		t.Fatal("not raised again")
	}
	clock.fire()
	if !slices.Equal(busySource.marks, []int{512 << 10, 1}) || clock.armed || len(g.raised) != 0 {
		t.Fatalf("after the end: busy %v, timer armed: %v", busySource.marks, clock.armed)
	}
	g.add(idle)
	if !clock.armed {
		t.Fatal("the timer does not run again")
	}
	clock.fire()
	if !slices.Equal(idleSource.marks, []int{512 << 10, 1, 512 << 10, 1}) {
		t.Fatalf("idle %v", idleSource.marks)
	}
}

// TestLedger: the sum has what drivers did that are closed, once, and what many
// goroutines did at a time.
func TestLedger(t *testing.T) {
	t.Parallel()

	const writers, each = 8, 10_000
	r := must.Get(New(&Config{Engine: EngineCopy}))(t)
	defer r.Close()
	l := &r.ledger
	first, second := l.driver(), l.driver()
	for what := range choices {
		first.note(what)
	}
	second.note(turnCut)
	l.close(first)
	l.close(first)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for range each {
				l.goroutines.note(promoted)
			}
		})
	}
	running.Wait()
	want := DriverStats{
		Promotions: 1 + writers*each, Demotions: 1, PipeGrowths: 1, MarksRaised: 1, MarksLowered: 1, Rests: 1,
		Residues: 1, HeapResidues: 1, TurnsCut: 2,
	}
	if got := r.Stats().Drivers; got != want || len(l.open) != 1 {
		t.Errorf("%+v, %d open, want %+v, 1", got, len(l.open), want)
	}
	on, err := loop.New(nil)
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	d, err := r.NewDriver(on, nil)
	if err != nil || len(l.open) != 2 {
		t.Fatalf("%d open, %v", len(l.open), err)
	}
	if err := errors.Join(d.Close(), on.Close()); err != nil || len(l.open) != 1 {
		t.Errorf("%d open after the end of a driver, %v", len(l.open), err)
	}
}

// TestMark: a direction raises its source's mark once it has moved markProof
// through large pipes and the source runs dry, and not again while it is raised.
func TestMark(t *testing.T) {
	t.Parallel()

	const piece = 4 << 20
	for name, c := range map[string]struct {
		pieces int
		change func(*direction, *scriptedSource)
		want   []int
	}{
		"bulk":             {6, nil, []int{512 << 10}},
		"not yet proven":   {3, nil, nil},
		"small pipes":      {6, func(d *direction, _ *scriptedSource) { d.env().tune.MaxPipeSize = 256 << 10 }, nil},
		"copying":          {6, func(d *direction, _ *scriptedSource) { d.mode = copying }, nil},
		"not ours":         {6, func(d *direction, _ *scriptedSource) { d.set(oneWay, true) }, nil},
		"a source of none": {8, func(_ *direction, s *scriptedSource) { s.noMark = true }, []int{512 << 10}},
	} {
		d, src, dst, from := scripted(splicing, bulk(piece, c.pieces), nil)
		d.set(pinned, true)
		if c.change != nil {
			c.change(d, src)
		}
		lead(t, d, src, dst, from)
		if !slices.Equal(src.marks, c.want) {
			t.Errorf("%s: marks %v, want %v", name, src.marks, c.want)
		}
		if raised := len(c.want) > 0 && !src.noMark; raised != (len(from.guarded) == 1) || raised != (d.env().counts.stats().MarksRaised == 1) {
			t.Errorf("%s: %d guarded, %+v", name, len(from.guarded), d.env().counts.stats())
		}
	}
}
