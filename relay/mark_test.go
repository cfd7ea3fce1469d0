package relay

import (
	"slices"
	"testing"
	"time"
)

// bulk is a source that runs dry after each n bytes, m times.
func bulk(n, m int) []event {
	var events []event
	for range m {
		events = append(events, event{evBytes, n}, event{evBlock, 0})
	}
	return events
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
		if raised := len(c.want) > 0 && !src.noMark; raised != (len(from.guarded) == 1) {
			t.Errorf("%s: %d guarded", name, len(from.guarded))
		}
	}
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
