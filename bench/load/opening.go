package load

import (
	"os"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// starter is a connection of a workload that starts when all connections are connected.
type starter interface {
	Ready(events uint32)
	link() *conn
	start()
}

// opening connects a workload's connections, and then starts all of them at once. So no connection has the proxy
// for itself while others still connect.
type opening[T starter] struct {
	*drive
	all     []T
	begun   int // connections for which connect was called
	missing int // connections that are not connected yet
}

// connectsAtOnce is less than a listener's queue usually holds (somaxconn, listen(2)). If the queue is full, a
// connection comes only after a second.
const connectsAtOnce = 1000

// connectAll begins to connect.
func (o *opening[T]) connectAll() error {
	o.missing = len(o.all)
	for range min(connectsAtOnce, len(o.all)) {
		if err := o.another(); err != nil {
			return err
		}
	}
	return nil
}

// another begins to connect the next connection, if any is left.
func (o *opening[T]) another() error {
	if o.begun == len(o.all) {
		return nil
	}
	s := o.all[o.begun]
	o.begun++
	return s.link().dial(sys.EPOLLOUT, &opener[T]{o, s})
}

// stuck implements behaviour.
func (o *opening[T]) stuck() error {
	for _, s := range o.all {
		if c := s.link(); c.fd >= 0 {
			return failed(o.plan, c.index, errNotEnded)
		}
	}
	return nil
}

// opener is a connection that is being made.
type opener[T starter] struct {
	o *opening[T]
	s T
}

// Ready implements reactor.Handler.
func (p *opener[T]) Ready(uint32) {
	c := p.s.link()
	if !c.connected() {
		return
	}
	if err := sys.SetsockoptInt(c.fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1); err != nil {
		c.fail(os.NewSyscallError("setsockopt", err))
		return
	}
	c.d.loop.Hand(c.fd, p.s)
	c.want(readable)
	if err := p.o.another(); err != nil {
		c.d.loop.Stop(err)
		return
	}
	if p.o.missing--; p.o.missing == 0 {
		p.o.startAll()
	}
}

// startAll starts all connections.
func (o *opening[T]) startAll() {
	o.drive.start = time.Now()
	o.since = o.drive.start
	for _, s := range o.all {
		s.start()
	}
	if o.plan.Warmup > 0 {
		o.loop.After(time.Until(o.since.Add(o.plan.Warmup)), o.warm)
	}
}

// warm begins to count at the end of the Warmup. On a busy machine the whole Duration may be over already. Then it
// does nothing.
func (o *opening[T]) warm() {
	if o.result.Elapsed > 0 {
		return
	}
	o.drive.start = time.Now()
	o.result.Requests, o.result.Warmup = 0, o.r.received.Load()
	o.latency.Reset()
	if o.r.Warm != nil {
		o.r.Warm()
	}
}
