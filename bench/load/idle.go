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

func (d *drive) idle() error {
	for range min(opensAtOnce, d.plan.Connections) {
		if err := d.anotherSleeper(); err != nil {
			return err
		}
	}
	return nil
}

func (d *drive) anotherSleeper() error {
	s := &sleeper{conn: conn{d, -1, len(d.all)}, out: traffic.NewStream(d.r.nextSeed()), unsent: IdleSize, missing: IdleSize}
	in := *s.out
	s.in = &in
	d.all = append(d.all, s)
	return s.dial(readable|sys.EPOLLOUT, s)
}

// hold reports that all connections are quiet, and waits for Release, which wakes them.
func (d *drive) hold() {
	if d.r.Hold != nil {
		d.r.Hold()
	}
	done := d.finished
	go func() {
		select {
		case <-d.r.release:
			d.loop.Post(d.wake)
		case <-done:
		}
	}()
}

func (d *drive) wake() {
	d.since = time.Now()
	for _, l := range d.all {
		s := l.(*sleeper)
		s.ending = true
		s.hangUp()
	}
}

// sleeper is one connection.
type sleeper struct {
	conn
	out, in *traffic.Stream
	// The numbers of bytes that were not sent yet, and that have not come back yet.
	unsent, missing int
	made            bool // the connection is made
	ending          bool // this side has half-closed
}

// stuck returns nil for a connection that is held.
func (s *sleeper) stuck() error {
	switch {
	case s.missing > 0:
		return fmt.Errorf("%d of its %d bytes have not come back", s.missing, IdleSize)
	case s.ending:
		return errNotEnded
	}
	return nil
}

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

// sendMore sends as much as the socket has room for, and reports whether that went well.
func (s *sleeper) sendMore() bool {
	chunk := s.out.Next(s.unsent)
	rest, ok := s.send(chunk)
	s.out.Back(len(rest))
	s.unsent -= len(chunk) - len(rest)
	if ok && s.unsent == 0 {
		s.want(readable)
	}
	return ok
}

// sleep makes a connection quiet once it has carried its bytes.
func (s *sleeper) sleep() {
	switch s.d.quiet++; {
	case len(s.d.all) < s.d.plan.Connections:
		if err := s.d.anotherSleeper(); err != nil {
			s.d.loop.Stop(err)
		}
	case s.d.quiet == s.d.plan.Connections:
		s.d.hold()
	}
}
