package lane_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// A halfOwner is an owner that is notified of ends of file as well.
type halfOwner struct {
	*owner
	half chan int
}

func (o halfOwner) HalfClosed(_ *lane.Session, from int) { o.half <- from }

// TestHalfClosedIsReported: the first end of file of a session in the lane is reported once, with its side, and the last one is the end.
func TestHalfClosedIsReported(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l, at := open(t, "lo"), listener(t, "127.0.0.1:0")
	for side := range 2 {
		client, a := connected(t, at)
		b, server := connected(t, at)
		o := halfOwner{newOwner(), make(chan int, 2)}
		s, err := register(l, sockets.FD(t, a), sockets.FD(t, b), o)
		if err != nil {
			t.Fatal(err)
		}
		<-o.ready
		fd := [2]int{descriptor(t, a), descriptor(t, b)}
		p, ends := pair{client, server, new([2]uint64), s}, [2]*net.TCPConn{client, server}
		for _, c := range ends {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
		}
		blocking(t, fd)
		until(t, "it leaves", func() bool {
			s.Arm()
			return p.pass(t, client, server, fd[0], fd[1]) || s.Arm() && p.pass(t, server, client, fd[1], fd[0])
		})
		if err := s.Leave(fd[0], fd[1]); err != nil {
			t.Fatal(err)
		}
		p.exchange(t, []byte("in the lane"), client, server)
		if v, ok := s.Look(); !ok || !v.Ends[0].Last || v.Ends[1].Last {
			t.Errorf("the client was the last to send: %+v", v)
		}
		p.exchange(t, []byte("and back"), server, client)
		if v, ok := s.Look(); !ok || v.Ends[0].Last || !v.Ends[1].Last {
			t.Errorf("the server was the last to send: %+v", v)
		}
		if err := ends[side].CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(ends[1-side]); len(b) != 0 || err != nil {
			t.Fatal(b, err)
		}
		if from := <-o.half; from != side {
			t.Errorf("%d has ended, want %d", from, side)
		}
		if err := ends[1-side].CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if r := <-o.ended; r.Reset || len(o.half) != 0 {
			t.Errorf("%+v, %d more ends of file", r, len(o.half))
		}
	}
}

var _ lane.Observer = halfOwner{}
