package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Session is two connections that are, or are about to be, joined. Run it
// once; Result may be called at any time from any goroutine.
type Session struct {
	r    *Relay
	a, b leg
	ab   direction // reads a, writes b
	ba   direction

	ran      atomic.Bool
	started  atomic.Int64 // clock time of Run; 0 before
	finished atomic.Int64
	active   atomic.Int64 // clock time of the last byte moved
	halfOpen atomic.Bool  // one direction has ended

	mu     sync.Mutex
	timer  timer // nil without timeouts and after the end
	reason Reason
	cause  error
}

// ErrRan is returned by a second Run of the same session.
var ErrRan = errors.New("penstock: relay: session has been run already")

// NewSession prepares to join a and b. It moves nothing yet; the session owns
// both connections from its Run on.
func (r *Relay) NewSession(a, b net.Conn) *Session {
	s := &Session{r: r, a: newLeg(a), b: newLeg(b)}
	s.r.aim(&s.ab, &s.a, &s.b)
	s.r.aim(&s.ba, &s.b, &s.a)
	return s
}

// aim sets up d to move from one leg to the other.
func (r *Relay) aim(d *direction, from, to *leg) {
	d.src, d.dst = newSource(from.src, from.srcDesc), newSink(to.dst, to.dstDesc)
	d.ahead = from.ahead
	d.remain = -1
	r.setUp(d, from.srcDesc != nil && to.dstDesc != nil)
}

// Run joins the two connections until both directions have ended or something
// cuts the session: ctx, a timeout, a reset, an error. It owns both connections
// and has closed them when it returns; the ones that would miss bytes, or whose
// other side was reset, are reset. The error is nil if both directions ended by
// end of file. Otherwise it wraps the cause: the *net.OpError of the operation
// that failed, [context.Cause], or os.ErrDeadlineExceeded for a timeout; the
// result's Reason says the same in one word.
func (s *Session) Run(ctx context.Context) (Result, error) {
	if s.ran.Swap(true) {
		return s.Result(), ErrRan
	}
	now := max(1, s.r.clock.now())
	s.active.Store(now)
	s.started.Store(now)
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { s.cut(ReasonCanceled, context.Cause(ctx)) })
		defer stop()
	}
	s.startTimer()

	var wg sync.WaitGroup
	wg.Go(func() { s.drive(&s.ba) })
	s.drive(&s.ab)
	wg.Wait()

	s.settle()
	return s.Result(), s.err()
}

// drive runs one direction to its end.
func (s *Session) drive(d *direction) {
	if s.r.cfg.IdleTimeout > 0 || s.r.cfg.HalfCloseTimeout > 0 {
		d.active = s.noteActivity
	}
	err := newDriver(d).run()
	switch {
	case err != nil:
		s.cut(ReasonError, err)
	case d.failure.err != nil:
		s.cut(Reason(d.reason.Load()), s.opError(d))
	default:
		s.directionEnded()
	}
}

func (s *Session) noteActivity() { s.active.Store(s.r.clock.now()) }

// cut ends the session: the first cause counts, and both directions stop waiting.
func (s *Session) cut(reason Reason, cause error) {
	s.mu.Lock()
	first := s.reason == ReasonNone
	if first {
		s.reason, s.cause = reason, cause
	}
	s.mu.Unlock()
	if first {
		s.a.interrupt()
		s.b.interrupt()
	}
}

// settle runs after both directions have stopped: it delivers what a reset side
// had sent, counts what is lost, and closes both connections.
func (s *Session) settle() {
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.reason == ReasonNone {
		s.reason = ReasonEOF
	}
	reason := s.reason
	s.mu.Unlock()
	resetB := finish(&s.ab, &s.ba, reason)
	resetA := finish(&s.ba, &s.ab, reason)
	if resetA {
		s.a.reset()
	}
	if resetB {
		s.b.reset()
	}
	s.a.conn.Close()
	s.b.conn.Close()
	s.finished.Store(max(1, s.r.clock.now()))
}

// finish flushes and abandons d, and reports whether the connection that it
// writes to must be reset: because bytes for it were lost, or because its
// counterpart failed rather than ended. other is the opposite direction.
func finish(d, other *direction, reason Reason) (resetSink bool) {
	sinkFailed := d.failure.side == sideSink || other.failure.side == sideSource
	sourceFailed := d.failure.side == sideSource || other.failure.side == sideSink
	var lost int64
	hold(d, func(held bool) {
		if held && !sinkFailed && reason != ReasonEOF {
			d.flush(sourceFailed)
		}
		lost = d.abandon(held)
	})
	if !d.ended {
		d.finished(reason)
	}
	return lost > 0 || sourceFailed || reason == ReasonError && Reason(d.reason.Load()) != ReasonEOF
}

func (s *Session) opError(d *direction) error {
	from, to := s.a.conn, s.b.conn
	if d == &s.ba {
		from, to = to, from
	}
	return opError(d.failure, from, to)
}

// opError dresses a raw failure with the connection it came from.
func opError(f failure, from, to any) error {
	at := from
	if f.side == sideSink {
		at = to
	}
	err := f.err
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(f.op, errno)
	}
	c, ok := at.(net.Conn)
	if !ok {
		return fmt.Errorf("penstock: relay: %s: %w", f.op, err)
	}
	op := &net.OpError{Op: f.op, Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
	if op.Addr != nil {
		op.Net = op.Addr.Network()
	}
	return fmt.Errorf("penstock: relay: %w", op)
}

func (s *Session) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// Result returns what the session has done so far; after Run has returned, what
// it did. It allocates nothing.
func (s *Session) Result() Result {
	s.mu.Lock()
	res := Result{Reason: s.reason}
	s.mu.Unlock()
	res.AToB, res.BToA = s.ab.flow(), s.ba.flow()
	if start := s.started.Load(); start != 0 {
		end := s.finished.Load()
		if end == 0 {
			end = s.r.clock.now()
		}
		res.Duration = time.Duration(end - start)
	}
	return res
}
