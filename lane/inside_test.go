package lane

import (
	"testing"
	"time"

	"github.com/penstock/penstock/lane/internal/translate"
)

// TestFreeSlots: each slot is free once, and the last free slot is given too.
func TestFreeSlots(t *testing.T) {
	t.Parallel()

	for _, size := range []uint32{1, 64, 65, 1000} {
		f := newFreeSlots(size)
		if _, ok := f.next(); ok {
			t.Error("a slot is free at the begin")
		}
		for slot := range size {
			f.give(slot)
		}
		taken := make(map[uint32]bool)
		for round := range 3 {
			for f.n > 0 {
				slot, ok := f.next()
				if again, _ := f.next(); !ok || slot >= size || taken[slot] || again != slot {
					t.Fatalf("size %d: slot %d, then %d, %v, taken before: %v", size, slot, again, ok, taken[slot])
				}
				f.take(slot)
				taken[slot] = true
			}
			if _, ok := f.next(); ok || len(taken) != int(size) {
				t.Errorf("size %d: %d are taken, and another one: %v", size, len(taken), ok)
			}
			for slot := range taken {
				if round == 2 || slot%3 == 0 {
					f.give(slot)
					delete(taken, slot)
				}
			}
		}
		if f.n != int(size) {
			t.Errorf("size %d: %d are free", size, f.n)
		}
	}
}

// TestOwnersAreForgotten: sessions of one owner share what the lane keeps for the owner. The lane forgets it
// with the owner's last session that has a place.
func TestOwnersAreForgotten(t *testing.T) {
	t.Parallel()

	l := &Lane{owned: make(map[Owner]*ownership)}
	one, other := &nobody{1}, &nobody{2}
	var all []*ownership
	for _, o := range []Owner{one, other, one} {
		of := l.ownershipOf(o)
		of.count(1)
		all = append(all, of)
	}
	if all[0] != all[2] || all[0] == all[1] || len(l.owned) != 2 {
		t.Errorf("%v of %d owners", all, len(l.owned))
	}
	for i, want := range []int{2, 1, 0} {
		if all[i].count(-1); len(l.owned) != want {
			t.Errorf("%d owners are left, want %d", len(l.owned), want)
		}
	}
}

// A nobody is an owner that does nothing.
type nobody struct{ n int }

func (*nobody) Ready(*Session)         {}
func (*nobody) Left(*Session)          {}
func (*nobody) Ended(*Session, Result) {}

// TestStallIsOver: a stall is one only while its sender sends the awaited bytes again; a probe of a closed window is not awaited.
func TestStallIsOver(t *testing.T) {
	t.Parallel()

	const timeout = 10 * time.Second
	st := stall{acked: 100, resent: 3, packets: [2]uint64{50, 40}}
	fin := translate.Flow{Sent: 101, Fin: 101, Resent: 3}
	for name, c := range map[string]struct {
		f             translate.Flow
		edge          uint64
		sender, other uint64 // packets
		want          bool
	}{
		"bytes that come again":           {translate.Flow{Sent: 200, Resent: 4}, 200, 51, 40, true},
		"a probe of a closed window":      {translate.Flow{Sent: 101, Resent: 4}, 100, 51, 40, false},
		"a damaged number":                {translate.Flow{Sent: 200, Resent: 3}, 200, 90, 80, false},
		"a FIN that comes again":          {fin, 200, 51, 40, true},
		"a FIN, and both go on":           {fin, 200, 60, 50, false},
		"a FIN, and silence":              {fin, 200, 50, 40, false},
		"bytes and a FIN that come again": {translate.Flow{Sent: 200, Fin: 200, Resent: 9}, 200, 51, 40, true},
	} {
		o := translate.Flow{Acked: 100, Edge: c.edge}
		if got := awaited(&c.f, &o) && st.over(&c.f, &o, [2]uint64{c.sender, c.other}, int64(timeout)+1, timeout); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if st.over(&c.f, &o, [2]uint64{c.sender, c.other}, int64(timeout), timeout) {
			t.Errorf("%s: over before its time", name)
		}
	}
	l := &stalls{of: map[stalled]stall{{}: {}}}
	if l.next(); len(l.of) != 1 {
		t.Error("a stall of this round is forgotten")
	}
	if l.next(); len(l.of) != 0 {
		t.Error("a stall that was not found again is kept")
	}
}
