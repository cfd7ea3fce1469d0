package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Session joins two connections. Call Run or Start once; Result and Cut may be called at any time from any
// goroutine. The following is true of a [Driven], too, unless it says otherwise.
//
// # Ends
//
// An end of file is passed on as a half-close, in each direction and order. A wrapper without CloseWrite, or whose
// CloseWrite returns errors.ErrUnsupported, cannot get a half-close: the other direction goes on until its own end,
// or until no byte has moved for HalfCloseTimeout (five seconds if that is 0), and only then is the wrapper closed.
// [Config.CloseOnEOF] ends sessions at the first end; if that costs bytes the result is [ReasonTruncated].
//
// Only an end of file is passed on as a clean end, with one exception: when IdleTimeout ends a session of plain
// sockets before any end of file, both get one if nothing is held or unread, everything is acknowledged, and the first
// side was not the last to send. (Goroutines without [Config.LegsAfter] do not know who sent last: for them the
// second side must have sent something, or the first side nothing.) A reset, a failure,
// another timeout or a canceled context resets both sides, except for a side that has got its end of file. Before
// that, a side gets the bytes that had arrived for it, as far as it takes them at once. After a reset or failure
// of one side, the other side gets all of them, however slowly, unless it acknowledges none for five seconds; with
// CloseOnEOF both sides do. These bytes keep to no limit of bandwidth.
//
// On goroutines there are two exceptions for a wrapper. If a Write of the wrapper fails although no TCP connection
// beneath it was reset, the session goes on reading from the wrapper for the other side, until nothing has come
// for a second (five seconds if the other side is not TCP). It passes on what the wrapper's socket had, and at
// most about [Config.MaxPipeSize] more. If a Read or Write goes on although its deadline has passed, the wrapper
// is closed one second after the other side's bytes have been sent, and the other side, if it is TCP, a second
// later, even if it has not acknowledged them.
//
// To reset a *tls.Conn, the session resets the TCP connection beneath it. An end of file for a *tls.Conn that
// has not shaken hands is passed on when the handshake is complete. (A *tls.Conn returns io.EOF even if the
// connection beneath has ended between two records, without close_notify: a program that wants that to be a
// reset has to wrap it.) A wrapper cannot be reset if no TCP connection is found beneath it, by NetConn()
// net.Conn, SetLinger or [Unwrapper]: it is closed, and its peer sees an end of file, as with [io.Copy]. A unix
// socket knows no reset: its peer sees ECONNRESET only if it had sent bytes that were not read, and an end of
// file otherwise.
//
// A datagram socket has no end of file. Each error of it ends the session, as it ends io.Copy, although UDP may go on
// after some: ECONNREFUSED says that an earlier datagram met a closed port (udp(7)). A wrapper may hide that error.
//
// On goroutines a deadline that passes is an error of its connection, as for io.Copy. A busy session notices it
// within some milliseconds, or when its next wait ends. A write deadline that has passed is noticed at the first
// write after the session's first 10 ms. Then the session goes on reading from that connection, until nothing has
// come for a second or two. A Read that returns no bytes and no error is called again, after up to a millisecond,
// however often.
//
// A cut sets past deadlines at both connections. A connection with calls that have not returned after a second is
// closed.
//
// A reset is noticed by the next read or write. While there is none (one direction is blocked by a slow
// destination, and the other has ended or has nothing to send), only a timeout or a cut ends a session on
// goroutines. A [Driver] gets the reset as an event of the loop, and ends the session at once.
//
// # Urgent data
//
// Urgent data, of TCP or of a unix socket (since Linux 5.15), never stalls a direction and never costs the
// bytes around it. Without SO_OOBINLINE on the receiving socket the kernel drops the urgent byte itself
// (tcp(7), RFC 6093). With SO_OOBINLINE, which penstock proxy and penstock run set, a [Driver] passes an urgent
// byte of TCP on to TCP as urgent data, at its place; goroutines, and sessions with a layer or a rewrite, pass
// it on as a byte of the stream.
type Session struct {
	r      *Relay
	limits *Limits
	a, b   leg
	ab     direction // reads a, writes b
	ba     direction
	env    environment
	ends   [2]pair // of ab and ba

	wrapped bool                    // wrappers have to be asked for the ends
	opening context.Context         // context of the wrappers, ends with the session; set by begin
	unwait  context.CancelCauseFunc // guarded by cutting

	ran      atomic.Bool
	halfOpen atomic.Bool  // one direction has ended
	driving  atomic.Int32 // directions that have not stopped
	started  atomic.Int64 // clock time of Run; 0 before. It is set after waits and the pacers: others read these only once it is set
	finished atomic.Int64
	active   atomic.Int64 // clock time of the last byte moved
	asked    atomic.Bool  // a has sent something
	answered bool         // b has sent something; only the goroutine that drives ba uses it
	spoke    atomic.Bool  // b has sent bytes, and a none since; kept only with waits
	waits    *sessionWaits
	legs     *Legs // the last accounts; guarded by cutting until the session settles, set before finished

	ended func(Result, error) // Start: called after all is settled
	done  chan struct{}       // Run: closed after all is settled

	// cutting is held while a cut interrupts the legs, and when the session settles, so that no later cut
	// touches the connections after Run.
	cutting  sync.Mutex
	settled  bool
	outlived bool  // one side has failed, and the other gets the rest of its bytes
	stuck    timer // closes legs if their deadlines do nothing, or looks at an outlived side; nil: nothing is awaited

	mu       sync.Mutex // guards the following fields
	reason   Reason
	cause    error
	culprit  Side
	first    Side  // the side of the first end of file that was passed on
	panicked any   // by a wrapper
	timer    timer // nil without timeouts and after the end
	heard    bool  // the second side has sent something
	untold   bool  // an end of file could not be passed on, and no timeout of the caller bounds that
	acked    progress
}

