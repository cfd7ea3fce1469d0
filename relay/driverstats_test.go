package relay

import (
	"sync"
	"testing"
)

// TestChoicesAreCounted: each choice of a direction is counted when it is made.
func TestChoicesAreCounted(t *testing.T) {
	t.Parallel()

	d, _, _, _ := scripted(copying, nil, nil) // promotes at 2 of 8 bytes, demotes at 2 under 4
	for range 3 {
		for _, n := range []int{8, 8, 3, 3} {
			d.adapt(n)
		}
	}
	d.adapt(8)
	d.adapt(8)
	if got, want := d.env().counts.stats(), (DriverStats{Promotions: 4, Demotions: 3}); got != want {
		t.Errorf("adapting: %+v, want %+v", got, want)
	}
	d, src, dst, from := scripted(splicing, []event{{evBytes, 16 << 20}}, nil)
	d.set(pinned, true)
	lead(t, d, src, dst, from)
	if got, want := d.env().counts.stats(), (DriverStats{PipeGrowths: 2}); got != want { // by 4 each, to 1 MiB
		t.Errorf("growing: %+v, want %+v", got, want)
	}
}

// TestMarksAreCounted: those that are raised, and those that the guard lowers.
func TestMarksAreCounted(t *testing.T) {
	t.Parallel()

	d, src, _, _ := scripted(splicing, nil, nil)
	d.rareState().mark = &lowWaterMark{}
	d.pipeSize = pipeOf(markPipe)
	d.raiseMark()
	d.raiseMark() // it is raised already
	if got, want := d.env().counts.stats(), (DriverStats{MarksRaised: 1}); got != want {
		t.Errorf("raised: %+v, want %+v", got, want)
	}
	d.lowerMark()
	if got, want := d.env().counts.stats(), (DriverStats{MarksRaised: 1, MarksLowered: 1}); got != want {
		t.Errorf("lowered: %+v, want %+v", got, want)
	}
	src.noMark = true
	d.raiseMark()
	if got := d.env().counts.stats(); got.MarksRaised != 1 {
		t.Errorf("a source without marks: %+v", got)
	}
}

// TestLedger: the sum has what drivers did that are closed, once, and what many
// goroutines did at a time.
func TestLedger(t *testing.T) {
	t.Parallel()

	const writers, each = 8, 10_000
	r, err := New(&Config{Engine: EngineCopy})
	if err != nil {
		t.Fatal(err)
	}
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
}
