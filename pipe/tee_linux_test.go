package pipe_test

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestTee: a copy has the bytes of the first pipe, in their order behind others; they stay there.
func TestTee(t *testing.T) {
	from, to := open(t, 0), open(t, 0)
	w, near := sockets.TCPPair(t)
	in := random(50_000)
	if _, err := w.Write(in); err != nil {
		t.Fatal(err)
	}
	if n, err := to.Write([]byte("before ")); n != 7 || err != nil || to.Len() != 7 {
		t.Fatalf("write: %d, %v; holds %d", n, err, to.Len())
	}
	var first, second []byte
	for len(first) < len(in) {
		n, err := from.Fill(sockets.FD(t, near), len(in))
		if err != nil {
			t.Fatal(err)
		}
		held := to.Len()
		if m, err := from.Tee(to, n); m != n || err != nil || from.Len() != n || to.Len() != held+n {
			t.Fatalf("tee of %d: %d, %v; %d and %d held", n, m, err, from.Len(), to.Len())
		}
		first, second = append(first, take(t, from)...), append(second, take(t, to)...)
	}
	if !bytes.Equal(first, in) || !bytes.Equal(second, append([]byte("before "), in...)) {
		t.Errorf("%d and %d bytes of %d, or others", len(first), len(second), len(in))
	}
}

// take reads all that a pipe holds.
func take(t *testing.T, p interface {
	Len() int
	Read([]byte) (int, error)
},
) (all []byte) {
	t.Helper()
	b := make([]byte, 8192)
	for p.Len() > 0 {
		n, err := p.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b[:n]...)
	}
	return all
}

// TestTeeFull: a pipe takes as many copies as it has slots, whatever their size, and reports how many
// bytes those were.
func TestTeeFull(t *testing.T) {
	from, to := open(t, 0), open(t, 0)
	if _, err := from.Tee(to, 1); err != syscall.EAGAIN {
		t.Errorf("of an empty pipe: %v", err)
	}
	for range 10 {
		if n, err := to.Write(random(4096)); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := from.Write(random(16 * 4096)); n != 16*4096 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := from.Tee(to, from.Len()); n != 6*4096 || err != nil || to.Len() != 16*4096 || from.Len() != 16*4096 {
		t.Errorf("tee: %d, %v; %d held", n, err, to.Len())
	}
	if n, err := from.Tee(to, from.Len()); n != 0 || err != syscall.EAGAIN {
		t.Errorf("into a full pipe: %d, %v", n, err)
	}
	if n, err := to.Write([]byte("x")); n != 0 || err != syscall.EAGAIN || to.Len() != 16*4096 {
		t.Errorf("write to a full pipe: %d, %v", n, err)
	}
	for _, max := range []int{0, -1} {
		if _, err := from.Tee(to, max); err != syscall.EINVAL {
			t.Errorf("%d: %v", max, err)
		}
	}
	if _, err := from.Tee(from, 1); err != syscall.EINVAL {
		t.Errorf("into itself: %v", err)
	}
}