// ErrRan is returned by a second Run or Start of the same session.
var ErrRan = errors.New("penstock: relay: the session has already run")

// errLoopConn is returned by Run and Start if a connection is a *loop.Conn.
var errLoopConn = fmt.Errorf("penstock: relay: join: a loop still serves this loop.Conn: call its Detach first: %w", os.ErrInvalid)

// NewSession prepares to join a and b. It moves nothing yet; the session owns both connections from its Run or
// Start on. Only then are wrappers asked for the bytes that they have read ahead ([Unwrapper]).
func (r *Relay) NewSession(a, b net.Conn) *Session {
	if r == nil {
		r = new(Relay)
	}
	s := &Session{r: r, limits: &r.limits}
	s.a, s.b = s.newLeg(a), s.newLeg(b)
	if !s.a.absent() && !s.b.absent() {
		s.env = environment{leaser: r, tune: &r.cfg, counts: &r.ledger.goroutines, clock: r.clock}
		s.wrapped = s.a.wrapped() || s.b.wrapped()
		s.bind(&s.ab, &s.ends[0], &s.a, &s.b)
		s.bind(&s.ba, &s.ends[1], &s.b, &s.a)
	}
	return s
}

// Limit gives the session these limits in place of all timeouts of the relay's [Config]: a zero field means none.
// a is the client and b the endpoint. Call it before Run or Start.
func (s *Session) Limit(l *Limits) {
	if l != nil {
		s.limits = l
	}
}

