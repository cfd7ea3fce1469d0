package vecio_test

import (
	"math"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// zeros is memory that is there without costing any: all of it is one page.
func zeros(t *testing.T, n int) []byte {
	t.Helper()
	b, err := sys.MmapAnonymous(n, sys.PROT_READ, sys.MAP_PRIVATE)
	must(t, err)
	t.Cleanup(func() { must(t, sys.Munmap(b)) })
	return b
}

// TestTotals: one call moves at most 0x7ffff000 bytes. More bytes make a short write,
// even in the middle of a piece.
func TestTotals(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("there are not so many addresses")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(t, err)
	defer null.Close()
	const piece int64 = 1<<30 + 1
	b := zeros(t, int(piece))
	for _, n := range []int{1, 2, 3, 5} {
		w := newWriter(t, null, &vecio.Config{High: math.MaxInt})
		var back count
		for range n {
			must(t, w.Own(b, &back))
		}
		must(t, w.Flush())
		calls := (int64(n)*piece + sys.MAX_RW_COUNT - 1) / sys.MAX_RW_COUNT
		if s := w.Stats(); s.Written != int64(n)*piece || s.Calls != calls || s.Short != calls-1 || back.n != n {
			t.Errorf("%d bytes in %d calls, %d of them short, %d pieces back", s.Written, s.Calls, s.Short, back.n)
		}
	}
}

// TestLargeTotal: more than a call moves, through a socket, to a peer that counts it.
func TestLargeTotal(t *testing.T) {
	if math.MaxInt == math.MaxInt32 || testing.Short() {
		t.Skip("two gigabytes")
	}
	a, b := sockets.TCPPair(t)
	w := newWriter(t, a, &vecio.Config{High: math.MaxInt})
	piece := zeros(t, 64<<20)
	const n int64 = 0x80000000/(64<<20) + 1
	for range n {
		must(t, w.Append(piece), w.AppendString("x"))
	}
	must(t, b.SetReadBuffer(4<<20))
	got := make(chan int64)
	fd := sockets.FD(t, b)
	raw, err := b.SyscallConn()
	must(t, err)
	go func() {
		sum := int64(0)
		// The bytes cut off are dropped without being copied (tcp(7), MSG_TRUNC).
		buf := make([]byte, 8<<20)
		_ = raw.Read(func(uintptr) bool {
			for {
				n, err := sys.Recv(fd, buf, sys.MSG_DONTWAIT|sys.MSG_TRUNC)
				if err != nil || n == 0 {
					return err == nil
				}
				sum += int64(n)
			}
		})
		got <- sum
	}()
	must(t, w.Flush(), a.CloseWrite())
	if sum := <-got; sum != n*(64<<20+1) || w.Stats().Written != sum {
		t.Errorf("%d bytes arrived, %d are written", sum, w.Stats().Written)
	}
}
