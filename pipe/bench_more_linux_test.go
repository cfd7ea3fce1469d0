package pipe_test

import (
	"context"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// spliceMore is SPLICE_F_MORE: MSG_MORE for the last bytes of the call, too.
const spliceMore = 4

// A splicer moves bytes from one socket to another by a pipe, and holds back the end of each drain as
// its way has it.
type splicer struct {
	src, dst queue
	r, w     int
	size     int
	drains   int
}

// The ways to treat what a drain leaves of a segment.
const (
	plainWay = iota // send it
	moreWay         // SPLICE_F_MORE on all drains but the last, which is known here, and not in a relay
	corkWay         // TCP_CORK before the first drain, and away after the last
)

var wayNames = [...]string{"plain", "more", "cork"}

// newSplicer has a destination with the segments of an Ethernet: those of loopback hold a pipe's worth.
func newSplicer(b *testing.B, size int) *splicer {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err == nil {
		_, err = sys.SetPipeSize(w, size)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { sys.Close(r); sys.Close(w) })
	return &splicer{src: newQueue(b), dst: newSegmented(b, 1448), r: r, w: w, size: size}
}

// newSegmented is newQueue for a connection with segments of so many bytes.
func newSegmented(b *testing.B, mss int) queue {
	control := func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, sys.TCP_MAXSEG, mss+12) })
		return err
	}
	l, err := (&net.ListenConfig{Control: control}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := (&net.Dialer{Control: control}).Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { near.Close() })
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { far.Close() })
	for _, c := range []*net.TCPConn{near.(*net.TCPConn), far.(*net.TCPConn)} {
		c.SetReadBuffer(4 << 20)
		c.SetWriteBuffer(4 << 20)
	}
	return queue{sockets.FD(b, far.(*net.TCPConn)), sockets.FD(b, near.(*net.TCPConn))}
}

// move moves n bytes, which are queued.
func (s *splicer) move(n, way int) {
	if way == corkWay {
		s.cork(1)
	}
	for n > 0 {
		in, err := sys.Splice(s.src.near, nil, s.w, nil, min(n, s.size), sys.SPLICE_F_NONBLOCK)
		if err != nil {
			panic(err)
		}
		flags := sys.SPLICE_F_NONBLOCK
		if n -= in; n > 0 && way == moreWay {
			flags |= spliceMore
		}
		s.drain(in, flags)
	}
	if way == corkWay {
		s.cork(0)
	}
}

func (s *splicer) drain(n, flags int) {
	for n > 0 {
		out, err := sys.Splice(s.r, nil, s.dst.near, nil, n, flags)
		if err != nil && err != syscall.EAGAIN {
			panic(err)
		}
		n -= out
		s.drains++
	}
}

func (s *splicer) cork(on int) {
	if err := sys.SetsockoptInt(s.dst.near, sys.IPPROTO_TCP, sys.TCP_CORK, on); err != nil {
		panic(err)
	}
}

// segments is how many the destination has sent.
func (s *splicer) segments() int {
	var info sys.TCPInfo
	if err := sys.GetTCPInfo(s.dst.near, &info); err != nil {
		panic(err)
	}
	return int(info.Data_segs_out)
}

// BenchmarkMore finds out whether a spliced direction needs a cork: rounds of each way take turns, of
// 1 MiB that is queued (bulk), and of messages that the peer waits for. The figures are segments and
// drains for each MiB, the moving thread's CPU time of each way over that of the plain one, and of
// messages the time until the peer has all, p50.
func BenchmarkMore(b *testing.B) {
	for _, c := range []struct {
		name          string
		size, message int
	}{
		{"bulk/pipe=64KiB", 64 << 10, 1 << 20},
		{"bulk/pipe=1MiB", 1 << 20, 1 << 20},
		{"message=40000", 64 << 10, 40_000},
		{"message=100000", 64 << 10, 100_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			s, data, buf := newSplicer(b, c.size), make([]byte, c.message), make([]byte, 64<<10)
			var cpu, took [3][]float64
			var segments, drains [3]int
			round := func(way int) {
				s.src.feed(data)
				used := threadTime(b)
				before, begin := s.segments(), time.Now()
				s.drains = 0
				s.move(len(data), way)
				used = threadTime(b) - used
				s.dst.empty(buf, len(data))
				took[way] = append(took[way], float64(time.Since(begin)))
				cpu[way] = append(cpu[way], float64(used))
				segments[way] += s.segments() - before
				drains[way] += s.drains
			}
			n := 0
			for b.Loop() {
				for i := range wayNames {
					round((i + n) % len(wayNames))
				}
				n++
			}
			b.ReportMetric(0, "ns/op")
			mib := float64(n*c.message) / (1 << 20)
			for way, name := range wayNames {
				ratios := make([]float64, n)
				for i := range ratios {
					ratios[i] = cpu[way][i] / cpu[plainWay][i]
				}
				b.ReportMetric(float64(segments[way])/mib, name+"-segments/MiB")
				b.ReportMetric(float64(drains[way])/mib, name+"-drains/MiB")
				b.ReportMetric(quantile(ratios, 0.5), name+"-cpu")
				b.ReportMetric(quantile(took[way], 0.5)/1e3, name+"-us")
			}
		})
	}
	b.Run("held", benchmarkHeld)
}

// threadTime is the CPU time of our thread.
func threadTime(b *testing.B) time.Duration {
	d, err := sys.ThreadCPUTime()
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// benchmarkHeld is how long the end of a message waits that is held back, for a relay does not know that
// it is the end: by SPLICE_F_MORE, of one with full segments before it and of one without, and by TCP_CORK.
func benchmarkHeld(b *testing.B) {
	for _, c := range []struct {
		name    string
		way     int
		message int
	}{
		{"plain/message=1000", plainWay, 1000},
		{"more/message=1000", moreWay, 1000},
		{"more/message=40000", moreWay, 40_000},
		{"cork/message=40000", corkWay, 40_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, data, buf := newSplicer(b, 64<<10), make([]byte, c.message), make([]byte, 64<<10)
			var took []float64
			for b.Loop() {
				s.src.feed(data)
				begin := time.Now()
				flags := sys.SPLICE_F_NONBLOCK
				switch c.way {
				case moreWay:
					flags |= spliceMore
				case corkWay:
					s.cork(1)
				}
				n, err := sys.Splice(s.src.near, nil, s.w, nil, s.size, sys.SPLICE_F_NONBLOCK)
				if err != nil || n < len(data) {
					b.Fatalf("%d bytes in one fill, %v", n, err)
				}
				s.drain(n, flags)
				s.dst.empty(buf, n)
				took = append(took, float64(time.Since(begin))/1e3)
				s.cork(0)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(quantile(took, 0.5), "us")
		})
	}
}