// Run joins the two connections until both directions have ended or something cuts the session: ctx, a timeout,
// a reset, an error. It owns both connections and has closed them when it returns. A side gets a clean end if
// the other side's end of file was seen, and in one case of IdleTimeout (see [Session]); otherwise it is reset. The error is nil if both directions ended by
// end of file. Otherwise it wraps the cause: the *net.OpError of the operation that failed, [context.Cause], or
// os.ErrDeadlineExceeded for a timeout; the result's Reason says the same in one word. A second Run returns
// [ErrRan].
//
// Run refuses a session with a nil connection, one connection as both, or a connection and a wrapper around it
// (known by its NetConn method), without a ctx, or of a zero or closed
// Relay: it resets and closes the given connections, and calls no hook. The result's Reason is ReasonError, and the
// error names what is wrong and wraps os.ErrInvalid, or is [ErrClosed]. Run also refuses a [loop.Conn], but leaves it open: see its
// Detach.
//
// A Read of a wrapped connection that neither its deadline nor its Close ends, such as a Read of a blocking
// [os.File] or an [io.PipeReader], keeps Run waiting. Both connections are closed anyway, within two seconds of
// the cut.
//
// If a method of a wrapped connection or a hook panics, Run cleans up and panics in turn. The result
// ([Session.Result], Hooks.Ended) then has ReasonError, or the reason of the session's end if it had ended
// before. A method that calls runtime.Goexit ends the session as well, and also the goroutine of Run if it runs
// there (that goroutine reads a and writes to b).
func (s *Session) Run(ctx context.Context) (res Result, err error) {
	if err := s.begin(ctx, nil); err != nil {
		return s.Result(), err
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { s.Cut(context.Cause(ctx)) })()
	}
	ab, ba := newGoroutineDriver().take(&s.ab), newGoroutineDriver().take(&s.ba)
	go s.drive(ba)
	s.drive(ab)
	<-s.done
	if s.panicked != nil {
		panic(s.panicked)
	}
	return s.Result(), s.err()
}

// Start is Run for callers that do not wait. It returns at once, and ended is called once, when Run would have
// returned, with Run's results. If Start returns an error, ended is never called: the session is refused, as by
// Run, or has run before ([ErrRan]), or has not begun because ended is nil (os.ErrInvalid). [Session.Cut] takes
// the place of the context.
//
// Start makes two new goroutines. Each keeps 2 KiB of stack while the session is idle; a goroutine that has
// dialed before it calls Run keeps four times as much. A panic of a wrapped connection or a hook ends the
// program, after ended has been called. Start itself calls only Hooks.Started, and panics in turn, after ended
// has been called.
func (s *Session) Start(ended func(Result, error)) error {
	if ended == nil {
		return errNilEnded
	}
	if err := s.begin(context.Background(), ended); err != nil {
		return err
	}
	ab, ba := newGoroutineDriver().take(&s.ab), newGoroutineDriver().take(&s.ba)
	go s.drive(ba)
	go s.drive(ab)
	return nil
}

// begin prepares both directions to be driven, or refuses the session. ended is nil for Run.
func (s *Session) begin(ctx context.Context, ended func(Result, error)) error {
	if s.ran.Swap(true) {
		return ErrRan
	}
	err := s.missing(ctx != nil)
	if err == nil && !s.r.running.add(s) {
		err = ErrClosed
	}
	if err != nil {
		s.refuse()
		return err
	}
	if s.ended = ended; ended == nil {
		s.done = make(chan struct{})
	}
	if s.wrapped {
		s.beginOpening(ctx)
	}
	now := max(1, s.r.clock.now())
	s.active.Store(now)
	s.driving.Store(2)
	if s.limits.paces() {
		s.pace()
	}
	if s.r.cfg.LegsAfter > 0 {
		s.waits = new(sessionWaits)
	}
	if s.hasQuietTimeout() || s.limits.FirstByteCame != nil || s.waits != nil {
		s.env.active = s.noteActivity
	}
	if s.r.cfg.Hooks.EngineChanged != nil {
		s.env.engineChanged = s.engineChanged
	}
	s.started.Store(now) // it publishes what other goroutines read of a started session
	s.startTimer()
	s.callStarted()
	return nil
}

// callStarted calls the hook Started. If that panics, or ends the goroutine, nothing drives the session, so it
// ends here. So it does if newLeg has noted a panic.
func (s *Session) callStarted() {
	returned := false
	defer func() {
		if !returned {
			s.cut(ReasonError, errPanicked)
			s.driving.Store(1)
			s.settleLast()
		}
	}()
	s.mu.Lock()
	p := s.panicked
	s.mu.Unlock()
	if p != nil {
		panic(p)
	}
	if started := s.r.cfg.Hooks.Started; started != nil {
		started(s)
	}
	returned = true
}

