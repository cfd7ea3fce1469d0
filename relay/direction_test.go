package relay

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

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
	bytes := 0
	for _, e := range slices.Concat(src.events, dst.events) {
		bytes += e.n
	}
	bound := 100 + 10*(len(src.events)+len(dst.events)+bytes)
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
	for i, b := range dst.got {
		if b != pattern(i) {
			t.Fatalf("byte %d of %d is %d, want %d", i, len(dst.got), b, pattern(i))
		}
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

// FuzzDirection is TestDirectionModel, guided by coverage.
func FuzzDirection(f *testing.F) { f.Fuzz(rapid.MakeFuzz(directionModel)) }

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

// TestDirectionReset: bytes that arrived before a reset are delivered, the error
// is the source's, and no end is passed on.
func TestDirectionReset(t *testing.T) {
	t.Parallel()

	for name, m := range map[string]mode{"copy": copying, "splice": splicing} {
		t.Run(name, func(t *testing.T) {
			d, src, dst, from := scripted(m, []event{{evBytes, 100}, {evReset, 0}}, nil)
			lead(t, d, src, dst, from)
			if len(dst.got) != 100 || dst.ended != 0 {
				t.Fatalf("delivered %d bytes and %d ends, want 100 and 0", len(dst.got), dst.ended)
			}
			if d.failure().side != sideSource || !errors.Is(d.failure().err, syscall.ECONNRESET) {
				t.Fatalf("failure is %+v, want ECONNRESET of the source", d.failure())
			}
		})
	}
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

// TestDirectionAborted: an end of file that was in truth a reset is one.
func TestDirectionAborted(t *testing.T) {
	t.Parallel()

	for _, m := range []mode{copying, splicing} {
		d, src, dst, from := scripted(m, []event{{evBytes, 100}}, nil)
		src.dead = true
		lead(t, d, src, dst, from)
		if len(dst.got) != 100 || dst.ended != 0 || d.failure().err != syscall.ECONNRESET {
			t.Fatalf("delivered %d bytes and %d ends, failure %v", len(dst.got), dst.ended, d.failure())
		}
	}
}

// TestDirectionUrgent: a mark that stops splice costs one recv, is counted, and
// the direction goes on splicing; the same bytes without a mark are all spliced.
func TestDirectionUrgent(t *testing.T) {
	t.Parallel()

	for _, as := range []error{nil, syscall.EAGAIN} {
		d, src, dst, from := scripted(splicing, []event{{evBytes, 100}, {evUrgent, 0}, {evBytes, 50}, {evBlock, 0}, {evBytes, 70}}, nil)
		d.set(pinned, true)
		src.urgentAs = as
		lead(t, d, src, dst, from)
		f := d.flow()
		if f.Spliced != 170 || f.Copied != 50 || f.Fallbacks[FallbackUrgent] != 1 || f.Reason != ReasonEOF {
			t.Fatalf("splice says %v at the mark: %+v, want 170 spliced, 50 copied, 1 urgent", as, f)
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
}

// TestDirectionGrows: a direction that keeps filling its pipe asks for a larger
// one, goes back to the default size when that is not to be had, and copies when
// nothing is.
func TestDirectionGrows(t *testing.T) {
	t.Parallel()

	d, src, dst, from := scripted(splicing, []event{{evBytes, 16 << 20}}, nil)
	d.set(pinned, true)
	lead(t, d, src, dst, from)
	if !slices.Contains(from.sizes, 4*pipe.DefaultSize) || slices.Max(from.sizes) != d.env().tune.MaxPipeSize {
		t.Fatalf("asked for pipes of %v bytes, want growth to %d", from.sizes, d.env().tune.MaxPipeSize)
	}
	if f := d.flow(); f.Spliced != 16<<20 {
		t.Fatalf("%+v, want all spliced", f)
	}
}

// TestDirectionDoesNotGrow: a source that runs dry after each fill needs no larger
// pipe, however often it delivers; nor does a single burst of two.
func TestDirectionDoesNotGrow(t *testing.T) {
	t.Parallel()

	var source []event
	for i := range 100 {
		source = append(source, event{evBytes, 30000}, event{evBlock, 0})
		if i%2 == 0 {
			source = append(source, event{evBytes, 30000}, event{evBytes, 30000}, event{evBlock, 0})
		}
	}
	d, src, dst, from := scripted(splicing, source, nil)
	d.set(pinned, true)
	lead(t, d, src, dst, from)
	if slices.Max(from.sizes) != pipe.DefaultSize {
		t.Fatalf("asked for pipes of up to %d bytes", slices.Max(from.sizes))
	}
}

// TestDirectionGrowsInStep: a source that runs dry after each fill, but fills much of
// the pipe each time, gets a larger one.
func TestDirectionGrowsInStep(t *testing.T) {
	t.Parallel()

	d, src, dst, from := scripted(splicing, bulk(pipe.DefaultSize, growAt+1), nil)
	d.set(pinned, true)
	lead(t, d, src, dst, from)
	if last := from.sizes[len(from.sizes)-1]; last != 4*pipe.DefaultSize {
		t.Fatalf("asked for a pipe of %d bytes in the end", last)
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

// TestDirectionTurn: a source that never blocks and a sink that always takes do
// not keep a step from returning.
func TestDirectionTurn(t *testing.T) {
	t.Parallel()

	d, src, dst, from := scripted(copying, []event{{evBytes, 100 << 20}}, nil)
	d.set(pinned, true)
	if w := d.step(); w != waitTurn || src.given > movesPerTurn*bufferSize {
		t.Fatalf("first step: %v after %d bytes", w, src.given)
	}
	lead(t, d, src, dst, from)
}

// TestDirectionAllocates: a step that moves bytes allocates nothing.
func TestDirectionAllocates(t *testing.T) {
	r, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
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
