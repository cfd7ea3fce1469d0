package write

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// pair returns both ends of a connection; both close when the test ends.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// forEachWay runs a test with each way.
func forEachWay(t *testing.T, test func(t *testing.T, w *way)) {
	for i := range ways {
		w := &ways[i]
		t.Run(w.name, func(t *testing.T) { test(t, w) })
	}
}

// Each way writes all bytes of all batches, in order, however slowly they are received. It
// reports the expected number of copied bytes.
func TestWaysWriteTheSame(t *testing.T) {
	const batches = 40
	forEachWay(t, func(t *testing.T, w *way) {
		for _, s := range []Shape{Equal(64), Equal(1300), Equal(16 << 10), Equal(64 << 10), Message()} {
			near, far := pair(t)
			from, again := newSource(s.Pieces), newSource(s.Pieces)
			to, err := w.open(near, s.Pieces)
			if err != nil {
				t.Fatal(err)
			}
			defer to.close()
			var want []byte
			for range batches {
				for _, p := range again.batch() {
					want = append(want, p...)
				}
			}
			written := make(chan error, 1)
			go func() {
				err := to.write(from, batches/2)
				if err == nil {
					err = to.write(from, batches/2)
				}
				if err == nil {
					_, err = to.end()
				}
				written <- err
			}()
			time.Sleep(5 * time.Millisecond) // the writer may fill the kernel's buffers
			got, err := io.ReadAll(far)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: %d bytes of %d, or other bytes: %v", s.Name, len(got), len(want), err)
			}
			if err := <-written; err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			switch n, all := to.copied(), int64(len(want)); {
			case n < 0, n > all, w.name == wayBufio64 && n != all, (w.name == wayWrite || w.name == wayBuffers) && n != 0:
				t.Errorf("%s: copied %d bytes of %d", s.Name, n, all)
			}
		}
	})
}

// vecio copies all small pieces and no large ones.
func TestVecioCountsCopies(t *testing.T) {
	for _, name := range own {
		w, err := wayOf(partPrefix + name)
		if err != nil {
			t.Fatal(err)
		}
		for size, want := range map[int]int64{64: 64 << 10, 16 << 10: 0} {
			near, far := pair(t)
			go func() { _, _ = io.Copy(io.Discard, far) }()
			s := Equal(size)
			to, err := w.open(near, s.Pieces)
			if err != nil {
				t.Fatal(err)
			}
			defer to.close()
			if err := to.write(newSource(s.Pieces), 1); err != nil {
				t.Fatal(err)
			}
			if got := to.copied(); got != want {
				t.Errorf("%s, %s: copied %d bytes of a batch, want %d", name, s.Name, got, want)
			}
		}
	}
}

// A receiver that is gone is an error, and does not hang.
func TestWaysFail(t *testing.T) {
	forEachWay(t, func(t *testing.T, w *way) {
		near, far := pair(t)
		if err := far.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		s := Equal(1300)
		to, err := w.open(near, s.Pieces)
		if err != nil {
			t.Fatal(err)
		}
		defer to.close()
		_ = far.Close()
		err = to.write(newSource(s.Pieces), 1<<20)
		if err == nil || !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "pipe") {
			t.Errorf("got %v", err)
		}
	})
}
