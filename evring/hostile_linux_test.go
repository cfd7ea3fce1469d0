package evring_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/penstock/penstock/evring"
)

// exercise does everything to a ring whose memory another process controls, and checks
// that its answers are documented ones. An access outside of the memory would panic.
func exercise(t *testing.T, r *evring.Ring) {
	t.Helper()
	known := func(err error) {
		if err != nil && err != evring.ErrFull && err != evring.ErrEmpty && !errors.Is(err, evring.ErrCorrupt) {
			t.Fatalf("answered %v", err)
		}
	}
	in, buf := events(3), make([]byte, r.EventSize())
	for range 4 {
		known(r.Push(in[0]))
		_, err := r.PushBatch(in)
		known(err)
		_, err = r.Pop(buf)
		known(err)
		n, err := r.Drain(0, func(e []byte) {
			if len(e) > r.EventSize() {
				t.Fatalf("an event of %d bytes", len(e))
			}
		})
		known(err)
		if n > r.Slots() {
			t.Fatalf("drained %d of %d", n, r.Slots())
		}
		sticky := r.Err()
		r.Awake(r.Sleep())
		if sticky != nil && (r.Push(in[0]) != sticky || r.Err() != sticky) {
			t.Fatalf("%v did not last: %v", sticky, r.Err())
		}
	}
}

// TestEveryWord: each word of the memory takes each of some values, before the ring is
// used and again in the middle.
func TestEveryWord(t *testing.T) {
	for _, p := range []evring.Producers{evring.Multi, evring.Single} {
		r, err := evring.NewOnHeap(&evring.Config{Slots: 4, SlotSize: 16, Producers: p})
		if err != nil {
			t.Fatal(err)
		}
		size := len(r.Bytes())
		r.Close()
		for at := 0; at < size; at += 4 {
			for _, v := range []uint64{0, 1, 2, 1 << 31, 1 << 32, 1<<33 | 9, 1 << 63, math.MaxUint32, math.MaxUint64, math.MaxUint64 - 3} {
				hostile(t, p, at, v)
			}
		}
	}
}

func hostile(t *testing.T, p evring.Producers, at int, v uint64) {
	r, err := evring.NewOnHeap(&evring.Config{Slots: 4, SlotSize: 16, Producers: p})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var value [8]byte
	binary.NativeEndian.PutUint64(value[:], v)
	copy(r.Bytes()[at:], value[:])
	exercise(t, r)
	copy(r.Bytes()[at:], value[:])
	exercise(t, r)
}

// TestCorrupt: the side that meets a contradiction in the memory reports it.
func TestCorrupt(t *testing.T) {
	put := func(r *evring.Ring, at int, v uint64) { binary.NativeEndian.PutUint64(r.Bytes()[at:], v) }
	push := func(r *evring.Ring) error { return r.Push(nil) }
	pop := func(r *evring.Ring) error { _, err := r.Pop(make([]byte, r.EventSize())); return err }
	for _, c := range []struct {
		what string
		at   int
		v    uint64
		do   func(*evring.Ring) error
	}{
		{"head past the tail", evring.HeadAt, 1, func(r *evring.Ring) error { _, err := r.PushBatch(events(5)); return err }},
		{"tail too far", evring.TailAt, 5, push},
		{"tail wrapped", evring.TailAt, math.MaxUint64, push},
		{"word of another lap", evring.HeaderSize, 7 << 32, pop},
		{"event too long", evring.HeaderSize, 1<<32 | 57, pop},
		{"event of 4 GiB", evring.HeaderSize, 1<<32 | math.MaxUint32, pop},
	} {
		r := newRing(t, &evring.Config{Slots: 4})
		put(r, c.at, c.v)
		if err := c.do(r); !errors.Is(err, evring.ErrCorrupt) || !errors.Is(r.Err(), evring.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", c.what, err)
		}
		if r.Sleep() {
			t.Errorf("%s: asleep with an error to report", c.what)
		}
	}
}

// FuzzHeader overwrites the memory, header and slots, and uses the ring.
func FuzzHeader(f *testing.F) {
	f.Add(uint16(evring.TailAt), []byte{255, 255, 255, 255, 255, 255, 255, 255}, true)
	f.Add(uint16(evring.HeadAt), []byte{5}, false)
	f.Add(uint16(0), header(1<<30), true)
	f.Fuzz(func(t *testing.T, at uint16, b []byte, single bool) {
		cfg := &evring.Config{Slots: 4, SlotSize: 32}
		if single {
			cfg.Producers = evring.Single
		}
		r, err := evring.NewOnHeap(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		copy(r.Bytes()[int(at)%len(r.Bytes()):], b)
		exercise(t, r)
		// The same memory, as another process opens it.
		checkOpenHostile(t, r.Bytes())
	})
}

func checkOpenHostile(t *testing.T, b []byte) {
	fd := memfd(t, 0, int64(len(b)), b, allSeals)
	r, err := openDup(t, fd)
	if err != nil {
		if !errors.Is(err, evring.ErrCorrupt) {
			t.Fatalf("open: %v, want ErrCorrupt", err)
		}
		return
	}
	defer r.Close()
	exercise(t, r)
}