// refuse ends a session that has not begun. No side has ended, so both are reset.
func (s *Session) refuse() {
	s.mu.Lock()
	s.reason = ReasonError
	s.mu.Unlock()
	s.ab.reason.Store(uint32(ReasonError))
	s.ba.reason.Store(uint32(ReasonError))
	s.cutting.Lock()
	s.settled = true // from now on a cut leaves the connections alone
	s.cutting.Unlock()
	for _, l := range []*leg{&s.a, &s.b} {
		s.guarded(l.reset)
		s.guarded(l.close)
	}
	if s.panicked != nil {
		panic(s.panicked)
	}
}

// missing returns the error of a missing or wrong argument, or nil.
func (s *Session) missing(hasContext bool) error {
	switch {
	case s.a.onLoop || s.b.onLoop:
		return errLoopConn
	case s.a.absent():
		return errNilA
	case s.b.absent():
		return errNilB
	case s.joinsItself():
		return errSame
	case !hasContext:
		return errNilContext
	}
	return s.r.ready()
}

// joinsItself reports whether the session would join a connection with itself, or with a wrapper around it. Two wrappers
// may have one connection in common: streams over it.
func (s *Session) joinsItself() (is bool) {
	a, b := s.a.conn, s.b.conn
	s.guarded(func() { is = same(a, b) || same(innermost(a), b) || same(a, innermost(b)) })
	return is
}

// drive runs one direction to its end, and settles the session if it is the last one. An idle session waits on
// this goroutine, so drive and everything that run calls must stay small: they must not outgrow a new
// goroutine's 2 KiB (TestIdleStacks).
func (s *Session) drive(dr *goroutineDriver) {
	defer s.stopped(dr.dir)
	if s.wrapped {
		s.open(dr)
	}
	dr.run()
}

// stopped is deferred by drive.
func (s *Session) stopped(d *direction) {
	defer s.settleLast()
	if p := recover(); p != nil {
		s.notePanic(p)
		s.cut(ReasonError, errPanicked)
		return
	}
	switch {
	case !d.is(ended):
		s.cut(ReasonError, errLeft)
	case !s.guarded(func() { s.conclude(d) }):
		s.cut(ReasonError, errPanicked)
	default:
		s.passOwed(d)
		s.servedSurvivor(d)
	}
}

// passOwed waits for a TLS handshake, and then passes on a direction's end that came before it. The direction
// has ended; timeouts and other ends of the session go on meanwhile.
func (s *Session) passOwed(d *direction) {
	to, ok := d.link.(*pair).sink.(*opaqueSink)
	if !ok || !to.owed {
		return
	}
	passed := false
	s.guarded(func() { passed = to.passOwed() == nil })
	if !passed {
		d.fallback(FallbackHalfClose)
		s.directionEnded(d)
	}
}

// settleLast is called when a direction has stopped; the last one settles.
func (s *Session) settleLast() {
	if s.driving.Add(-1) > 0 {
		return
	}
	if !s.guarded(s.settle) { // after a panic nobody knows which end was clean
		s.guarded(s.inspect)
		for _, d := range []*direction{&s.ab, &s.ba} {
			if d.abandon(false); !d.is(ended) {
				d.finished(ReasonError)
			}
		}
		s.guarded(s.a.reset)
		s.guarded(s.b.reset)
	}
	s.waitedAtEnd()
	if s.err() == nil {
		s.guarded(s.a.mayTakeLeave)
		s.guarded(s.b.mayTakeLeave)
	}
	s.guarded(s.a.close)
	s.guarded(s.b.close)
	s.finished.Store(max(1, s.r.clock.now()))
	s.finish()
}

// finish calls the hook Ended, and notifies the waiter.
func (s *Session) finish() {
	defer s.tell()
	defer s.r.running.remove(s)
	if ended := s.r.cfg.Hooks.Ended; ended != nil {
		s.guarded(func() { ended(s, s.Result(), s.err()) })
	}
}

// tell notifies the waiter of the end.
func (s *Session) tell() {
	if s.done != nil {
		close(s.done)
		return
	}
	s.ended(s.Result(), s.err())
	if s.panicked != nil {
		panic(s.panicked)
	}
}

