package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/penstock/penstock/bench/reactor"
	"github.com/penstock/penstock/internal/sys"
)

const (
	// receiveSize is how much is received at once, in bytes.
	receiveSize = 256 << 10
	// discardSize is how much is thrown away at once. It is more than the queue of a socket holds. The buffer is
	// never touched.
	discardSize = 8 << 20

	readable = sys.EPOLLIN | sys.EPOLLRDHUP
	flags    = sys.MSG_DONTWAIT | sys.MSG_NOSIGNAL
)

// The resolution of latencies: three digits, up to more than a connection can last.
const (
	longestLatency = int64(time.Hour)
	latencyDigits  = 3
)

// errNotEnded means that a connection is still open after the end of the plan.
var errNotEnded = errors.New("it has not ended")

// link is a connection of a workload.
type link interface {
	reactor.Handler
	own() *conn
	// stuck returns what the open connection waits for, or nil.
	stuck() error
}

// drive is a plan in progress, with its own loop.
type drive struct {
	r       *Runner
	loop    *reactor.Loop
	plan    Plan
	to      netip.AddrPort
	all     []link        // in the order in which they are opened
	open    map[int]*conn // by descriptor
	left    int           // number of connections that have not ended
	start   time.Time     // time of the first request
	since   time.Time     // since when the connections have the plan's Duration
	result  Result
	latency *hdrhistogram.Histogram // nanoseconds

	begun   int // starters for which connect was called
	missing int // starters that are not connected yet
	quiet   int // sleepers that are quiet

	buf, discard []byte
	finished     chan struct{} // closed when the plan is over
}

// drive carries out a plan with one loop for its connections.
func (r *Runner) drive(ctx context.Context, p Plan) (Result, error) {
	to, err := net.ResolveTCPAddr("tcp", p.Address)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	if err := descriptors(p.Connections); err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	loop, err := reactor.New()
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	d := &drive{
		r: r, loop: loop, plan: p, to: netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), uint16(to.Port)), open: make(map[int]*conn), left: p.Connections, start: time.Now(), since: time.Now(),
		latency: hdrhistogram.New(1, longestLatency, latencyDigits),
		buf:     make([]byte, receiveSize), finished: make(chan struct{}),
	}
	defer d.close()
	if err := d.run(ctx); err != nil {
		return Result{}, err
	}
	d.result.P50 = time.Duration(d.latency.ValueAtQuantile(50))
	d.result.P99 = time.Duration(d.latency.ValueAtQuantile(99))
	d.result.Mean = time.Duration(d.latency.Mean())
	return d.result, nil
}

// spare is how many descriptors a process needs for everything else.
const spare = 64

// descriptors makes sure that this process may have n connections open at once. If necessary, it
// raises the soft limit of RLIMIT_NOFILE.
func descriptors(n int) error {
	need := uint64(n) + spare
	soft, hard, err := sys.RlimitNoFileRange()
	switch {
	case err != nil:
		return os.NewSyscallError("prlimit", err)
	case need <= soft:
		return nil
	case need > hard:
		return fmt.Errorf("%d connections need %d descriptors, and the hard limit is %d: plan for %d, or raise the limit with ulimit -Hn %d",
			n, need, hard, max(hard, spare)-spare, need)
	}
	return os.NewSyscallError("prlimit", sys.SetRlimitNoFile(need, hard))
}

// run begins the plan, and serves until all connections have ended. The loop runs on a separate goroutine, because
// it takes a thread.
func (d *drive) run(ctx context.Context) error {
	begin := map[Workload]func() error{Bulk: d.bulk, Echo: d.echo, Connect: d.connect, Idle: d.idle}[d.plan.Workload]
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := begin(); err != nil {
			done <- err
			return
		}
		d.loop.After(d.r.grace(), func() { d.watch(-1) })
		done <- d.loop.Run(ctx)
	}()
	return <-done
}

// watch ends a plan that takes a grace longer than planned. Without a planned time, it ends the plan only if that
// moves no bytes either.
func (d *drive) watch(moved int64) {
	now := d.r.sent.Load() + d.r.received.Load()
	late := time.Since(d.since) - d.plan.Duration - d.r.grace()
	if err := d.stuck(); err != nil && late >= 0 && (now == moved || d.plan.Duration > 0) {
		d.loop.Stop(fmt.Errorf("%w: %w", err, os.ErrDeadlineExceeded))
		return
	}
	d.loop.After(max(-late, d.r.grace()/4), func() { d.watch(now) })
}

// stuck returns what an open connection waits for, or nil.
func (d *drive) stuck() error {
	for _, l := range d.all {
		if c := l.own(); c.fd >= 0 {
			if err := l.stuck(); err != nil {
				return failed(d.plan, c.index, err)
			}
		}
	}
	return nil
}

// until returns the end of the plan's Duration.
func (d *drive) until() time.Time { return d.since.Add(d.plan.Duration) }

// close closes the connections that are still open, and the loop.
func (d *drive) close() {
	close(d.finished)
	for fd := range d.open {
		_ = sys.Close(fd)
	}
	d.loop.Close()
}

// conn is a connection of a drive. It owns the descriptor until close.
type conn struct {
	d     *drive
	fd    int // -1 when closed
	index int
}

func (c *conn) own() *conn { return c }

// stuck says that a connection has nothing to do except to end.
func (c *conn) stuck() error { return errNotEnded }

