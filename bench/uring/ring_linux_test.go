package uring

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

// A fake is a kernel that follows a script: a byte each time that it is entered. It completes the submissions that it takes, in order,
// with the submission's length as the result.
type fake struct {
	r        *Ring
	p        *sys.IoUringParams
	queues   []byte
	script   []byte
	taken    uint32 // its head of the submissions
	posted   uint32 // its tail of the completions
	backlog  []CQE  // those without room
	finished bool   // the script is over: it takes and posts all
}

// newFake makes a ring of so many entries whose indexes begin at start.
func newFake(t testing.TB, entries, start uint32, script []byte) (*Ring, *fake) {
	t.Helper()
	p := layout(entries)
	queues, slots, err := sizes(p)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{p: p, queues: aligned(queues), script: script, taken: start, posted: start}
	for _, at := range []uint32{p.SQOff.Head, p.SQOff.Tail, p.CQOff.Head, p.CQOff.Tail} {
		f.store(at, start)
	}
	f.store(p.SQOff.RingMask, p.SQEntries-1)
	f.store(p.CQOff.RingMask, p.CQEntries-1)
	f.r = &Ring{fd: -1, kernel: f}
	if err := f.r.attach(p, f.queues, aligned(slots)); err != nil {
		t.Fatal(err)
	}
	return f.r, f
}

// layout is one such as the kernel's, for that many submissions and twice as many completions.
func layout(entries uint32) *sys.IoUringParams {
	return &sys.IoUringParams{
		SQEntries: entries, CQEntries: 2 * entries,
		SQOff: sys.IoUringOffsets{Head: 0, Tail: 4, RingMask: 16, RingEntries: 24, Fifth: 36, Sixth: 32, Seventh: 64 + 32*entries},
		CQOff: sys.IoUringOffsets{Head: 8, Tail: 12, RingMask: 20, RingEntries: 28, Fifth: 44, Sixth: 64, Seventh: 40},
	}
}

// aligned is memory as a mapping is, with words of 64 bits.
func aligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

func (f *fake) word(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&f.queues[at])) }

func (f *fake) store(at, v uint32) { atomic.StoreUint32(f.word(at), v) }

func (f *fake) wait(fd int, submit, _ uint32, _ int64) (int, error) { return f.enter(fd, submit) }

// enter does as the next byte says: its low bits are how many submissions it takes, the next how many completions it
// posts of its backlog, the highest how it answers.
func (f *fake) enter(_ int, submit uint32) (int, error) {
	take, post, answer := submit, uint32(1<<30), byte(0)
	if f.finished = len(f.script) == 0; !f.finished {
		b := f.script[0]
		f.script = f.script[1:]
		take, post, answer = min(submit, uint32(b&7)), uint32(b>>3&7), b>>6
	}
	for range take {
		array := (*uint32)(unsafe.Pointer(&f.queues[f.p.SQOff.Seventh+4*(f.taken&(f.p.SQEntries-1))]))
		e := f.r.sqes[*array]
		f.taken++
		f.backlog = append(f.backlog, CQE{UserData: e.UserData, Res: int32(e.Len)})
	}
	f.store(f.p.SQOff.Head, f.taken)
	for ; post > 0 && len(f.backlog) > 0 && f.posted-atomic.LoadUint32(f.word(f.p.CQOff.Head)) < f.p.CQEntries; post-- {
		*(*CQE)(unsafe.Pointer(&f.queues[f.p.CQOff.Sixth+16*(f.posted&(f.p.CQEntries-1))])) = f.backlog[0]
		f.backlog = f.backlog[1:]
		f.posted++
	}
	f.store(f.p.CQOff.Tail, f.posted)
	f.store(f.p.SQOff.Fifth, 0)
	if len(f.backlog) > 0 {
		f.store(f.p.SQOff.Fifth, sys.IORING_SQ_CQ_OVERFLOW)
	}
	return int(take), []error{nil, syscall.EINTR, syscall.EBUSY, syscall.EAGAIN}[answer]
}

// exchange pushes and takes n requests, and checks that each comes back once and in order.
func exchange(t *testing.T, r *Ring, f *fake, n int) {
	t.Helper()
	var e CQE
	for sent, got := 0, 0; got < n; {
		for sent < n && r.Push(&SQE{UserData: uint64(sent), Len: uint32(sent)}) {
			sent++
		}
		if p := r.Pending(); p > f.p.SQEntries {
			t.Fatalf("%d of %d are pending", p, f.p.SQEntries)
		}
		_ = r.Submit()
		if len(f.backlog) > 0 && !r.Overflowed() {
			t.Fatal("no overflow is reported")
		}
		for r.Next(&e) {
			if e.UserData != uint64(got) || e.Res != int32(got) {
				t.Fatalf("got %+v, want %d", e, got)
			}
			got++
		}
	}
	if r.Next(&e) {
		t.Fatalf("%+v came twice", e)
	}
}

// TestIndexesWrap: at 32 bits.
func TestIndexesWrap(t *testing.T) {
	r, f := newFake(t, 4, 1<<32-6, nil)
	exchange(t, r, f, 40)
	if f.taken > 1<<31 || f.posted > 1<<31 {
		t.Errorf("they are %d and %d: not wrapped", f.taken, f.posted)
	}
}

// TestPushRefusesBeyondTheRing, and takes one more for each that the kernel has taken.
func TestPushRefusesBeyondTheRing(t *testing.T) {
	r, _ := newFake(t, 4, 0, []byte{1}) // takes one
	for i := range 5 {
		if r.Push(&SQE{}) != (i < 4) {
			t.Errorf("push %d", i)
		}
	}
	_ = r.Submit()
	if !r.Push(&SQE{}) || r.Push(&SQE{}) {
		t.Error("after one was taken: want room for one")
	}
}

// FuzzRing: whatever part of the submissions a kernel takes each time, whenever it posts, and whatever it answers, each
// request comes back once, in order.
func FuzzRing(f *testing.F) {
	f.Add(uint8(2), uint32(0), []byte{0, 0xff, 1, 0x40, 9, 0x88})
	f.Add(uint8(0), uint32(1<<32-1), []byte{8, 8, 8, 1, 1, 1})
	f.Fuzz(func(t *testing.T, size uint8, start uint32, script []byte) {
		r, k := newFake(t, 1<<(size%5), start, script)
		exchange(t, r, k, 3*len(script)+20)
	})
}

// FuzzLayout: no answer of io_uring_setup(2) leads out of the mapping that sizes asks for.
func FuzzLayout(f *testing.F) {
	good := layout(8)
	f.Add(unsafe.Slice((*byte)(unsafe.Pointer(good)), unsafe.Sizeof(*good)), uint32(7), uint32(15))
	f.Fuzz(func(t *testing.T, b []byte, sqMask, cqMask uint32) {
		var p sys.IoUringParams
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p)), b)
		queues, slots, err := sizes(&p)
		if err != nil {
			if !errors.Is(err, errLayout) {
				t.Fatal(err)
			}
			return
		}
		m := aligned(queues)
		binary.NativeEndian.PutUint32(m[p.SQOff.RingMask:], sqMask)
		binary.NativeEndian.PutUint32(m[p.CQOff.RingMask:], cqMask)
		r := &Ring{fd: -1}
		if r.attach(&p, m, aligned(slots)) != nil {
			return
		}
		var e CQE
		for range 3 * p.SQEntries {
			r.Push(&SQE{})
			r.publish()
			r.Next(&e)
		}
	})
}