// conclude records the end of a direction.
func (s *Session) conclude(d *direction) {
	if d.failure() == nil {
		s.directionEnded(d)
		return
	}
	_, other := d.failure().err.(*writeFailed)
	if (other || !s.cutBy(Reason(d.reason.Load()), s.opError(d), s.sideOf(d))) && interrupted(d.failure().err) {
		// The cut stopped the direction this way; it did not fail. Its end is still to come (ending.over).
		d.rareState().failure = nil
		d.set(ended, false)
		d.reason.Store(uint32(ReasonNone))
	}
}

// interrupted reports whether a call may have failed because its deadline was set, or its connection closed. Other
// packages than net have timeouts of their own.
func interrupted(err error) bool {
	var of interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) || errors.As(err, &of) && of.Timeout()
}

// noteActivity is called by the goroutine that drives the direction, before the bytes read can reach the sink.
func (s *Session) noteActivity(d *direction, waited wait) {
	now := s.r.clock.now()
	before := s.active.Swap(now)
	if s.waits != nil {
		s.noteWait(d, waited, now-before)
	}
	switch {
	case waited != waitSource:
	case d.moves == 0 || s.limits.FirstByteCame == nil:
	case d == &s.ab:
		if !s.asked.Load() {
			s.asked.Store(true)
		}
	case !s.answered:
		s.answered = true
		s.limits.FirstByteCame(time.Duration(now-before), s.asked.Load())
	}
}

// Cut ends the session for a cause, as the end of Run's context does: a side is reset if the other has not ended,
// the result's Reason is [ReasonCanceled] and the error is cause, or context.Canceled if cause is nil. Cut does
// not wait for the end. Of several causes of the end, the first one counts. It may be called at any time by any
// goroutine; before the session runs, it makes the session end as soon as it begins. Cut sets past deadlines at
// both connections: do not change them. It closes a connection that has none, or that goes on for a second. A wrapper
// must not call Cut in its SetDeadline or Close.
func (s *Session) Cut(cause error) { s.cut(ReasonCanceled, cmp.Or(cause, context.Canceled)) }

// cut ends the session: both directions stop waiting. It reports whether this was the first cause, which
// counts.
func (s *Session) cut(reason Reason, cause error) bool { return s.cutBy(reason, cause, SideNone) }

// sideOf returns the side at which a direction has failed.
func (s *Session) sideOf(d *direction) Side {
	if (d == &s.ab) == d.failedAt(sideSource) {
		return SideA
	}
	return SideB
}

// cutBy is cut because of an event at a side.
func (s *Session) cutBy(reason Reason, cause error, side Side) bool {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	s.mu.Lock()
	first := s.reason == ReasonNone && !s.settled
	if first {
		s.reason, s.cause, s.culprit = reason, cause, side
	}
	s.mu.Unlock()
	switch {
	case s.a.absent() || s.b.absent() || s.r.ready() != nil:
	case first && s.outlive(side):
	case !first && reason == ReasonEOF: // the end of the bytes that one side had sent before its failure
	case first, s.outlived && side == SideNone && !s.settled:
		s.interruptBoth()
		s.outlived = first && reason == ReasonEOF
	case side == SideNone: // settle deals with the connections
		s.outlived = false
	}
	return first
}

// interruptBoth makes both directions stop. The caller holds cutting.
func (s *Session) interruptBoth() {
	s.outlived = false
	if s.unwait != nil {
		s.unwait(nil)
	}
	s.interrupt(&s.a)
	s.interrupt(&s.b)
	if s.stuck != nil {
		s.stuck.Stop()
	}
	s.stuck = s.r.clock.afterFunc(closeGrace, s.closeStuck)
	if w := s.ab.pacer(); w != nil {
		w.of.stop()
	}
}

// closeGrace is how long the calls of a connection may take to return after its deadlines were set to the past. Then
// it is closed, in case a wrapper's deadlines do nothing, or the caller has changed them meanwhile.
const closeGrace = time.Second

