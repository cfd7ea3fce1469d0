package relay_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"

	"github.com/penstock/penstock/relay"
)

// A sizedReader returns reads of the given sizes, and notes the sizes of the buffers.
type sizedReader struct {
	reads, buffers []int
}

func (s *sizedReader) Read(p []byte) (int, error) {
	s.buffers = append(s.buffers, len(p))
	if len(s.reads) == 0 {
		return 0, io.EOF
	}
	n := min(s.reads[0], len(p))
	if s.reads[0] -= n; s.reads[0] == 0 {
		s.reads = s.reads[1:]
	}
	return n, nil
}

// TestWrappedBuffer is the sizes of the buffers in which a wrapper's Read waits.
func TestWrappedBuffer(t *testing.T) {
	t.Parallel()

	for _, x := range []struct {
		largest        int
		reads, buffers []int
	}{
		{0, []int{100, 1000, 5000, 100}, []int{8 << 10, 1 << 10, 1 << 10, 64 << 10, 8 << 10, 1 << 10}},
		{0, []int{8 << 10, 64 << 10, 9 << 10, 64 << 10}, []int{8 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10}},
		{2 << 10, []int{2 << 10, 2000, 3000, 10}, []int{2 << 10, 2 << 10, 2 << 10, 2 << 10, 1 << 10, 1 << 10}},
		{128 << 10, []int{300 << 10}, []int{8 << 10, 128 << 10, 128 << 10, 128 << 10, 128 << 10}},
	} {
		r := newRelay(t, &relay.Config{WrappedBuffer: x.largest})
		src, dst, want := &sizedReader{reads: slices.Clone(x.reads)}, new(bytes.Buffer), 0
		for _, n := range x.reads {
			want += n
		}
		n, err := r.Copy(streamOf(dst), streamOf(src))
		if err != nil || n != int64(want) || dst.Len() != want || !slices.Equal(src.buffers, x.buffers) {
			t.Errorf("%v: %d bytes, %v, buffers %v, want %v", x.reads, n, err, src.buffers, x.buffers)
		}
		if live := r.Stats().Buffers.Live; live != 0 {
			t.Errorf("%d buffers are still leased", live)
		}
	}
}

// streamOf returns a reader or a writer, which may be nothing else, as a stream.
func streamOf(end any) io.ReadWriteCloser {
	r, _ := end.(io.Reader)
	w, _ := end.(io.Writer)
	return relay.Stream(struct {
		io.Reader
		io.Writer
		io.Closer
	}{r, w, nil})
}

// A countingConn is a wrapper that counts, so that its Read and Write are used.
type countingConn struct {
	net.Conn
	n int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n += int64(n)
	return n, err
}

// TestIdleWrappedSessions holds the heap of idle sessions between wrapped connections that are streams, also
// after bulk.
func TestIdleWrappedSessions(t *testing.T) {
	const sessions, most = 100, 16 << 10
	r := newRelay(t, nil)
	wrapped := func(t testing.TB) (halfConn, net.Conn) {
		far, near := tcp(t)
		return far, relay.Stream(&countingConn{Conn: near})
	}
	bulk := make([]byte, 300<<10)
	var rigs []*rig
	before := heap()
	for range sessions {
		g := newRig(t, r, wrapped, wrapped)
		for _, message := range [][]byte{bulk, []byte("the last one")} {
			pass(t, g.A, g.B, message)
			pass(t, g.B, g.A, message)
		}
		rigs = append(rigs, g)
	}
	if each := (heap() - before) / sessions; each > most {
		t.Errorf("%d bytes of heap for each idle session, want %d at most", each, most)
	}
	for _, g := range rigs {
		_ = g.A.CloseWrite()
		_ = g.B.CloseWrite()
		if _, err := g.wait(); err != nil {
			t.Error(err)
		}
	}
}

// heap returns the bytes of live objects, without buffers that are idle in pools.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCloseOnEOF: the first end of file ends the session. All that either side has sent by then
// arrives.
func TestCloseOnEOF(t *testing.T) {
	t.Parallel()
	eachDriver(t, testCloseOnEOF)
}

func testCloseOnEOF(t *testing.T, d *driving) {
	r := newRelay(t, &relay.Config{CloseOnEOF: true})
	for name, n := range d.networks() {
		for _, bytes := range []int{0, 1, 100 << 10} {
			t.Run(fmt.Sprint(name, " ", bytes), func(t *testing.T) {
				g := d.newRig(t, r, n, n)
				g.echo(t)
				if _, err := g.A.Write(make([]byte, bytes)); err != nil {
					t.Fatal(err)
				}
				g.A.CloseWrite()
				if _, n, err := receive(g.B); err != nil || n != int64(bytes) {
					t.Errorf("B gets %d bytes, %v", n, err)
				}
				res, err := g.wait()
				if err != nil || res.Reason != relay.ReasonEOF || res.First != relay.SideA || res.AToB.Lost+res.BToA.Lost != 0 {
					t.Errorf("%+v, %v", res, err)
				}
				if err := expect(g.A, nil); err != nil {
					t.Errorf("A: %v, want a clean end", err)
				}
			})
		}
	}
}
