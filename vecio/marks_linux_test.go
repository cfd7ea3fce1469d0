package vecio_test

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// TestMarksRefuse: a writer that never waits refuses pieces from the high mark on until
// no more than the low one is pending.
func TestMarksRefuse(t *testing.T) {
	room := 0
	w, err := vecio.NewScripted(func(views [][]byte) (int, error) {
		n := 0
		for _, v := range views {
			n += len(v)
		}
		n = min(n, room)
		if room -= n; n == 0 {
			return 0, syscall.EAGAIN
		}
		return n, nil
	}, &vecio.Config{High: 100, Low: 40})
	must(t, err)
	must(t, w.Append(make([]byte, 60)), w.Append(make([]byte, 40)))
	for _, c := range []struct {
		room, n int
		full    bool
	}{
		{0, 1, true},
		{30, 1, true}, // 70 pending: it would fit
		{29, 1, true},
		{1, 1, false}, // 40 pending
		{0, 59, false},
		{0, 1, true},
		{60, 101, true}, // longer than the mark, with something pending
	} {
		room = c.room
		if err := w.Flush(); err != vecio.ErrBlocked {
			t.Fatal(err)
		}
		if err := w.Append(make([]byte, c.n)); err != nil && err != vecio.ErrFull || (err == vecio.ErrFull) != c.full {
			t.Errorf("%+v with %d bytes pending: %v", c, w.Pending(), err)
		}
	}
	room = 1 << 20
	must(t, w.Flush(), w.Append(make([]byte, 101)), w.Flush()) // alone it is taken
	if s := w.Stats(); s.Refused != 5 || s.Waits != 0 {
		t.Errorf("%+v", s)
	}
}

// TestMarksWait: with a slow peer, a writer that may wait never has more pending than the
// high mark. Its producer goes at the peer's pace.
func TestMarksWait(t *testing.T) {
	a, b := sockets.TCPPair(t)
	const high, low, total = 100_000, 30_000, 20 << 20
	w := newWriter(t, a, &vecio.Config{High: high, Low: low})
	data := random(total)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+len(rest)%7000)
			if err := w.Append(rest[:n]); err != nil {
				t.Error(err)
				break
			}
			if w.Pending() > high {
				t.Errorf("%d bytes pending", w.Pending())
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Error(err)
		}
		a.CloseWrite()
	}()
	got, err := io.ReadAll(b)
	if err != nil || string(got) != string(data) {
		t.Errorf("%d bytes arrived of %d, %v", len(got), len(data), err)
	}
	<-done
	if s := w.Stats(); s.Waits < total/high {
		t.Errorf("%+v", s)
	}
}

// TestWaitsForLow: a writer that may wait continues when no more than the low mark is
// pending, however little the peer reads then.
func TestWaitsForLow(t *testing.T) {
	a, b := sockets.TCPPair(t)
	must(t, a.SetWriteBuffer(64<<10), b.SetReadBuffer(64<<10))
	const high, low = 8 << 20, 4 << 20
	w := newWriter(t, a, &vecio.Config{High: high, Low: low})
	must(t, w.Append(make([]byte, high)))
	must(t, a.SetWriteDeadline(time.Now().Add(30*time.Second)))
	go func() { _, _ = io.CopyN(io.Discard, b, high-low) }()
	if err := w.AppendString("x"); err != nil || w.Pending() > low+1 || w.Pending() < low/2 {
		t.Errorf("%v with %d bytes pending", err, w.Pending())
	}
	_ = w.Close() // reports that bytes were pending
}

// TestManyEmptyPieces: the number of empty pieces is bounded as well.
func TestManyEmptyPieces(t *testing.T) {
	w, err := vecio.NewScripted(func([][]byte) (int, error) { return 0, syscall.EAGAIN }, nil)
	must(t, err)
	must(t, w.AppendString("x"))
	n := 1
	for ; n < 1<<20 && w.Append(make([]byte, 1-n%2)) == nil; n++ {
	}
	if n != 1<<16 || w.Append(nil) != vecio.ErrFull {
		t.Errorf("%d pieces are pending", n)
	}
	must(t, w.Reset(io.Discard))
	for range 1 << 17 {
		must(t, w.Append(nil))
	}
	if s := w.Stats(); s.Calls != 0 || s.Pieces != 1<<17 {
		t.Errorf("%+v", s)
	}
}

// TestManyOwnedPieces: nor can owned pieces be without number that are short, or empty.
func TestManyOwnedPieces(t *testing.T) {
	for _, piece := range []string{"", "x"} {
		w, err := vecio.NewScripted(func([][]byte) (int, error) { return 0, syscall.EAGAIN }, nil)
		must(t, err)
		must(t, w.AppendString("y"))
		var back count
		const n = 1 << 16
		for range n {
			must(t, w.Own([]byte(piece), &back))
		}
		if room := w.Room(); room != 0 || w.Own([]byte(piece), &back) != vecio.ErrFull {
			t.Errorf("one more owned piece of %d bytes is taken, or there is room for %d bytes", len(piece), room)
		}
		if back.n != 1 {
			t.Errorf("%d pieces are back, want the refused one", back.n)
		}
		must(t, w.Reset(io.Discard))
		if back.n != n+1 {
			t.Errorf("%d of %d pieces are back", back.n, n)
		}
	}
	a, b := sockets.TCPPair(t)
	w := newWriter(t, a, &vecio.Config{Low: vecio.DefaultHigh}) // one that may wait
	var back count
	for range 1<<16 + 1 {
		must(t, w.AppendString("y"), w.Own(nil, &back))
	}
	if s := w.Stats(); s.Waits == 0 || back.n < 1<<16 {
		t.Errorf("%d pieces are back, %+v", back.n, s)
	}
	must(t, w.Flush())
	received(t, b, 1<<16+1)
}
