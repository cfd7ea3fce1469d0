package claims

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pipe"
)

// A mover moves everything from one blocking socket to another, and returns how
// many bytes and how many system calls that were. Nothing else makes any: a
// blocking call waits in the kernel.
type mover func(src, dst int) (bytes, calls int64, err error)

// connectionRounds is how many rounds the movers get, and trial is how long a mover moves at a time.
const (
	connectionRounds = 5
	trial            = 200 * time.Millisecond
)

// measureConnection has one connection moved by copying through a small buffer,
// through one of 64 KiB, and by splice through a pipe of 1 MiB.
func measureConnection(ctx context.Context) (r Result, err error) {
	p, err := pipe.Open(1 << 20)
	if err != nil {
		return r, err
	}
	defer p.Close()
	ways := []way{
		{name: "copy, 2,600 B buffer", move: copying(make([]byte, 2600))},
		{name: "copy, 64 KiB buffer", move: copying(make([]byte, 64<<10))},
		{name: "splice, 1 MiB pipe", move: splicing(p)},
	}
	for round := range connectionRounds {
		for i := range ways {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			if err := ways[(i+round)%len(ways)].run(); err != nil {
				return r, err
			}
		}
	}
	for _, w := range ways {
		r = append(r, w.figures()...)
	}
	return r, nil
}

// A way is a mover and its results, a value for each round.
type way struct {
	name              string
	move              mover
	bits, calls, size report.Sample
	used, n           float64 // of all rounds: seconds of CPU, bytes
	copied            int64   // bytes, before they were written
}

func (w *way) figures() []Figure {
	return of(w.name,
		spread("", Bits, w.bits),
		spread("calls", Rate, w.calls),
		spread("a call", Bytes, w.size),
		Figure{Name: "CPU per GB", Unit: Seconds, Value: w.used / w.n * 1e9},
	)
}

// run moves for a trial; the thread's time is the mover's alone.
func (w *way) run() error {
	line, err := newLine()
	if err != nil {
		return err
	}
	defer line.close()
	line.feed(trial)
	return w.measure(func() (bytes, calls int64, err error) { return w.move(int(line.in.Fd()), int(line.out.Fd())) })
}

// measure counts the resources of work, on a thread of its own.
func (w *way) measure(work func() (bytes, calls int64, err error)) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		failed <- w.account(work)
	}()
	return <-failed
}

func (w *way) account(work func() (bytes, calls int64, err error)) error {
	before, err := sys.ThreadCPUTime()
	if err != nil {
		return os.NewSyscallError("clock_gettime", err)
	}
	start := time.Now()
	bytes, calls, err := work()
	elapsed := time.Since(start).Seconds()
	if err != nil {
		return err
	}
	after, err := sys.ThreadCPUTime()
	if err != nil {
		return os.NewSyscallError("clock_gettime", err)
	}
	w.bits = append(w.bits, float64(bytes)*8/elapsed)
	w.calls = append(w.calls, float64(calls)/elapsed)
	w.size = append(w.size, float64(bytes)/float64(calls))
	w.used += (after - before).Seconds()
	w.n += float64(bytes)
	return nil
}

func copying(buf []byte) mover {
	return func(src, dst int) (bytes, calls int64, err error) {
		for {
			n, err := sys.Recv(src, buf, 0)
			calls++
			if err == syscall.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return bytes, calls, os.NewSyscallError("recv", err)
			}
			for out := buf[:n]; len(out) > 0; {
				m, err := sys.Send(dst, out, sys.MSG_NOSIGNAL)
				calls++
				if err != nil && err != syscall.EINTR {
					return bytes, calls, os.NewSyscallError("send", err)
				}
				out = out[m:]
				bytes += int64(m)
			}
		}
	}
}

func splicing(p *pipe.Pipe) mover {
	return func(src, dst int) (bytes, calls int64, err error) {
		for {
			n, err := p.FillSocket(src, 1<<20)
			calls++
			if err == syscall.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return bytes, calls, os.NewSyscallError("splice", err)
			}
			for p.Len() > 0 {
				m, err := p.DrainSocket(dst, p.Len())
				calls++
				if err != nil && err != syscall.EINTR {
					return bytes, calls, os.NewSyscallError("splice", err)
				}
				bytes += int64(m)
			}
		}
	}
}

// A line is two connections over loopback with nothing between them yet: bytes written to from
// arrive at in, and bytes written to out are thrown away.
type line struct {
	from, to *net.TCPConn
	in, out  *os.File // blocking
	busy     sync.WaitGroup
}

func newLine() (_ *line, err error) {
	l := new(line)
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.from, l.in, err = halfBlocking(); err != nil {
		return nil, err
	}
	l.to, l.out, err = halfBlocking()
	return l, err
}

func halfBlocking() (*net.TCPConn, *os.File, error) {
	a, b, err := connection()
	if err != nil {
		return nil, nil, err
	}
	f, err := b.File()
	b.Close()
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	f.Fd() // which makes it blocking
	return a, f, nil
}

// connection returns both ends of a TCP connection over loopback.
func connection() (a, b *net.TCPConn, err error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if a, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)); err != nil {
		return nil, nil, err
	}
	if b, err = l.AcceptTCP(); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// feed writes for a time, then ends the stream; and throws away the output. Neither of its
// goroutines reports a failure: the mover meets it, too.
func (l *line) feed(d time.Duration) {
	l.busy.Go(func() {
		chunk, end := make([]byte, 256<<10), time.Now().Add(d)
		for time.Now().Before(end) {
			if _, err := l.from.Write(chunk); err != nil {
				return
			}
		}
		_ = l.from.CloseWrite()
	})
	l.busy.Go(func() { _ = discard(l.to) })
}

// discard receives until the end of the stream without copying (tcp(7),
// MSG_TRUNC).
func discard(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for {
		n := 0
		read := raw.Read(func(fd uintptr) bool {
			n, err = sys.Recv(int(fd), buf, sys.MSG_TRUNC|sys.MSG_DONTWAIT)
			return !errors.Is(err, syscall.EAGAIN)
		})
		if read != nil || err != nil || n == 0 {
			return errors.Join(read, err)
		}
	}
}

// close closes the open ends and waits for the goroutines of feed.
func (l *line) close() {
	for _, c := range []*net.TCPConn{l.from, l.to} {
		if c != nil {
			c.Close()
		}
	}
	for _, f := range []*os.File{l.in, l.out} {
		if f != nil {
			f.Close()
		}
	}
	l.busy.Wait()
}
