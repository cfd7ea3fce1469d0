package pipe_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pipe"
)

// block makes the socket fd take nothing more, and returns how much it took.
func block(t testing.TB, fd int) int {
	t.Helper()
	total, b := 0, make([]byte, 64<<10)
	for {
		n, err := sys.Send(fd, b, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		total += n
		if err == nil {
			continue
		}
		if err != syscall.EAGAIN {
			t.Fatal(err)
		}
		// Bytes in flight may still be acknowledged and make room.
		unsent := -1
		await(t, "a send queue at rest", func() bool {
			was := unsent
			unsent, _ = sys.SIOCOUTQ(fd)
			return was == unsent
		})
		if n, err := sys.Send(fd, b[:1], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL); err == syscall.EAGAIN {
			return total
		} else {
			total += n
		}
	}
}

// TestSmallSegments sends 1,000 segments of 100 bytes to a destination that takes
// nothing. A pipe of 64 KiB has 16 slots. It refuses the 17th segment, holding
// 1,600 bytes, which proves nothing about the source. Once the destination reads,
// all arrive in order.
func TestSmallSegments(t *testing.T) {
	const segments, size = 1000, 100
	in := random(segments * size)
	p, far, src := fillSlots(t, in, size)
	reader, _, dst := tcp(t)
	dead := block(t, dst)
	sent := p.Len()
	for full := sent; sent < len(in); sent += size {
		if _, err := far.Write(in[sent : sent+size]); err != nil {
			t.Fatal(err)
		}
		if sent == full {
			arrived(t, src, size)
			n, err := p.Fill(src, p.Size())
			wantErr(t, n, err, pipe.ErrNotEmpty)
			n, err = p.Drain(dst, p.Len())
			wantErr(t, n, err, syscall.EAGAIN)
			if p.Len() != full {
				t.Fatalf("holds %d bytes, want %d", p.Len(), full)
			}
		}
	}

	got := make(chan []byte, 1)
	go func() {
		io.CopyN(io.Discard, reader, int64(dead))
		b := make([]byte, len(in))
		io.ReadFull(reader, b)
		got <- b
	}()
	move(t, p, src, dst, len(in)-p.Len())
	if !bytes.Equal(<-got, in) {
		t.Fatal("other bytes")
	}
}

// fillSlots returns a pipe of 64 KiB into which 16 segments were spliced one by
// one, and the connection that they came over. A segment that the sender happens
// to lay across two pages takes two slots; then it starts over.
func fillSlots(t *testing.T, in []byte, size int) (p *pipe.Pipe, far *net.TCPConn, src int) {
	t.Helper()
again:
	for range 10 {
		p = open(t, 0)
		far, _, src = tcp(t)
		_ = far.SetNoDelay(true)
		for i := range 16 {
			send(t, far, src, in[i*size:(i+1)*size])
			n, err := p.Fill(src, p.Size())
			if errors.Is(err, pipe.ErrNotEmpty) {
				continue again
			}
			if n != size || err != nil {
				t.Fatalf("fill of segment %d: %d, %v", i, n, err)
			}
		}
		return p, far, src
	}
	t.Fatal("16 segments never fitted into 16 slots")
	return nil, nil, 0
}

// move fills left bytes from src and drains all to dst.
func move(t *testing.T, p *pipe.Pipe, src, dst, left int) {
	t.Helper()
	await(t, "all moved", func() bool {
		if left > 0 {
			n, err := p.Fill(src, p.Size())
			if err != nil && err != syscall.EAGAIN && err != pipe.ErrNotEmpty {
				t.Fatal(err)
			}
			left -= n
		}
		if _, err := p.Drain(dst, p.Size()); err != nil && err != syscall.EAGAIN {
			t.Fatal(err)
		}
		return left == 0 && p.Len() == 0
	})
}