// closeStuck closes the wrapped connections of a session that was cut and has not stopped, or both if none is wrapped.
// If their calls still do not return, it also closes the other connection, so that its peer does not wait for a Read
// that never ends.
func (s *Session) closeStuck() {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled {
		return
	}
	inside := s.a.waitsInside() || s.b.waitsInside()
	s.closeLegs(inside)
	if !inside {
		return
	}
	s.stuck = s.r.clock.afterFunc(closeGrace, func() {
		s.cutting.Lock()
		defer s.cutting.Unlock()
		if !s.settled {
			s.closeLegs(false)
		}
	})
}

// closeLegs resets and closes the connections with calls that wait inside a wrapper, or else the others. The
// caller holds cutting.
func (s *Session) closeLegs(inside bool) {
	s.guarded(s.inspect)
	for _, l := range []*leg{&s.a, &s.b} {
		if l.waitsInside() == inside {
			s.guarded(l.reset)
			s.guarded(l.close)
		}
	}
}

// interrupt makes a leg's calls return, or closes the leg if it cannot.
func (s *Session) interrupt(l *leg) {
	done := false
	if s.guarded(func() { done = l.interrupt() }); !done {
		s.guarded(s.inspect)
		s.guarded(l.reset)
		s.guarded(l.close)
	}
}

// settle runs after both directions have stopped. It delivers the bytes that a reset side had sent, counts lost
// bytes, and resets sides where necessary.
func (s *Session) settle() {
	s.cutting.Lock()
	s.settled = true
	if s.outlived { // a Read must not wait once more
		switch s.Result().Culprit {
		case SideA:
			s.guarded(s.a.stopReads)
		case SideB:
			s.guarded(s.b.stopReads)
		}
	}
	if s.unwait != nil {
		s.unwait(nil)
	}
	if s.stuck != nil {
		s.stuck.Stop()
	}
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
	gently := reason == ReasonIdle && s.losesNothing()
	resetB := finish(&s.ab, &s.ba, reason)
	resetA := finish(&s.ba, &s.ab, reason)
	s.noteTruncated()
	s.guarded(s.inspect)
	s.awaitSides(resetA, resetB)
	s.settleSide(&s.ba, &s.ab, &s.a, resetA && !gently)
	s.settleSide(&s.ab, &s.ba, &s.b, resetB && !gently)
	s.noteTruncated()
}

// settleSide prepares the close of a side to which a direction writes, and from which the direction back reads.
func (s *Session) settleSide(to, back *direction, l *leg, reset bool) {
	switch {
	case reset:
		to.countUntaken(l.abort(to.certain(back)))
	case s.r.cfg.CloseOnEOF && !l.closed && s.Result().Culprit == SideNone:
		to.cutOff(cutOffBy(l.transport()))
	}
}

func (s *Session) noteTruncated() {
	if truncated(&s.ab, &s.ba) {
		s.mu.Lock()
		s.reason, s.cause = ReasonTruncated, ErrTruncated
		s.mu.Unlock()
	}
}

func (s *Session) opError(d *direction) error {
	from, to := s.a.conn, s.b.conn
	if d == &s.ba {
		from, to = to, from
	}
	return connError(*d.failure(), from, to)
}

func (s *Session) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// Result returns the counters of the session so far; after Run has returned, the final counters. It allocates
// nothing.
func (s *Session) Result() Result {
	s.mu.Lock()
	res := Result{Reason: s.reason, Culprit: s.culprit, First: s.first}
	s.mu.Unlock()
	res.AToB, res.BToA = s.ab.flow(), s.ba.flow()
	if start := s.started.Load(); start != 0 {
		end := s.finished.Load()
		if end == 0 {
			end = s.r.clock.now()
		}
		res.Duration = time.Duration(end - start)
		if s.waits != nil {
			res.Waits = s.waits.load()
		}
		if s.finished.Load() != 0 {
			res.Legs = s.legs
		}
	}
	return res
}

// Each goroutine that drives a direction asks the wrappers of that direction's ends, so that a wrapper that
// waits holds up neither the other direction nor the caller of Start.

