package evring_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
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
		if _, err := sys.Write(fd, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(sys.Ftruncate(fd, size), sys.AddSeals(fd, seals)); err != nil {
		t.Fatal(err)
	}
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
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(p)
	defer sys.Close(w)
	for _, c := range [][2]int{{r.Memfd(), -1}, {r.Memfd(), w}, {r.Memfd(), r.Memfd()}, {-1, r.Eventfd()}, {p, r.Eventfd()}} {
		if _, err := evring.Open(c[0], c[1]); err == nil {
			t.Errorf("opened descriptors %v", c)
		}
	}
	if _, err := evring.Open(p, r.Eventfd()); !errors.Is(err, evring.ErrUnsealed) {
		t.Errorf("a pipe: %v, want ErrUnsealed", err)
	}
}

// openDup opens duplicates and closes them if that fails.
func openDup(t *testing.T, fd int) (*evring.Ring, error) {
	t.Helper()
	m, err1 := sys.Dup(fd)
	e, err2 := sys.Eventfd()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	r, err := evring.Open(m, e)
	if err != nil {
		sys.Close(m)
		sys.Close(e)
	}
	return r, err
}