// dial begins to connect c, and makes the loop call h for its events.
func (c *conn) dial(events uint32, h reactor.Handler) error {
	fd, err := sys.StreamSocket(c.d.to.Addr())
	if err != nil {
		return failed(c.d.plan, c.index, os.NewSyscallError("socket", err))
	}
	c.fd = fd
	c.d.open[fd] = c
	if err := sys.Connect(fd, c.d.to); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		return c.refused(err)
	}
	if err := c.d.loop.Add(fd, events, h); err != nil {
		return failed(c.d.plan, c.index, err)
	}
	return nil
}

func (c *conn) refused(err error) error {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = fmt.Errorf("%w: no local port is free; widen net.ipv4.ip_local_port_range", err)
	}
	return failed(c.d.plan, c.index, &net.OpError{
		Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(c.d.to), Err: os.NewSyscallError("connect", err),
	})
}

func (c *conn) connected() bool {
	e, err := sys.GetsockoptInt(c.fd, sys.SOL_SOCKET, sys.SO_ERROR)
	if err == nil && e != 0 {
		err = syscall.Errno(e)
	}
	if err != nil {
		c.d.loop.Stop(c.refused(err))
		return false
	}
	return true
}

// fail ends the plan with an error.
func (c *conn) fail(err error) { c.d.loop.Stop(failed(c.d.plan, c.index, err)) }

func (c *conn) close() {
	c.d.loop.Forget(c.fd)
	delete(c.d.open, c.fd)
	_ = sys.Close(c.fd)
	c.fd = -1
}

// end closes a connection that has ended well. The last one ends the plan.
func (c *conn) end() {
	c.close()
	c.d.result.Connections++
	if c.d.left--; c.d.left == 0 {
		c.d.result.Elapsed = cmp.Or(c.d.result.Elapsed, time.Since(c.d.start))
		c.d.loop.Stop(nil)
	}
}

func (c *conn) want(events uint32) {
	if err := c.d.loop.Want(c.fd, events); err != nil {
		c.fail(err)
	}
}

// send sends as much of b as the socket takes, and returns the rest. ok is false if the plan has failed.
func (c *conn) send(b []byte) (rest []byte, ok bool) {
	n, err := sys.Send(c.fd, b, flags)
	c.d.r.sent.Add(int64(n))
	if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
		c.fail(os.NewSyscallError("send", err))
		return nil, false
	}
	return b[n:], true
}

// receive receives into b. At the end of file n is 0. ok is false if no bytes have come, or if the plan has
// failed.
func (c *conn) receive(b []byte, more int) (n int, ok bool) {
	n, err := sys.Recv(c.fd, b, flags|more)
	if err != nil {
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			c.fail(os.NewSyscallError("recv", err))
		}
		return 0, false
	}
	c.d.r.received.Add(int64(n))
	return n, true
}

// hangUp half-closes. That fails if the connection was reset meanwhile. The cause is then the socket's error.
func (c *conn) hangUp() {
	err := sys.ShutdownWrite(c.fd)
	if errors.Is(err, syscall.ENOTCONN) {
		if e, _ := sys.GetsockoptInt(c.fd, sys.SOL_SOCKET, sys.SO_ERROR); e != 0 {
			err = syscall.Errno(e)
		}
	}
	if err != nil {
		c.fail(os.NewSyscallError("shutdown", err))
	}
}

// connectsAtOnce is less than a listener's queue usually holds (somaxconn, listen(2)). If the queue is full, a
// connection comes only after a second.
const connectsAtOnce = 1000

// starter is a connection of a workload that starts when all connections are connected. So no connection has the
// proxy for itself while others still connect.
type starter interface {
	link
	start()
}

func (d *drive) connectAll() error {
	d.missing = len(d.all)
	for range min(connectsAtOnce, len(d.all)) {
		if err := d.another(); err != nil {
			return err
		}
	}
	return nil
}

// another begins to connect the next connection, if any is left.
func (d *drive) another() error {
	if d.begun == len(d.all) {
		return nil
	}
	s := d.all[d.begun].(starter)
	d.begun++
	return s.own().dial(sys.EPOLLOUT, &opener{s.own(), s})
}

// opener is a connection that is being made.
type opener struct {
	*conn
	s starter
}

func (o *opener) Ready(uint32) {
	if !o.connected() {
		return
	}
	if err := sys.SetsockoptInt(o.fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1); err != nil {
		o.fail(os.NewSyscallError("setsockopt", err))
		return
	}
	o.d.loop.Hand(o.fd, o.s)
	o.want(readable)
	if err := o.d.another(); err != nil {
		o.d.loop.Stop(err)
		return
	}
	if o.d.missing--; o.d.missing == 0 {
		o.d.startAll()
	}
}

func (d *drive) startAll() {
	d.start = time.Now()
	d.since = d.start
	for _, l := range d.all {
		l.(starter).start()
	}
	if d.plan.Warmup > 0 {
		d.loop.After(time.Until(d.since.Add(d.plan.Warmup)), d.warm)
	}
}

// warm begins to count at the end of the Warmup. On a busy machine the whole Duration may be over already. Then it
// does nothing.
func (d *drive) warm() {
	if d.result.Elapsed > 0 {
		return
	}
	d.start = time.Now()
	d.result.Requests, d.result.Warmup = 0, d.r.received.Load()
	d.latency.Reset()
	if d.r.Warm != nil {
		d.r.Warm()
	}
}
