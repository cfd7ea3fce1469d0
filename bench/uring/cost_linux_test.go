package uring

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// BenchmarkCancel cancels the poll request of one socket among so many, as a poller must before the socket can be
// closed: a request holds its file. Then the ring is closed, and the time counts until the file is.
func BenchmarkCancel(b *testing.B) {
	for _, n := range []int{1e3, 1e4, 1e5, 1e6} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fd, other, err := sys.SocketPair()
			if err != nil {
				b.Fatal(err)
			}
			defer sys.Close(other)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r, err := Open(256, 1<<16)
			if err != nil {
				b.Skip("needs io_uring of Linux 6.1:", err)
			}
			c := canceller{r: r, fd: fd}
			if err := r.Enable(); err != nil {
				b.Fatal(err)
			}
			for i := range n {
				c.poll(i)
			}
			const some = 16
			for b.Loop() {
				c.cancel(c.times*7919*some%(n-some), some)
			}
			b.ReportMetric(float64(c.took.Nanoseconds())/float64(c.times*some), "ns/cancel")
			sys.Close(fd)
			begin := time.Now()
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
			if _, err := sys.Read(other, make([]byte, 1)); err == syscall.EAGAIN {
				waitFor(b, other)
			}
			b.ReportMetric(float64(time.Since(begin).Microseconds()), "µs-until-closed")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func waitFor(b *testing.B, fd int) {
	b.Helper()
	ep, err := sys.EpollCreate1()
	if err != nil {
		b.Fatal(err)
	}
	defer sys.Close(ep)
	if err := sys.EpollCtl(ep, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: sys.EPOLLIN}); err != nil {
		b.Fatal(err)
	}
	for n := 0; n == 0; {
		if n, err = sys.EpollWait(ep, make([]sys.EpollEvent, 1), 60_000); err != nil && err != syscall.EINTR {
			b.Fatal(err)
		}
	}
}

// A canceller has many poll requests for one socket.
type canceller struct {
	r     *Ring
	fd    int
	times int
	took  time.Duration // of cancelling
}

func (c *canceller) push(e *SQE) {
	for !c.r.Push(e) {
		_ = c.r.Submit()
	}
}

func (c *canceller) poll(i int) {
	c.push(&SQE{Opcode: sys.IORING_OP_POLL_ADD, Fd: int32(c.fd), Len: sys.IORING_POLL_ADD_MULTI, OpFlags: sys.EPOLLIN, UserData: uint64(i)})
}

// cancel cancels some requests, and makes them anew.
func (c *canceller) cancel(from, some int) {
	_ = c.r.Submit()
	begin := time.Now()
	for i := range some {
		c.push(&SQE{Opcode: sys.IORING_OP_ASYNC_CANCEL, Fd: -1, Addr: uint64(from + i), UserData: cancelled})
	}
	_ = c.r.Submit()
	c.took += time.Since(begin)
	c.times++
	for i := range some {
		c.poll(from + i)
	}
	_ = c.r.Submit()
	for e := (CQE{}); c.r.Next(&e); {
	}
}
