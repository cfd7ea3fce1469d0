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

// behaviour is how a workload uses its connections.
type behaviour interface {
	// begin is called once; it opens the connections.
	begin() error
	// stuck returns an error that says what an unfinished connection waits for, or nil.
	stuck() error
}

// drive is a plan in progress, with its own loop.
type drive struct {
	r       *Runner
	loop    *reactor.Loop
	plan    Plan
	to      netip.AddrPort
	open    map[int]*conn // by descriptor
	left    int           // number of connections that have not ended
	start   time.Time     // time of the first request
	since   time.Time     // since when the connections have the plan's Duration
	result  Result
	latency *hdrhistogram.Histogram // nanoseconds

	buf, discard []byte
	finished     chan struct{} // closed when the plan is over
}

// drive carries out a plan with one loop for its connections.
func (r *Runner) drive(ctx context.Context, p Plan) (Result, error) {
	to, err := resolve(ctx, p.Address)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	if err := reactor.Descriptors(p.Connections); err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	loop, err := reactor.New()
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	d := &drive{
		r: r, loop: loop, plan: p, to: to, open: make(map[int]*conn), left: p.Connections, start: time.Now(), since: time.Now(),
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

// run begins the plan, and serves until all connections have ended. The loop runs on a separate goroutine, because
// it takes a thread.
func (d *drive) run(ctx context.Context) error {
	b := map[Workload]behaviour{Bulk: &bulk{opening[*stream]{drive: d}}, Echo: &echo{opening: opening[*caller]{drive: d}}, Connect: &connect{drive: d}, Idle: &idle{drive: d}}[d.plan.Workload]
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := b.begin(); err != nil {
			done <- err
			return
		}
		d.loop.After(d.r.grace(), func() { d.watch(b, -1) })
		done <- d.loop.Run(ctx)
	}()
	return <-done
}

// watch ends a plan that takes a grace longer than planned. Without a planned time, it ends the plan only if that
// moves no bytes either.
func (d *drive) watch(b behaviour, moved int64) {
	now := d.r.sent.Load() + d.r.received.Load()
	late := time.Since(d.since) - d.plan.Duration - d.r.grace()
	if err := b.stuck(); err != nil && late >= 0 && (now == moved || d.plan.Duration > 0) {
		d.loop.Stop(fmt.Errorf("%w: %w", err, os.ErrDeadlineExceeded))
		return
	}
	d.loop.After(max(-late, d.r.grace()/4), func() { d.watch(b, now) })
}

// close closes the connections that are still open, and the loop.
func (d *drive) close() {
	close(d.finished)
	for fd := range d.open {
		_ = sys.Close(fd)
	}
	d.loop.Close()
}

// resolve looks up the proxy's address.
func resolve(ctx context.Context, address string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(n)), nil
}

// conn is a connection of a drive. It owns the descriptor until close.
type conn struct {
	d     *drive
	fd    int // -1 when closed
	index int
}

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

// refused explains a connect that failed.
func (c *conn) refused(err error) error {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = fmt.Errorf("%w: no local port is free; widen net.ipv4.ip_local_port_range", err)
	}
	return failed(c.d.plan, c.index, &net.OpError{
		Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(c.d.to), Err: os.NewSyscallError("connect", err),
	})
}

// connected handles the result of connect.
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

// close closes the connection.
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

// want changes the events.
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
