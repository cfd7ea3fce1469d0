package load

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// opensAtOnce is how many connections of an Idle plan carry their bytes at a time. When one of them is quiet, the
// next connection is opened.
const opensAtOnce = 64

// errDisturbed means that a quiet connection has received something.
var errDisturbed = errors.New("bytes arrived while the session was idle")

// idle is the workload Idle.
type idle struct {
	*drive
	all   []*sleeper
	quiet int
}

// begin implements behaviour.
func (i *idle) begin() error {
	for range min(opensAtOnce, i.plan.Connections) {
		if err := i.another(); err != nil {
			return err
		}
	}
	return nil
}

// another opens the next connection.
func (i *idle) another() error {
	s := &sleeper{conn: conn{i.drive, -1, len(i.all)}, i: i, out: traffic.NewStream(i.r.nextSeed()), unsent: IdleSize, missing: IdleSize}
	in := *s.out
	s.in = &in
	i.all = append(i.all, s)
	return s.dial(readable|sys.EPOLLOUT, s)
}

// stuck implements behaviour. A plan that holds its connections is not stuck.
func (i *idle) stuck() error {
	if i.quiet == i.plan.Connections && len(i.open) == i.plan.Connections && !i.all[0].ending {
		return nil
	}
	for _, s := range i.all {
		switch {
		case s.fd >= 0 && s.missing > 0:
			return failed(i.plan, s.index, fmt.Errorf("%d of its %d bytes have not come back", s.missing, IdleSize))
		case s.fd >= 0 && s.ending:
			return failed(i.plan, s.index, errNotEnded)
		}
	}
	return nil
}

// hold reports that all connections are quiet, and waits for Release, which calls wake.
func (d *drive) hold(wake func()) {
	if d.r.Hold != nil {
		d.r.Hold()
	}
	done := d.finished
	go func() {
		select {
		case <-d.r.release:
			d.loop.Post(wake)
		case <-done:
		}
	}()
}

// wake ends all connections.
func (i *idle) wake() {
	i.since = time.Now()
	for _, s := range i.all {
		s.ending = true
		s.hangUp()
	}
}

// sleeper is one connection.
type sleeper struct {
	conn
	i       *idle
	out, in *traffic.Stream
	// The numbers of bytes that were not sent yet, and that have not come back yet.
	unsent, missing int
	made            bool // the connection is made
	ending          bool // this side has half-closed
}

// Ready implements reactor.Handler.
func (s *sleeper) Ready(events uint32) {
	if !s.made && !s.connected() {
		return
	}
	s.made = true
	if events&sys.EPOLLOUT != 0 && s.unsent > 0 && !s.sendMore() {
		return
	}
	if events&^sys.EPOLLOUT == 0 {
		return
	}
	n, ok := s.receive(s.d.buf, 0)
	switch {
	case !ok:
	case n == 0 && s.ending:
		s.end()
	case n == 0:
		s.fail(io.ErrUnexpectedEOF)
	case s.missing == 0:
		s.fail(errDisturbed)
	case n > s.missing || !s.in.Check(s.d.buf[:n]):
		s.fail(errMismatch)
	default:
		if s.missing -= n; s.missing == 0 {
			s.sleep()
		}
	}
}

// sendMore sends when the socket has room, and reports whether that went well.
func (s *sleeper) sendMore() bool {
	ok := s.sendSome()
	if ok && s.unsent == 0 {
		s.want(readable)
	}
	return ok
}

// sendSome sends as much as fits, and reports whether that went well.
func (s *sleeper) sendSome() bool {
	chunk := s.out.Next(s.unsent)
	rest, ok := s.send(chunk)
	s.out.Back(len(rest))
	s.unsent -= len(chunk) - len(rest)
	return ok
}

// sleep makes a connection quiet once it has carried its bytes.
func (s *sleeper) sleep() {
	i := s.i
	switch i.quiet++; {
	case len(i.all) < i.plan.Connections:
		if err := i.another(); err != nil {
			s.d.loop.Stop(err)
		}
	case i.quiet == i.plan.Connections:
		i.hold(i.wake)
	}
}
