package uring

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/netns"
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
			r, err := Open(256, 1<<16, Deferred)
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

// waitFor waits for the end of file of a socket.
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

// BenchmarkSplice moves 64 KiB from a socket to another one through a pipe: by splice(2), and by a ring, whose
// SPLICE goes to a worker thread of the kernel each time.
func BenchmarkSplice(b *testing.B) {
	const size = 64 << 10
	for _, by := range []string{"calls", "ring"} {
		b.Run(by, func(b *testing.B) {
			r := open(b, 8, 8)
			var ends [6]int // a pair, a pair, a pipe
			for i := range 2 {
				var err error
				if ends[2*i], ends[2*i+1], err = sys.SocketPair(); err != nil {
					b.Fatal(err)
				}
			}
			var err error
			if ends[4], ends[5], err = sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK); err != nil {
				b.Fatal(err)
			}
			defer func() {
				for _, fd := range ends {
					sys.Close(fd)
				}
			}()
			move := func(from, to, n int) (int, error) { return sys.Splice(from, nil, to, nil, n, sys.SPLICE_F_NONBLOCK) }
			if by == "ring" {
				move = func(from, to, n int) (int, error) { return spliceBy(r, from, to, n) }
			}
			message := make([]byte, size)
			b.SetBytes(size)
			before := cpuTime()
			for b.Loop() {
				for sent := 0; sent < size; {
					n, err := sys.Send(ends[0], message[sent:], sys.MSG_DONTWAIT)
					if err != nil {
						b.Fatal(err)
					}
					pass(b, move, [4]int{ends[1], ends[5], ends[4], ends[2]}, n)
					for got := 0; got < n; {
						m, err := sys.Recv(ends[3], message[:n-got], sys.MSG_DONTWAIT)
						if err != nil {
							b.Fatal(err)
						}
						got += m
					}
					sent += n
				}
			}
			b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// pass moves n bytes by way of a pipe.
func pass(b *testing.B, move func(from, to, n int) (int, error), by [4]int, n int) {
	b.Helper()
	for in, out := 0, 0; out < n; {
		if in < n {
			m, err := move(by[0], by[1], n-in)
			if err != nil && err != syscall.EAGAIN {
				b.Fatal(err)
			}
			in += max(m, 0)
		}
		m, err := move(by[2], by[3], n-out)
		if err != nil && err != syscall.EAGAIN {
			b.Fatal(err)
		}
		out += max(m, 0)
	}
}

func spliceBy(r *Ring, from, to, n int) (int, error) {
	none := ^uint64(0)
	r.Push(&SQE{Opcode: sys.IORING_OP_SPLICE, Fd: int32(to), Off: none, Addr: none, Len: uint32(n), OpFlags: sys.SPLICE_F_NONBLOCK, FileIndex: int32(from)})
	var e CQE
	for !r.Next(&e) {
		if err := r.Wait(-1); err != nil && err != syscall.EINTR {
			return 0, err
		}
	}
	if e.Res < 0 {
		return 0, syscall.Errno(-e.Res)
	}
	return int(e.Res), nil
}

// TestSendZCIsCopied: over loopback and over veth messages that SEND_ZC sends are copied anyway, when they come to
// their receiver (skb_orphan_frags_rx), as the kernel itself reports.
func TestSendZCIsCopied(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	open(t, 8, 8)
	here, far := netns.Here(t), netns.New(t)
	link := here.Join(far)
	for _, c := range []struct {
		name, address string
		from          *netns.Host
	}{{"loopback", "127.0.0.1", here}, {"veth", link.Near.String(), far}} {
		t.Run(c.name, func(t *testing.T) {
			addr, fd := listen(t, c.address)
			s := newServer(t, fd, way{zc: true, flags: Deferred}, false)
			ended := make(chan error, 1)
			go func() { ended <- s.run() }()
			c.from.Run(func() { echoTo(t, addr) })
			s.end()
			must.Do(t, <-ended)
			t.Logf("%d messages were copied, %d were not", s.copied, s.kept)
			if s.copied == 0 || s.kept > 0 {
				t.Errorf("%d messages were copied, %d were not", s.copied, s.kept)
			}
		})
	}
}
