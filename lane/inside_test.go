package lane

import (
	"runtime"
	"testing"

	"github.com/penstock/penstock/internal/testutil/heap"
)

// TestMillionSessions: a table for a million sessions takes 57 bytes of this process for each: for a session,
// its place in the table, and a bit for a free slot. Its ports take 5 bytes more, see TestPortsSize of package
// program. The maps of the programs are memory of the kernel, see [Lane.Memory].
func TestMillionSessions(t *testing.T) {
	n := 1 << 20
	if testing.Short() {
		n = 1 << 14
	}
	before := heap.InUse()
	of := new(ownership)
	l := &Lane{sessions: make([]*Session, n), free: newFreeSlots(uint32(n))}
	for slot := range l.sessions {
		l.sessions[slot] = &Session{of: of, slot: uint32(slot), phase: away}
	}
	each := (heap.InUse() - before) / n
	t.Logf("%d bytes for each of %d", each, n)
	if each > 57 {
		t.Errorf("%d bytes for each session, want at most 57", each)
	}
	runtime.KeepAlive(l)
}

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