// bind sets up d to move from one leg to the other. If wrappers have to be asked first, d can only be ended
// until then.
func (s *Session) bind(d *direction, ends *pair, from, to *leg) {
	if !s.wrapped {
		s.r.connect(d, ends, &s.env, from.src, to.dst, nil)
		return
	}
	ends.env = &s.env
	ends.source, ends.sink = &opaqueSource{r: from.conn, leg: from.state}, &opaqueSink{w: to.conn, leg: to.state}
	d.link = ends
	d.set(waits, true)
}

// open binds a direction to the ends beneath its wrappers. It asks the wrappers for these, which may wait.
//
//go:noinline
func (s *Session) open(dr *goroutineDriver) {
	d, ends, from, to := dr.dir, &s.ends[0], &s.a, &s.b
	if d == &s.ba {
		ends, from, to = &s.ends[1], to, from
	}
	written := unwrapWriter(to.conn)
	s.opened(to, &to.dst, newEnd(written.w, to.state, &written))
	read, _ := unwrapReader(s.opening, from.conn, math.MaxInt) // MaxInt is never too little
	if read.err != nil && s.opening.Err() != nil {
		read.err = os.ErrDeadlineExceeded // as for a Read that was cut
	}
	s.opened(from, &from.src, newEnd(read.r, from.state, &read))
	if servedByLoop(read.r) || servedByLoop(written.w) {
		read.err = errLoopConn
	}
	ends.meters = newMeters(read.meters, written.meters)
	d.setAhead(read.ahead)
	d.set(waits, false)
	s.r.connect(d, ends, &s.env, from.src, to.dst, read.err)
	if d.paceEnds(); d.pace != unpaced {
		d.pacer().owe(int64(len(read.ahead)))
	}
	dr.take(d)
}

// opened makes e an end of a leg, and interrupts it if the session was cut before.
func (s *Session) opened(l *leg, at *end, e end) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	*at = e
	if servedByLoop(e.rw) {
		l.closed, l.onLoop = true, true
	}
	if s.opening.Err() != nil {
		s.interrupt(l)
	}
}

// beginOpening makes the context of the session's wrappers. The session may have been cut already.
func (s *Session) beginOpening(ctx context.Context) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	s.opening, s.unwait = context.WithCancelCause(context.WithoutCancel(ctx)) // the end of ctx cuts the session instead
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != ReasonNone {
		s.unwait(s.cause)
	}
}

// A session has one timer for all of its timeouts. A move does not touch the timer but stores the time; when
// the timer fires, it looks at how long ago that was, and either cuts the session or sleeps for the rest.

// startTimer arms the timer for the first timeout, if there is one.
func (s *Session) startTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left, what := s.nextTimeout(); what != ReasonNone {
		s.timer = s.r.clock.afterFunc(left, s.onTimer)
	}
}

// untoldTimeout replaces a missing half-close timeout when an end of file could not be passed on: the side that
// was not told may wait forever.
const untoldTimeout = 5 * time.Second

