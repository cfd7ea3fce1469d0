package evring_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/race"
)

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  evring.Config
		want string // in the error; empty: none
	}{
		{evring.Config{}, ""},
		{evring.Config{Slots: 1, SlotSize: 16}, ""},
		{evring.Config{Slots: 4, SlotSize: 192, Producers: evring.Single, Name: "mailbox"}, ""},
		{evring.Config{Slots: 1000}, "such as 1024"},
		{evring.Config{Slots: -1}, "such as 1"},
		{evring.Config{SlotSize: 100}, "such as 128"},
		{evring.Config{SlotSize: -3}, "such as 64"},
		{evring.Config{SlotSize: 24}, "write 16, 32"},
		{evring.Config{Slots: 1 << 30}, "256 MiB in all"},
		{evring.Config{Producers: 2}, "Single or Multi"},
	} {
		r, err := evring.New(&c.cfg)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q in it", c.cfg, err, c.want)
		}
		if r != nil {
			r.Close()
		}
	}
}

// TestFull: events that do not fit are reported, and the events in the ring stay.
func TestFull(t *testing.T) {
	for _, p := range []evring.Producers{evring.Multi, evring.Single} {
		r := newRing(t, &evring.Config{Slots: 4, Producers: p})
		if n, err := r.PushBatch(events(6)); n != 4 || err != evring.ErrFull {
			t.Fatalf("pushed %d, %v; want 4, ErrFull", n, err)
		}
		if err := r.Push([]byte("x")); err != evring.ErrFull {
			t.Fatalf("push: %v, want ErrFull", err)
		}
		buf := make([]byte, r.EventSize())
		for i := range uint64(4) {
			n, err := r.Pop(buf)
			if err != nil || n != 8 || binary.NativeEndian.Uint64(buf) != i {
				t.Fatalf("pop: %x, %v; want event %d", buf[:n], err, i)
			}
		}
		if _, err := r.Pop(buf); err != evring.ErrEmpty {
			t.Fatalf("pop: %v, want ErrEmpty", err)
		}
	}
}

func TestLengths(t *testing.T) {
	r := newRing(t, &evring.Config{SlotSize: 128})
	long := bytes.Repeat([]byte("e"), r.EventSize())
	if n, err := r.PushBatch([][]byte{nil, long, append(long, 'x')}); n != 0 || err != evring.ErrTooLong {
		t.Errorf("pushed %d, %v; want none, ErrTooLong", n, err)
	}
	if n, err := r.PushBatch([][]byte{nil, long}); n != 2 || err != nil {
		t.Errorf("pushed %d, %v", n, err)
	}
	if n, err := r.Pop(nil); n != 0 || err != nil {
		t.Errorf("popped %d, %v; want the empty event", n, err)
	}
	if _, err := r.Pop(make([]byte, len(long)-1)); err != evring.ErrTooLong {
		t.Errorf("pop into a short buffer: %v, want ErrTooLong", err)
	}
	buf := make([]byte, len(long))
	if n, err := r.Pop(buf); err != nil || !bytes.Equal(buf[:n], long) {
		t.Errorf("popped %q, %v", buf[:n], err)
	}
}

// TestDrainPanic: an event counts as delivered before it is.
func TestDrainPanic(t *testing.T) {
	r := newRing(t, nil)
	r.PushBatch(events(3))
	func() {
		defer func() { recover() }()
		r.Drain(0, func(e []byte) {
			if e[0] == 1 || e[7] == 1 {
				panic("in the second one")
			}
		})
	}()
	var got []byte
	r.Drain(0, func(e []byte) { got = append(got, e[0]|e[7]) })
	if !bytes.Equal(got, []byte{2}) {
		t.Errorf("then drained %v, want event 2", got)
	}
}

