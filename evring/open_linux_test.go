package evring_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

const allSeals = sys.F_SEAL_SEAL | sys.F_SEAL_SHRINK | sys.F_SEAL_GROW

// header is one of a ring of slots of 64 bytes.
func header(slots uint32) []byte {
	b := make([]byte, evring.HeaderSize)
	binary.NativeEndian.PutUint64(b[evring.MagicAt:], 0x70656e72696e6731)
	binary.NativeEndian.PutUint32(b[evring.SlotsAt:], slots)
	binary.NativeEndian.PutUint32(b[evring.SlotSizeAt:], 64)
	return b
}

func memfd(t testing.TB, flags int, size int64, content []byte, seals int) int {
	t.Helper()
	fd, err := sys.MemfdCreate("hostile", sys.MFD_CLOEXEC|sys.MFD_ALLOW_SEALING|flags)
	if err != nil {
		t.Skip("memfd_create: ", err)
	}
	t.Cleanup(func() { sys.Close(fd) })
	if len(content) > 0 { // huge pages cannot be written to
		must.Get(sys.Write(fd, content))(t)
	}
	must.Do(t, errors.Join(sys.Ftruncate(fd, size), sys.AddSeals(fd, seals)))
	return fd
}

// TestRefused: Open refuses memory that could be cut short, or that contradicts its
// header.
func TestRefused(t *testing.T) {
	const size = evring.HeaderSize + 4*64
	for _, c := range []struct {
		what  string
		size  int64
		slots uint32
		seals int
		want  error
	}{
		{"good", size, 4, allSeals, nil},
		{"no seals", size, 4, 0, evring.ErrUnsealed},
		{"may shrink", size, 4, sys.F_SEAL_SEAL | sys.F_SEAL_GROW, evring.ErrUnsealed},
		{"may grow", size, 4, sys.F_SEAL_SEAL | sys.F_SEAL_SHRINK, evring.ErrUnsealed},
		{"may be sealed", size, 4, sys.F_SEAL_SHRINK | sys.F_SEAL_GROW, evring.ErrUnsealed},
		{"empty", 0, 4, allSeals, evring.ErrCorrupt},
		{"header only", evring.HeaderSize, 4, allSeals, evring.ErrCorrupt},
		{"truncated", size - 64, 4, allSeals, evring.ErrCorrupt},
		{"longer", size + 1, 4, allSeals, evring.ErrCorrupt},
		{"huge", evring.MaxBytes * 16, 4, allSeals, evring.ErrCorrupt},
		{"no slots", size, 0, allSeals, evring.ErrCorrupt},
		{"three slots", size - 64, 3, allSeals, evring.ErrCorrupt},
		{"slots beyond measure", size, 1 << 31, allSeals, evring.ErrCorrupt},
	} {
		b := header(c.slots)
		checkOpen(t, c.what, memfd(t, 0, c.size, b[:min(int64(len(b)), c.size)], c.seals), c.want)
	}
	b := header(4)
	b[evring.MagicAt] ^= 1
	checkOpen(t, "magic", memfd(t, 0, size, b, allSeals), evring.ErrCorrupt)
	b = header(4)
	b[evring.ProducersAt+1] = 1
	checkOpen(t, "producers", memfd(t, 0, size, b, allSeals), evring.ErrCorrupt)
	checkOpen(t, "huge pages", memfd(t, sys.MFD_HUGETLB, 4<<20, nil, allSeals), evring.ErrUnsealed)
}

// checkOpen opens duplicates, which Open owns if it succeeds.
func checkOpen(t *testing.T, what string, fd int, want error) {
	t.Helper()
	m, err1 := sys.Dup(fd)
	e, err2 := sys.Eventfd()
	must.Do(t, errors.Join(err1, err2))
	r, err := evring.Open(m, e)
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if err == nil {
		r.Close()
		return
	}
	if err := errors.Join(sys.Close(m), sys.Close(e)); err != nil {
		t.Errorf("%s: descriptors of a failed Open: %v, want them left alone", what, err)
	}
}

func TestRefusedDescriptors(t *testing.T) {
	r := newRing(t, nil)
	p, w, err := sys.Pipe2(sys.O_CLOEXEC)
	must.Do(t, err)
	defer sys.Close(p)
	defer sys.Close(w)
	for _, c := range [][2]int{{r.Memfd(), -1}, {r.Memfd(), w}, {r.Memfd(), r.Memfd()}, {-1, r.Eventfd()}, {p, r.Eventfd()}} {
		if _, err := evring.Open(c[0], c[1]); err == nil {
			t.Errorf("opened descriptors %v", c)
		}
	}
	must.Fail(evring.Open(p, r.Eventfd()))(t, evring.ErrUnsealed)
}

// openDup opens duplicates and closes them if that fails.
func openDup(t *testing.T, fd int) (*evring.Ring, error) {
	t.Helper()
	m, err1 := sys.Dup(fd)
	e, err2 := sys.Eventfd()
	must.Do(t, errors.Join(err1, err2))
	r, err := evring.Open(m, e)
	if err != nil {
		sys.Close(m)
		sys.Close(e)
	}
	return r, err
}

// exercise does everything to a ring whose memory another process controls, and checks
// that its answers are documented ones. An access outside of the memory would panic.
func exercise(t *testing.T, r *evring.Ring) {
	t.Helper()
	known := func(err error) {
		if err != nil && err != evring.ErrFull && !errors.Is(err, evring.ErrCorrupt) {
			t.Fatalf("answered %v", err)
		}
	}
	in := events(3)
	for range 4 {
		known(r.Push(in[0]))
		_, err := r.PushBatch(in)
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
		r := must.Get(evring.NewOnHeap(&evring.Config{Slots: 4, SlotSize: 16, Producers: p}))(t)
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
	r := must.Get(evring.NewOnHeap(&evring.Config{Slots: 4, SlotSize: 16, Producers: p}))(t)
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
	drain := func(r *evring.Ring) error { _, err := r.Drain(0, nil); return err }
	for _, c := range []struct {
		what string
		at   int
		v    uint64
		do   func(*evring.Ring) error
	}{
		{"head past the tail", evring.HeadAt, 1, func(r *evring.Ring) error { _, err := r.PushBatch(events(5)); return err }},
		{"tail too far", evring.TailAt, 5, push},
		{"tail wrapped", evring.TailAt, math.MaxUint64, push},
		{"word of another lap", evring.HeaderSize, 7 << 32, drain},
		{"event too long", evring.HeaderSize, 1<<32 | 57, drain},
		{"event of 4 GiB", evring.HeaderSize, 1<<32 | math.MaxUint32, drain},
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
		r := must.Get(evring.NewOnHeap(cfg))(t)
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
		must.Is(t, err, evring.ErrCorrupt)
		return
	}
	defer r.Close()
	exercise(t, r)
}
