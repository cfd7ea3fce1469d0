package pipe_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/paired"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/pipe"
)

// slice is how long a contestant runs at a time: so short that on a busy machine
// most slices pass undisturbed, and long against the clock's own cost.
const slice = 400 * time.Microsecond

// madePipe is the least a pipe can be: three system calls, no allocation.
func madePipe() {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		panic(err)
	}
	sys.Close(r)
	sys.Close(w)
}

// finalized is the design of Go's internal/poll: a sync.Pool of pipes of 1 MiB,
// which a finalizer closes once the collector has dropped them.
type finalized struct {
	r, w int
	data int
}

var finalizedPool = sync.Pool{New: func() any {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return nil
	}
	sys.SetPipeSize(r, 1<<20)
	f := &finalized{r: r, w: w}
	runtime.SetFinalizer(f, (*finalized).close)
	return f
}}

func (f *finalized) close() {
	sys.Close(f.r)
	sys.Close(f.w)
}

func getFinalized() *finalized { return finalizedPool.Get().(*finalized) }

func putFinalized(f *finalized) {
	if f.data != 0 {
		runtime.SetFinalizer(f, nil)
		f.close()
		return
	}
	finalizedPool.Put(f)
}

func poolOp(b *testing.B, pl *pipe.Pool) func() {
	return func() {
		p, err := pl.Get(0)
		if err != nil {
			b.Error(err)
			return
		}
		pl.Put(p)
	}
}

func finalizedOp() { putFinalized(getFinalized()) }

// pipeOps are the ways of having a pipe for a moment.
func pipeOps(b *testing.B) (ops []paired.Contestant, fns []func()) {
	pl := newPool(b, nil)
	fns = []func(){poolOp(b, pl), madePipe, finalizedOp}
	for i, name := range []string{"Pool", "Make", "SyncPool"} {
		ops = append(ops, paired.Timed(name, fns[i]))
	}
	return ops, fns
}

// BenchmarkSplicePipe has a pipe for a moment: from the pool, made and closed, and by
// Go's own design. Paired compares
// them, by rounds that alternate.
func BenchmarkSplicePipe(b *testing.B) {
	ops, fns := pipeOps(b)
	for i, c := range ops {
		b.Run(c.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fns[i]()
			}
		})
	}
	b.Run("Paired", func(b *testing.B) { paired.Run(b, slice, ops[0], ops[1:]...) })
}

// BenchmarkSplicePipeParallel is the same on all Ps at once.
func BenchmarkSplicePipeParallel(b *testing.B) {
	ops, fns := pipeOps(b)
	for i, c := range ops {
		b.Run(c.Name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					fns[i]()
				}
			})
		})
		ops[i] = onAllPs(c)
	}
	b.Run("Paired", func(b *testing.B) { paired.Run(b, slice, ops[0], ops[1:]...) })
}

// onAllPs runs a contestant on every P, each the whole number of times, and takes
// the time until the last has finished.
func onAllPs(c paired.Contestant) paired.Contestant {
	return paired.Contestant{Name: c.Name, Run: func(n int) time.Duration {
		var wg sync.WaitGroup
		start := time.Now()
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() { c.Run(n) })
		}
		wg.Wait()
		return time.Since(start)
	}}
}

// queue is a TCP connection of which one end is filled or emptied by hand.
type queue struct{ far, near int }

func newQueue(b *testing.B) queue {
	far, near := sockets.TCPPair(b)
	for _, c := range []*net.TCPConn{far, near} {
		c.SetReadBuffer(4 << 20)
		c.SetWriteBuffer(4 << 20)
	}
	return queue{sockets.FD(b, far), sockets.FD(b, near)}
}