// directionEnded ends the session if CloseOnEOF makes the first end count. Otherwise it starts the half-close
// timeout if d is the first direction that ends.
func (s *Session) directionEnded(d *direction) {
	if s.r.cfg.CloseOnEOF {
		defer s.cut(ReasonEOF, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == SideNone && s.reason == ReasonNone {
		s.first = SideA
		if s.env.first.Load() == &s.ends[1] {
			s.first = SideB
		}
	}
	s.untold = s.limits.HalfCloseTimeout <= 0 && d.hasFallen(FallbackHalfClose)
	if s.limits.HalfCloseTimeout <= 0 && !s.untold || s.halfOpen.Swap(true) || s.reason != ReasonNone {
		return
	}
	s.active.Store(s.r.clock.now())
	left, _ := s.nextTimeout()
	if s.timer == nil {
		s.timer = s.r.clock.afterFunc(left, s.onTimer)
		return
	}
	s.timer.Reset(left)
}

func (s *Session) onTimer() {
	s.tellAnswered()
	what := s.due()
	if what.quiet() {
		s.lookForAcks()
		what = s.due()
	}
	if what != ReasonNone {
		_ = s.cut(what, timeoutError{what, s.untoldSide(what)})
	}
}

// untoldSide returns the side without a CloseWrite if a half-close timeout ends the session, or SideNone.
func (s *Session) untoldSide(what Reason) Side {
	switch {
	case what != ReasonHalfClose:
	case s.ba.hasFallen(FallbackHalfClose):
		return SideA
	case s.ab.hasFallen(FallbackHalfClose):
		return SideB
	}
	return SideNone
}

// tellAnswered calls Limits.Answered if it is time. It holds no lock, because Answered may ask for the result, or cut
// the session.
func (s *Session) tellAnswered() {
	told := s.limits.Answered
	if told == nil || !s.ba.spoken() || s.r.clock.now()-s.started.Load() < int64(s.limits.FirstByte) {
		return
	}
	s.mu.Lock()
	runs := s.timer != nil && s.reason == ReasonNone
	s.mu.Unlock()
	if runs {
		told()
	}
}

// due returns the timeout that is over, or arms the timer for the next one and returns ReasonNone.
func (s *Session) due() Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil || s.reason != ReasonNone {
		return ReasonNone
	}
	left, what := s.nextTimeout()
	if left <= 0 {
		return what
	}
	if what != ReasonNone {
		s.timer.Reset(left)
	}
	return ReasonNone
}

// nextTimeout returns the time until the next timeout and its reason, or ReasonNone if there is none. The
// caller holds mu.
func (s *Session) nextTimeout() (left time.Duration, what Reason) {
	limits := s.limits
	if s.untold {
		l := *limits
		l.HalfCloseTimeout = untoldTimeout
		limits = &l
	}
	now, started := s.r.clock.now(), s.started.Load()
	if s.ab.resting() || s.ba.resting() {
		s.active.Store(now)
	}
	s.heard = s.heard || s.ba.answered() || s.ba.resting()
	return limits.next(age{
		now: now, started: started, active: max(s.active.Load(), s.acked.since), seed: started,
		half: s.halfOpen.Load(), answered: s.heard,
	})
}

// lookForAcks records what the sides have acknowledged.
func (s *Session) lookForAcks() {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled {
		return
	}
	var x, y acks
	s.guarded(func() {
		x, _ = acksBy(s.a.transport())
		y, _ = acksBy(s.b.transport())
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked.note(x, y, s.r.clock.now())
}

// hasQuietTimeout reports whether the time of each move is recorded. It is for every wrapper, because one may take
// no end of file (untoldTimeout).
func (s *Session) hasQuietTimeout() bool {
	return s.limits.IdleTimeout > 0 || s.limits.HalfCloseTimeout > 0 || !s.plain()
}

// plain reports whether no method of a wrapper is ever called.
func (s *Session) plain() bool { return isPlain(s.a.conn) && isPlain(s.b.conn) }

// A method of a wrapped connection may panic, or end the goroutine that calls it. Then the session ends, both
// connections are closed and all leases given back, and a panic goes on in Run's caller, or on a goroutine of a
// session that was started.

// errPanicked cuts a session after a panic.
var errPanicked = errors.New("penstock: relay: a wrapped connection or a hook panicked")

// errLeft cuts a session after a wrapper or a hook called runtime.Goexit, for instance by t.FailNow in a test.
var errLeft = errors.New("penstock: relay: a wrapped connection or a hook ended the goroutine that called it")

// notePanic keeps the first panic, which goes on after the end.
func (s *Session) notePanic(p any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panicked == nil {
		s.panicked = p
	}
}

// guarded calls f, which may call a wrapper, and reports whether f returned. A wrapper may end its goroutine,
// so f runs on a new one.
func (s *Session) guarded(f func()) (returned bool) {
	call := func() {
		defer func() {
			if p := recover(); p != nil {
				s.notePanic(p)
			}
		}()
		f()
		returned = true
	}
	if s.plain() {
		call()
		return returned
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		call()
	}()
	<-over
	return returned
}
