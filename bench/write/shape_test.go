package write

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"testing"
	"unsafe"
)

func TestShapes(t *testing.T) {
	for size, want := range map[int]string{
		64:       "64 B: 1024 x 65536",
		1300:     "1,300 B: 50 x 65000",
		16 << 10: "16 KiB: 4 x 65536",
		64 << 10: "64 KiB: 1 x 65536",
		1 << 20:  "1,024 KiB: 1 x 1048576",
	} {
		s := Equal(size)
		if got := fmt.Sprintf("%s: %d x %d", s.Name, s.Count, s.Bytes); got != want || len(s.Pieces) != s.Count || s.Size != size {
			t.Errorf("%d: %q, want %q; %d pieces", size, got, want, len(s.Pieces))
		}
	}
	m := Message()
	if m.Count != 3 || m.Bytes != 16<<10 || bytesOf(m.Pieces) != 16<<10 || m.Size != 0 {
		t.Errorf("message: %+v", m)
	}
	if n := m.batches(1); n != 1 {
		t.Errorf("%d batches have a byte", n)
	}
	if n := m.batches(16<<10 + 1); n != 2 {
		t.Errorf("%d batches have a byte more than one", n)
	}
	if got := ProfileName("d", "vecio", &m); got != "d/vecio-message.pprof" {
		t.Error(got)
	}
}

// address returns the address of a piece's first byte.
func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// No way can write two pieces as one: there are other bytes between any two of them.
func TestPiecesAreApart(t *testing.T) {
	for _, s := range []Shape{Equal(64), Equal(1300), Equal(64 << 10), Message()} {
		from := newSource(s.Pieces)
		var all [][]byte
		for range from.batches {
			b := from.batch()
			for i, p := range b {
				if len(p) != s.Pieces[i] || cap(p) != len(p) {
					t.Fatalf("%s: piece %d has %d bytes of %d", s.Name, i, len(p), cap(p))
				}
			}
			all = append(all, b...)
		}
		if again := from.batch(); &again[0][0] != &all[0][0] {
			t.Errorf("%s: the first batch does not repeat", s.Name)
		}
		slices.SortFunc(all, func(a, b []byte) int { return int(address(a)) - int(address(b)) })
		for i := 1; i < len(all); i++ {
			if gap := address(all[i]) - address(all[i-1]) - uintptr(len(all[i-1])); gap < apart {
				t.Fatalf("%s: pieces %d bytes from each other", s.Name, gap)
			}
		}
		if other := newSource(s.Pieces).batch(); !bytes.Equal(slices.Concat(other...), slices.Concat(from.batches[0]...)) {
			t.Errorf("%s: the content is not the same every time", s.Name)
		}
	}
}

// watcher counts the bytes it gets from memory other than the pieces'.
type watcher struct {
	pieces [][]byte
	others int64
}

func (w *watcher) Write(b []byte) (int, error) {
	for _, p := range w.pieces {
		if at := address(b); at >= address(p) && at < address(p)+uintptr(len(p)) {
			return len(b), nil
		}
	}
	w.others += int64(len(b))
	return len(b), nil
}

func TestBufioCopiesWhatIsWorkedOut(t *testing.T) {
	shapes := []Shape{Message(), {Name: "odd ones", Pieces: []int{4096, 1, 4095, 4097, 10000, 3, 65536, 70000, 2}}}
	for _, n := range []int{1, 64, 1300, 4096, 5000, 16 << 10, 64 << 10, 100_000} {
		shapes = append(shapes, Equal(n))
	}
	for _, s := range shapes {
		for _, size := range []int{4 << 10, 64 << 10} {
			w := &watcher{pieces: newSource(s.Pieces).batch()}
			b := bufio.NewWriterSize(w, size)
			for range 2 { // the second batch begins like the first
				for _, p := range w.pieces {
					if _, err := b.Write(p); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if got := 2 * bufioCopies(size, s.Pieces); got != w.others {
				t.Errorf("%s, buffer of %d: %d bytes worked out, %d copied", s.Name, size, got, w.others)
			}
		}
	}
}