func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, x/sys's read and write let their buffers escape")
	}
	r := newRing(t, nil)
	poll := newPoll(t, r.Eventfd())
	in, buf := events(8), make([]byte, r.EventSize())
	count := 0
	add := func([]byte) { count++ }
	if n := testing.AllocsPerRun(100, func() {
		sleepNow := r.Sleep()
		r.Push(in[0])
		r.Awake(sleepNow && poll.wait(0))
		r.Pop(buf)
		r.PushBatch(in)
		r.Drain(0, add)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if count < 8 {
		t.Error("nothing was drained")
	}
}

// TestWakeOnlyWhenAsleep: the eventfd is written for a sleeper, once, and at no other
// time.
func TestWakeOnlyWhenAsleep(t *testing.T) {
	r := newRing(t, nil)
	poll := newPoll(t, r.Eventfd())
	r.Push(nil)
	if poll.wait(0) || r.Sleep() {
		t.Fatal("woken, or asleep, with an event in the ring")
	}
	r.Pop(nil)
	if !r.Sleep() {
		t.Fatal("no sleep in an empty ring")
	}
	r.Push(nil)
	r.Push(nil)
	var count [8]byte
	if n, err := sys.Read(r.Eventfd(), count[:]); n != 8 || err != nil || binary.NativeEndian.Uint64(count[:]) != 1 {
		t.Errorf("the eventfd has counted %v, %v; want 1", count, err)
	}
	r.Awake(false)
}

// TestLateWake: a producer that saw an earlier sleep's flag wakes the consumer for
// nothing, and leaves the flag of the present sleep up.
func TestLateWake(t *testing.T) {
	r := newRing(t, nil)
	poll := newPoll(t, r.Eventfd())
	r.Sleep()
	seen := r.Asleep()
	r.Awake(false)
	r.Sleep()
	r.Wake(seen)
	if r.Asleep() == 0 {
		t.Fatal("the flag is down, and the next event would wake no consumer")
	}
	r.Awake(poll.wait(1000))
	if poll.wait(0) {
		t.Error("the eventfd is still readable: a level-triggered consumer would spin")
	}
}

// TestEdgeTriggered: the eventfd need not be read, not even when another process has
// filled its counter.
func TestEdgeTriggered(t *testing.T) {
	r := newRing(t, nil)
	poll := newPollOf(t, r.Eventfd(), sys.EPOLLIN|sys.EPOLLET)
	for i := range 1000 {
		if i == 500 {
			fill := binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1-500)
			if _, err := sys.Write(r.Eventfd(), fill); err != nil {
				t.Fatal(err)
			}
			poll.wait(0)
		}
		r.Sleep()
		r.Push(nil)
		if !poll.wait(5000) {
			t.Fatalf("sleep %d was not woken", i)
		}
		r.Awake(false)
		r.Pop(nil)
	}
}

// TestClose: producers that run meanwhile get ErrClosed, and no descriptor of another
// file is written to.
func TestClose(t *testing.T) {
	for range 50 {
		r, err := evring.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for r.Push(nil) == nil || !errors.Is(r.Err(), evring.ErrClosed) {
					runtime.Gosched()
				}
			})
		}
		r.Sleep()
		r.Drain(0, func([]byte) {})
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		runtime.GC() // no unmapping yet
		if _, err := r.Pop(nil); err != evring.ErrClosed {
			t.Fatalf("pop: %v, want ErrClosed", err)
		}
		r.Wake(1) // as one does that is late
		if _, _, err := r.Files(); !errors.Is(err, evring.ErrClosed) {
			t.Fatalf("files: %v, want ErrClosed", err)
		}
		if err := r.Close(); !errors.Is(err, evring.ErrClosed) {
			t.Fatalf("second close: %v, want ErrClosed", err)
		}
	}
}

// TestNumberNotReused: Close leaves the descriptors to a wake-up that is under way.
func TestNumberNotReused(t *testing.T) {
	r := newRing(t, nil)
	m, e, err := r.Files()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer e.Close()
	if flags, err := sys.GetFl(int(e.Fd())); err != nil || flags&sys.O_NONBLOCK == 0 {
		t.Errorf("the duplicate has flags %#x, %v; want O_NONBLOCK", flags, err)
	}
	fd := r.Memfd()
	r.Close()
	if _, err := sys.GetFl(fd); err != syscall.EBADF {
		t.Errorf("memfd after Close: %v, want EBADF", err)
	}
}
