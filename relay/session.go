package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
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

	// cutting is held while a cut interrupts the legs, and keeps cuts out once the
	// session settles: nothing touches the connections after Run.
	cutting sync.Mutex
	settled bool

	mu        sync.Mutex
	timer     timer         // nil without timeouts and after the end
	halfClose time.Duration // the quiet timeout once half open
	reason    Reason
	cause     error
}

// ErrRan is returned by a second Run of the same session.
var ErrRan = errors.New("penstock: relay: session has been run already")

// errNilConn is returned by Run if a connection is nil.
var errNilConn = fmt.Errorf("penstock: relay: join a nil connection: %w", os.ErrInvalid)

// errPanicked cuts a session in which a Read or Write of a wrapper panicked.
var errPanicked = errors.New("penstock: relay: a wrapped connection panicked")

// NewSession prepares to join a and b. It moves nothing yet; the session owns both connections from its Run on. What the
// wrappers of a and b have read ahead is handed over here.
func (r *Relay) NewSession(a, b net.Conn) *Session {
	s := &Session{r: r, a: newLeg(a), b: newLeg(b)}
	if !s.a.absent() && !s.b.absent() {
		s.r.aim(&s.ab, &s.a, &s.b)
		s.r.aim(&s.ba, &s.b, &s.a)
	}
	return s
}

// aim sets up d to move from one leg to the other.
func (r *Relay) aim(d *direction, from, to *leg) {
	d.ahead = from.ahead
	d.remain = -1
	r.connect(d, end{from.src, from.srcDesc, from.state}, end{to.dst, to.dstDesc, to.state})
}

// Run joins the two connections until both directions have ended or something
// cuts the session: ctx, a timeout, a reset, an error. It owns both connections
// and has closed them when it returns. A side gets a clean end only if the other
// side's end of file was seen; otherwise it is reset. The error is nil if both
// directions ended by end of file. Otherwise it wraps the cause: the *net.OpError
// of the operation that failed, [context.Cause], or os.ErrDeadlineExceeded for a
// timeout; the result's Reason says the same in one word. Run of a nil connection
// closes the other one and returns os.ErrInvalid, and a second Run returns
// [ErrRan].
//
// If a Read or Write of a wrapped connection panics, Run cleans up and panics in
// turn.
func (s *Session) Run(ctx context.Context) (res Result, err error) {
	if s.ran.Swap(true) {
		return s.Result(), ErrRan
	}
	if s.a.absent() || s.b.absent() {
		s.a.close()
		s.b.close()
		return s.Result(), errNilConn
	}
	now := max(1, s.r.clock.now())
	s.active.Store(now)
	s.started.Store(now)
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { s.cut(ReasonCanceled, context.Cause(ctx)) })
		defer stop()
	}
	s.startTimer()
	s.driveBoth()
	return s.Result(), s.err()
}

// driveBoth drives both directions to their ends, and settles.
func (s *Session) driveBoth() {
	var panicked any
	defer func() {
		if panicked != nil {
			panic(panicked)
		}
	}()
	defer s.settle()
	var wg sync.WaitGroup
	defer wg.Wait()
	drive := func(d *direction) {
		defer func() {
			if p := recover(); p != nil {
				s.cut(ReasonError, errPanicked) // the first cut lets one of them in here
				panicked = p
			}
		}()
		s.drive(d)
	}
	wg.Go(func() { drive(&s.ba) })
	drive(&s.ab)
}

// drive runs one direction to its end.
func (s *Session) drive(d *direction) {
	if s.hasQuietTimeout() {
		d.active = s.noteActivity
	}
	newDriver(d).run()
	switch {
	case d.failure.err == nil:
		s.directionEnded(d)
	case !s.cut(Reason(d.reason.Load()), s.opError(d)) && interrupted(d.failure.err):
		// Not a failure, but how the cut stopped the direction.
		d.failure = failure{}
		d.finished(s.Result().Reason)
	}
}

func interrupted(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)
}

func (s *Session) noteActivity() { s.active.Store(s.r.clock.now()) }

// cut ends the session, and reports whether this was the first cause, which
// counts: both directions stop waiting.
func (s *Session) cut(reason Reason, cause error) bool {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	s.mu.Lock()
	first := s.reason == ReasonNone && !s.settled
	if first {
		s.reason, s.cause = reason, cause
	}
	s.mu.Unlock()
	if first {
		s.a.interrupt()
		s.b.interrupt()
	}
	return first
}

// settle runs after both directions have stopped: it delivers what a reset side
// had sent, counts what is lost, and closes both connections.
func (s *Session) settle() {
	s.cutting.Lock()
	s.settled = true
	s.cutting.Unlock()
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.ab.atEOF() && s.ba.atEOF() {
		s.reason, s.cause = ReasonEOF, nil
	}
	reason := s.reason
	s.mu.Unlock()
	resetB := finish(&s.ab, &s.ba, reason)
	resetA := finish(&s.ba, &s.ab, reason)
	if resetA {
		s.ba.lost.Add(s.a.abort())
	}
	if resetB {
		s.ab.lost.Add(s.b.abort())
	}
	s.a.close()
	s.b.close()
	s.finished.Store(max(1, s.r.clock.now()))
}

// finish flushes and abandons d, and reports whether the connection that it
// writes to must be reset: because the source's end of file was not passed on, or
// because the source has failed since. other is the opposite direction.
func finish(d, other *direction, reason Reason) (resetSink bool) {
	sinkFailed := d.failure.side == sideSink || other.failure.side == sideSource
	sourceFailed := d.failure.side == sideSource || other.failure.side == sideSink
	hold(d, func(held bool) {
		if held && !sinkFailed && reason != ReasonEOF {
			d.flush(sourceFailed)
		}
		d.abandon(held)
	})
	if !d.ended {
		d.finished(reason)
	}
	return sourceFailed || !d.atEOF()
}

func (s *Session) opError(d *direction) error {
	from, to := s.a.conn, s.b.conn
	if d == &s.ba {
		from, to = to, from
	}
	return opError(d.failure, from, to)
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