// feed queues n bytes at the near end.
func (q queue) feed(data []byte) {
	for n := 0; n < len(data); {
		m, err := sys.Send(q.far, data[n:], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		if err != nil && err != syscall.EAGAIN {
			panic(err)
		}
		n += m
	}
	for {
		if n, err := sys.FIONREAD(q.near); err != nil || n >= len(data) {
			return
		}
	}
}

// empty takes n bytes from the far end. With MSG_TRUNC they are thrown away
// uncopied (tcp(7)).
func (q queue) empty(buf []byte, n int) {
	for n > 0 {
		m, err := sys.Recv(q.far, buf[:min(n, len(buf))], sys.MSG_DONTWAIT|sys.MSG_TRUNC)
		if err != nil && err != syscall.EAGAIN {
			panic(err)
		}
		n -= m
	}
}

// mover moves n bytes, all queued, from one socket to another that takes them.
type mover func(src, dst, n int) error

func copyBy(buf []byte) mover {
	return func(src, dst, n int) error {
		for n > 0 {
			m, err := sys.Recv(src, buf[:min(n, len(buf))], sys.MSG_DONTWAIT)
			if err != nil || m == 0 {
				return fmt.Errorf("recv: %d, %w", m, err)
			}
			n -= m
			for out := buf[:m]; len(out) > 0; {
				k, err := sys.Send(dst, out, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
				if err != nil && err != syscall.EAGAIN {
					return err
				}
				out = out[k:]
			}
		}
		return nil
	}
}

func spliceBy(pl *pipe.Pool, size int) mover {
	return func(src, dst, n int) error {
		p, err := pl.Get(size)
		if err != nil {
			return err
		}
		defer pl.Put(p)
		for n > 0 {
			m, err := p.Fill(src, n)
			if err != nil || m == 0 {
				return fmt.Errorf("fill: %d, %w", m, err)
			}
			n -= m
			for p.Len() > 0 {
				if _, err := p.Drain(dst, p.Len()); err != nil && err != syscall.EAGAIN {
					return err
				}
			}
		}
		return nil
	}
}

// moving is a contestant that moves n bytes. Only the moving is timed, not the
// filling of the source and the emptying of the destination.
func moving(name string, in, out queue, data []byte, move mover) paired.Contestant {
	buf := make([]byte, 1<<20)
	return paired.Contestant{Name: name, Run: func(rounds int) (took time.Duration) {
		for range rounds {
			in.feed(data)
			start := time.Now()
			if err := move(in.near, out.near, len(data)); err != nil {
				panic(err)
			}
			took += time.Since(start)
			out.empty(buf, len(data))
		}
		return took
	}}
}

// BenchmarkMove finds the size from which on a leased pipe beats one read and one
// write through a warm buffer of 64 KiB. It moves n bytes from a TCP socket's
// queue, on loopback, to another socket. Below 1.0 splicing is faster.
func BenchmarkMove(b *testing.B) {
	pl := newPool(b, nil)
	for _, n := range []int{1, 64, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in, out := newQueue(b), newQueue(b)
			data := random(n)
			copying := moving("copy", in, out, data, copyBy(make([]byte, 64<<10)))
			small := moving("pipe64K", in, out, data, spliceBy(pl, 0))
			if n <= 64<<10 {
				paired.Run(b, slice, small, copying)
				return
			}
			large := moving("pipe1M", in, out, data, spliceBy(pl, 1<<20))
			b.Run("64K", func(b *testing.B) { paired.Run(b, slice, small, copying) })
			b.Run("1M", func(b *testing.B) { paired.Run(b, slice, large, copying) })
		})
	}
}

// holder is a way of having two pipes, one for each direction of a connection.
type holder func(use func(there, back *pipe.Pipe) error) error

func fromPool(pl *pipe.Pool) holder {
	return func(use func(there, back *pipe.Pipe) error) error {
		there, err := pl.Get(0)
		if err != nil {
			return err
		}
		defer pl.Put(there)
		back, err := pl.Get(0)
		if err != nil {
			return err
		}
		defer pl.Put(back)
		return use(there, back)
	}
}

// opened makes new pipes of that size: a Go proxy without a pool would make them
// of 1 MiB.
func opened(size int) holder {
	return func(use func(there, back *pipe.Pipe) error) error {
		there, err := pipe.Open(size)
		if err != nil {
			return err
		}
		defer there.Close()
		back, err := pipe.Open(size)
		if err != nil {
			return err
		}
		defer back.Close()
		return use(there, back)
	}
}

// proxied is one connection through a proxy: the client connects and sends a
// request, which is spliced to a server that stands ready; its response is
// spliced back; the connection ends.
type proxied struct {
	listener net.Listener
	up       queue // the standing connection to the server
	request  []byte
	response []byte
	buf      []byte
}

func (x *proxied) connection(hold holder) error {
	client, err := net.Dial("tcp4", x.listener.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	conn, err := x.listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetLinger(0) // or the ports run out
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	if _, err := client.Write(x.request); err != nil {
		return err
	}
	return hold(func(there, back *pipe.Pipe) (err error) {
		if e := raw.Control(func(fd uintptr) { err = x.serve(int(fd), there, back) }); e != nil || err != nil {
			return fmt.Errorf("%w, %w", e, err)
		}
		_, err = io.ReadFull(client, x.buf[:len(x.response)])
		return err
	})
}

func (x *proxied) serve(fd int, there, back *pipe.Pipe) error {
	if err := moveAll(there, fd, x.up.near, len(x.request)); err != nil {
		return err
	}
	x.up.empty(x.buf, len(x.request))
	x.up.feed(x.response)
	return moveAll(back, x.up.near, fd, len(x.response))
}

// moveAll moves n bytes, which may take a moment to arrive.
func moveAll(p *pipe.Pipe, src, dst, n int) error {
	for n > 0 {
		m, err := p.Fill(src, n)
		if err != nil && err != syscall.EAGAIN {
			return err
		}
		n -= m
		for p.Len() > 0 {
			if _, err := p.Drain(dst, p.Len()); err != nil && err != syscall.EAGAIN {
				return err
			}
		}
	}
	return nil
}

// BenchmarkConnections measures the gain of the pool for a proxy's connections:
// request of 512 bytes, response of 16 KiB, two pipes each, all on one thread of
// control. The ns are those of a whole connection with its client and server.
func BenchmarkConnections(b *testing.B) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	x := &proxied{l, newQueue(b), random(512), random(16 << 10), make([]byte, 1<<20)}
	through := func(name string, hold holder) paired.Contestant {
		return paired.Timed(name, func() {
			if err := x.connection(hold); err != nil {
				b.Fatal(err)
			}
		})
	}
	pool := through("Pool", fromPool(newPool(b, nil)))
	for _, rival := range []paired.Contestant{
		through("Make64K", opened(0)),
		through("Make1MiB", opened(1<<20)),
	} {
		b.Run(rival.Name, func(b *testing.B) { paired.Run(b, slice, pool, rival) })
	}
}
