package pipe_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/pipe"
)

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
	f, err := makeFinalized()
	if err != nil {
		return nil
	}
	runtime.SetFinalizer(f, (*finalized).close)
	return f
}}

func makeFinalized() (*finalized, error) {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	sys.SetPipeSize(r, 1<<20)
	return &finalized{r: r, w: w}, nil
}

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

func resizedOp() {
	f, err := makeFinalized()
	if err != nil {
		panic(err)
	}
	f.close()
}

// pipeOps are the ways of having a pipe for a moment.
func pipeOps(b *testing.B) (ops []contestant, fns []func()) {
	pl := newPool(b, nil)
	fns = []func(){poolOp(b, pl), madePipe, resizedOp, finalizedOp}
	for i, name := range []string{"Pool", "Make", "Make1MiB", "SyncPool"} {
		ops = append(ops, timed(name, fns[i]))
	}
	return ops, fns
}

// BenchmarkSplicePipe has a pipe for a moment: from the pool, made and closed
// (bare, and of 1 MiB as Go makes them), and by Go's own design. Paired reports
// how much less time the pool takes than each, by rounds that alternate.
func BenchmarkSplicePipe(b *testing.B) {
	ops, fns := pipeOps(b)
	for i, c := range ops {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fns[i]()
			}
		})
	}
	b.Run("Paired", func(b *testing.B) { paired(b, true, ops[0], ops[1], ops[2]) })
	b.Run("PairedSyncPool", func(b *testing.B) { paired(b, false, ops[0], ops[3]) })
}

// BenchmarkSplicePipeParallel is the same on all Ps at once.
func BenchmarkSplicePipeParallel(b *testing.B) {
	ops, fns := pipeOps(b)
	for i, c := range ops {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					fns[i]()
				}
			})
		})
		ops[i] = onAllPs(c)
	}
	b.Run("Paired", func(b *testing.B) { paired(b, true, ops[0], ops[1], ops[2]) })
	b.Run("PairedSyncPool", func(b *testing.B) { paired(b, false, ops[0], ops[3]) })
}

// onAllPs runs a contestant on every P, each the whole number of times, and takes
// the time until the last has finished.
func onAllPs(c contestant) contestant {
	return contestant{c.name, func(n int) time.Duration {
		var wg sync.WaitGroup
		start := time.Now()
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() { c.run(n) })
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
func moving(name string, in, out queue, data []byte, move mover) contestant {
	buf := make([]byte, 1<<20)
	return contestant{name, func(rounds int) (took time.Duration) {
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
				paired(b, false, small, copying)
				return
			}
			large := moving("pipe1M", in, out, data, spliceBy(pl, 1<<20))
			b.Run("64K", func(b *testing.B) { paired(b, false, small, copying) })
			b.Run("1M", func(b *testing.B) { paired(b, false, large, copying) })
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
	through := func(name string, hold holder) contestant {
		return timed(name, func() {
			if err := x.connection(hold); err != nil {
				b.Fatal(err)
			}
		})
	}
	pool := through("Pool", fromPool(newPool(b, nil)))
	for _, rival := range []contestant{
		through("Make64K", opened(0)),
		through("Make1MiB", opened(1<<20)),
	} {
		b.Run(rival.name, func(b *testing.B) { paired(b, false, pool, rival) })
	}
}

// contestant does something n times and returns the time taken.
type contestant struct {
	name string
	run  func(n int) time.Duration
}

// timed makes a contestant of an operation.
func timed(name string, op func()) contestant {
	return contestant{name, func(n int) time.Duration {
		start := time.Now()
		for range n {
			op()
		}
		return time.Since(start)
	}}
}

// slice is how long a contestant runs at a time: so short that on a busy machine
// most slices pass undisturbed, and long against the clock's own cost.
const slice = 400 * time.Microsecond

// paired lets contestants run by turns, one round for each of the benchmark's
// iterations, and reports for every rival how much time the first one took per
// round relative to it: the median of the rounds and, as spread, the 10th and the
// 90th percentile. Units are "x-of-NAME" and so on; ns is the median per
// operation. With less, the ratio is put as percent of the time that is saved.
func paired(b *testing.B, less bool, first contestant, rivals ...contestant) {
	all := append([]contestant{first}, rivals...)
	n := make([]int, len(all))
	for i, c := range all {
		n[i] = calibrate(c)
	}
	took := make([][]float64, len(all)) // ns per operation of each round
	round := 0
	for b.Loop() {
		for i := range all {
			k := (i + round) % len(all) // none always follows the same one
			took[k] = append(took[k], float64(all[k].run(n[k]))/float64(n[k]))
		}
		round++
	}
	b.ReportMetric(0, "ns/op") // of a round: meaningless
	b.ReportMetric(quantile(took[0], 0.5), first.name+"-ns")
	for i := 1; i < len(all); i++ {
		ratios := make([]float64, round)
		for r := range ratios {
			ratios[r] = took[0][r] / took[i][r]
		}
		name := all[i].name
		b.ReportMetric(quantile(took[i], 0.5), name+"-ns")
		if less {
			b.ReportMetric(100*(1-quantile(ratios, 0.5)), "%less-than-"+name)
			b.ReportMetric(100*(1-quantile(ratios, 0.9)), "%less-p10-"+name)
			b.ReportMetric(100*(1-quantile(ratios, 0.1)), "%less-p90-"+name)
			continue
		}
		b.ReportMetric(quantile(ratios, 0.5), "x-of-"+name)
		b.ReportMetric(quantile(ratios, 0.1), "x-p10-"+name)
		b.ReportMetric(quantile(ratios, 0.9), "x-p90-"+name)
	}
}

// calibrate finds how many operations fill a slice. It believes the fastest of
// some runs: others were disturbed.
func calibrate(c contestant) int {
	for n := 1; ; n *= 2 {
		d := min(c.run(n), c.run(n), c.run(n), c.run(n))
		if d >= slice/2 {
			return max(1, int(float64(n)*float64(slice)/float64(d)))
		}
	}
}

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}
