package lane

import (
	"math/bits"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/lane/internal/translate"
)

// TestSessionSize: a session takes 40 bytes, and 48 by itself; one of Join has another of 64, a size class of the runtime.
func TestSessionSize(t *testing.T) {
	t.Parallel()

	if bits.UintSize != 64 {
		t.Skip("the bound is for 64 bits")
	}
	if n := unsafe.Sizeof(Session{}); n > 40 {
		t.Errorf("a Session takes %d bytes, more than 40", n)
	}
	if n := unsafe.Sizeof(further{}); n > 64 {
		t.Errorf("a further takes %d bytes, more than 64", n)
	}
}

// TestMillionSessions: a table of a million takes 57 bytes of this process for each: a session, its place in the table, and a bit for a free slot. Its ports take
// 5 bytes more, see TestPortsSize of package program. The map of the programs is of the kernel, see [Lane.Memory].
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

// TestFreeSlots: each slot is free once, and is given when no other one is.
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

// TestOwnersAreForgotten: sessions of one owner share what the lane keeps of it, which it forgets with the last one that has a place.
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

// TestStallIsOver: a stall is one only if its sender sends again, and after the timeout.
func TestStallIsOver(t *testing.T) {
	t.Parallel()

	const timeout = 10 * time.Second
	data := stall{acked: 100, since: 1000, resent: 3, packets: [2]uint64{50, 40}}
	fin := data
	for _, c := range []struct {
		name    string
		st      stall
		f, o    translate.Flow
		packets [2]uint64
		after   time.Duration
		want    bool
	}{
		{"bytes that come again", data, translate.Flow{Sent: 200, Resent: 4}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout + 1, true},
		{"not for long enough", data, translate.Flow{Sent: 200, Resent: 4}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout, false},
		{"a damaged number: nobody sends again", data, translate.Flow{Sent: 200, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{90, 80}, time.Hour, false},
		{"what comes again is behind a hole", data, translate.Flow{Sent: 200, Repeats: 90, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{90, 80}, time.Hour, false},
		{"bytes and a FIN that come again", data, translate.Flow{Sent: 200, Fin: 200, Resent: 9}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout + 1, true},
		{"a FIN that comes again", fin, translate.Flow{Sent: 101, Fin: 101, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{51, 40}, timeout + 1, true},
		{"a FIN, and both go on", fin, translate.Flow{Sent: 101, Fin: 101, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{60, 50}, timeout + 1, false},
		{"a FIN, and silence", fin, translate.Flow{Sent: 101, Fin: 101, Resent: 3}, translate.Flow{Acked: 100}, [2]uint64{50, 40}, time.Hour, false},
	} {
		if got := c.st.over(&c.f, &c.o, c.packets, c.st.since+int64(c.after), timeout); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestAwaited: bytes that fit the window are to be acknowledged, and a probe of a closed one is not.
func TestAwaited(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		sent, acked, edge uint64
		want              bool
	}{{100, 100, 200, false}, {150, 100, 200, true}, {200, 100, 200, true}, {101, 100, 100, false}, {201, 199, 200, true}} {
		if got := awaited(&translate.Flow{Sent: c.sent}, &translate.Flow{Acked: c.acked, Edge: c.edge}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestStallsAreForgotten: what a round does not find is forgotten.
func TestStallsAreForgotten(t *testing.T) {
	t.Parallel()

	l, s := &stalls{of: make(map[stalled]stall)}, new(Session)
	l.of[stalled{s, 0}] = stall{round: l.round}
	l.next()
	if len(l.of) != 1 {
		t.Fatal("it was found in this round")
	}
	l.next()
	if len(l.of) != 0 {
		t.Error("it was not found in this one")
	}
}
