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

// A Session joins two connections. Call Run or Start once; Result and Cut may be called at any time from any goroutine.
// The following is true of a [Driven], too, unless it says otherwise.
//
// # Ends
//
// An end of file is passed on as a half-close, in each direction and order. A wrapper without CloseWrite cannot get
// one: the other direction goes on until its own end, or until no byte has moved for HalfCloseTimeout (five seconds if
// that is 0), and only then the wrapper is closed. [Config.CloseOnEOF] ends sessions at the first end; if that costs
// bytes the result is [ReasonTruncated]. An end of file is the only thing that is passed on as a clean end, with one
// exception: an idle time ends a session of plain sockets with an end of file of both sides if nothing is held or
// unread, all is acknowledged, and the first side was not the last to send. A reset, a failure, other timeouts and a
// canceled context reset each side if the other had not ended, after the bytes that had arrived, as far as the
// destination takes them at once. After a reset or failure of one side the other one gets the bytes that had arrived
// before it is reset, however slowly it takes them, unless it acknowledges none for five seconds; so do both with
// CloseOnEOF. These bytes keep to no limit of bandwidth.
//
// On goroutines there are two exceptions for a wrapper. The first is a Write of the wrapper that fails although no TCP
// connection beneath it was reset. Then the session goes on reading from the wrapper for the other side, until nothing
// has come for a second (five seconds if the other side is not TCP). It passes on what the wrapper's socket had, and
// at most about [Config.MaxPipeSize] more. The second is a Read or Write that goes on although its deadline has passed.
// Then the wrapper is closed one second after the other side's bytes have been sent. One second later the other side is
// closed too, if it is TCP, even if it has not acknowledged them.
//
// A *tls.Conn is reset by a reset of the TCP connection beneath it. An end of file for a *tls.Conn that has not shaken
// hands is passed on when the handshake is complete. (A *tls.Conn answers io.EOF to its reader also when the connection
// beneath has ended between two records, without close_notify: a program that wants that to be a reset has to wrap it.)
// A wrapper knows no reset if no TCP connection is found beneath it, by NetConn() net.Conn, SetLinger or [Unwrapper]:
// it is closed, and its peer sees an end of file, as with [io.Copy]. A unix socket knows no reset: its peer sees
// ECONNRESET only if it had sent bytes that were not read, and an end of file otherwise.
//
// On goroutines a deadline that passes is an error of its connection, as for io.Copy. A busy session finds it within some
// milliseconds, or when its next wait ends. A Read that returns no bytes and no error is called again, after up to a
// millisecond, however often.
//
// A cut stops the calls of a wrapped connection by its deadlines. If they have not returned after a
// second, the connection is closed.
//
// A reset is met by the next read or write. With goroutines it stays unnoticed until a timeout
// while neither goes on (one direction is blocked by a slow destination and the other has
// ended, or has nothing to send); a [Driver] gets it as an event of the loop, and ends the
// session at once.
//
// # Urgent data
//
// Urgent data, of TCP or of a unix socket (which has it since Linux 5.15), never stalls a
// direction and never costs the bytes around it. Without SO_OOBINLINE on its receiving socket the kernel drops the urgent
// byte itself, as with every program that does not ask for it (tcp(7), RFC 6093). With SO_OOBINLINE, which penstock proxy and penstock run set, a
// [Driver] passes a byte of TCP on to TCP as urgent data, at its place; goroutines, and sessions with a layer or a rewrite, pass it on as a byte of the stream.
type Session struct {
	r      *Relay
	limits *Limits
	a, b   leg
	ab     direction // reads a, writes b
	ba     direction
	env    environment
	ends   [2]pair // of ab and ba

	wrapped bool                    // wrappers have to be asked for the ends
	opening context.Context         // ends with the session, for them; set by begin
	unwait  context.CancelCauseFunc // guarded by cutting

	ran      atomic.Bool
	halfOpen atomic.Bool  // one direction has ended
	driving  atomic.Int32 // directions that have not stopped
	started  atomic.Int64 // clock time of Run; 0 before. Publishes waits and the pacers, which are set before it
	finished atomic.Int64
	active   atomic.Int64 // clock time of the last byte moved
	asked    atomic.Bool  // a has sent something
	answered bool         // b has; of the goroutine that drives ba
	spoke    atomic.Bool  // b has sent bytes, and a none since; kept with waits
	waits    *sessionWaits
	legs     *Legs // at the end; set before finished

	ended func(Result, error) // called after all is settled, by Start's session
	done  chan struct{}       // closed then, by Run's

	// cutting is held while a cut interrupts the legs. When the session settles it
	// prevents further cuts, so that nothing touches the connections after Run.
	cutting  sync.Mutex
	settled  bool
	outlived bool  // one side is over, and the others are getting the rest
	stuck    timer // closes legs if their deadlines do nothing, or ends the wait for a side that has outlived the other; nil: nothing is awaited

	mu       sync.Mutex // guards the following fields
	reason   Reason
	cause    error
	culprit  Side
	first    Side  // the side that sent the end of file that was passed on first
	panicked any   // by a wrapper
	timer    timer // nil without timeouts and after the end
	heard    bool  // the second side has sent something
	untold   bool  // an end of file could not be passed on, and nothing else bounds that
	moved    int64 // bytes of both directions when the timer was last looked at
	looked   look  // the last one
	acked    progress
}

// ErrRan is returned by a second Run or Start of the same session.
var ErrRan = errors.New("penstock: relay: the session has already run")

// errLoopConn is returned by Run and Start if a connection is a *loop.Conn.
var errLoopConn = fmt.Errorf("penstock: relay: join: a loop still serves this loop.Conn: call its Detach first: %w", os.ErrInvalid)

// NewSession prepares to join a and b. It moves nothing yet; the session owns both connections
// from its Run or Start on. Only then are wrappers asked for what they have read ahead ([Unwrapper]).
func (r *Relay) NewSession(a, b net.Conn) *Session {
	if r == nil {
		r = new(Relay)
	}
	s := &Session{r: r, limits: &r.limits}
	s.a, s.b = newLeg(a), newLeg(b)
	if !s.a.absent() && !s.b.absent() {
		s.env = environment{leaser: r, tune: &r.cfg, counts: &r.ledger.goroutines, clock: r.clock}
		s.wrapped = s.a.wrapped() || s.b.wrapped()
		s.bind(&s.ab, &s.ends[0], &s.a, &s.b)
		s.bind(&s.ba, &s.ends[1], &s.b, &s.a)
	}
	return s
}

// Limit replaces the limits of the relay's [Config] for this session; a is the client and b
// the endpoint. It is called before Run or Start.
func (s *Session) Limit(l *Limits) {
	if l != nil {
		s.limits = l
	}
}

// Run joins the two connections until both directions have ended or something
// cuts the session: ctx, a timeout, a reset, an error. It owns both connections
// and has closed them when it returns. A side gets a clean end only if the other
// side's end of file was seen; otherwise it is reset. The error is nil if both
// directions ended by end of file. Otherwise it wraps the cause: the *net.OpError
// of the operation that failed, [context.Cause], or os.ErrDeadlineExceeded for a
// timeout; the result's Reason says the same in one word. Run of a nil connection, without a ctx, or of
// a zero Relay closes the connections that there are, and its error names the missing one and wraps
// os.ErrInvalid, and the result's Reason is ReasonError. That holds for a [loop.Conn] too, which is left alone: see its Detach. A second Run
// returns [ErrRan].
//
// A Read of a wrapped connection that neither its deadline nor its Close ends, such as one of a blocking [os.File] or
// an [io.PipeReader], keeps Run waiting. Both connections are closed anyway, within two seconds of the cut.
//
// If a method of a wrapped connection or a hook panics, Run cleans up and panics in
// turn. The result of the session ([Session.Result], Hooks.Ended) has ReasonError then, or the reason of its end if it had ended before.
// A method that calls runtime.Goexit ends the session as well, and the goroutine of Run if Run has called it (it reads a and writes to b).
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

// Start is Run for callers that do not wait: it returns at once, and ended
// is called once, when Run would have returned, with its results. An error of Start
// itself wraps os.ErrInvalid or is [ErrRan]; then ended is never called. Without an ended
// the session has not begun. [Session.Cut] takes the place of the context.
//
// The two goroutines that drive the session are made for it, and each keeps 2 KiB of stack
// while the session is idle; a goroutine that has dialed before it calls Run keeps four times
// as much. A panic of a wrapped connection or a hook ends the program, after ended has been called.
// Only Hooks.Started is called by Start itself, which panics in turn, after ended has been called.
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

// begin prepares both directions to be driven, if there is a context. ended is nil for Run.
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
	s.started.Store(now) // after all that other goroutines read of a session that has started
	s.startTimer()
	if s.r.cfg.Hooks.Started != nil {
		s.callStarted()
	}
	return nil
}

// callStarted calls the hook. If that panics, or ends the goroutine, nothing drives the session, so it ends here.
func (s *Session) callStarted() {
	returned := false
	defer func() {
		if !returned {
			s.cut(ReasonError, errPanicked)
			s.driving.Store(1)
			s.settleLast()
		}
	}()
	s.r.cfg.Hooks.Started(s)
	returned = true
}

// refuse ends a session that has not begun.
func (s *Session) refuse() {
	s.mu.Lock()
	s.reason = ReasonError
	s.mu.Unlock()
	s.ab.reason.Store(uint32(ReasonError))
	s.ba.reason.Store(uint32(ReasonError))
	s.a.close()
	s.b.close()
}

// missing returns the error of a missing argument.
func (s *Session) missing(hasContext bool) error {
	switch {
	case s.a.onLoop || s.b.onLoop:
		return errLoopConn
	case s.a.absent():
		return errNilA
	case s.b.absent():
		return errNilB
	case !hasContext:
		return errNilContext
	}
	return s.r.ready()
}

// drive runs one direction to its end, and settles if it is the last one. Its goroutine is
// where an idle session waits, so it and all that run calls must stay small: a new goroutine's
// 2 KiB must not be outgrown (TestIdleStacks).
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

// passOwed waits for a handshake, and then passes on the end of a direction that came before it. The direction has
// ended: what ends the session, or bounds its half-open time, goes on meanwhile.
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
	if !s.guarded(s.settle) { // it is not known which end was clean
		for _, d := range []*direction{&s.ab, &s.ba} {
			if d.abandon(false); !d.is(ended) {
				d.finished(ReasonError)
			}
		}
		s.guarded(s.a.reset)
		s.guarded(s.b.reset)
	}
	s.guarded(s.inspect)
	s.waitedAtEnd()
	s.guarded(s.a.close)
	s.guarded(s.b.close)
	s.finished.Store(max(1, s.r.clock.now()))
	s.finish()
}

// finish notifies the hook and the waiter of the end.
func (s *Session) finish() {
	s.r.running.remove(s)
	defer s.tell()
	if ended := s.r.cfg.Hooks.Ended; ended != nil {
		s.guarded(func() { ended(s, s.Result(), s.err()) })
	}
}

// tell notifies the waiter.
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
	switch {
	case d.failure() == nil:
		s.directionEnded(d)
	case !s.cutBy(Reason(d.reason.Load()), s.opError(d), s.sideOf(d)) && interrupted(d.failure().err):
		// Not a failure, but how the cut stopped the direction. Its end is still to come (ending.over).
		d.rareState().failure = nil
		d.set(ended, false)
		d.reason.Store(uint32(ReasonNone))
	}
}

func interrupted(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)
}

// noteActivity is called by the goroutine that drives the direction, before the bytes read can
// reach the sink.
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

// Cut ends the session for a cause, as the end of Run's context does: a side is reset if the other
// has not ended, the result's Reason is [ReasonCanceled] and the error is cause, or
// context.Canceled if that is nil. It does not wait for the end. If there are several cuts or
// other causes of the end, the first one counts. It may be called at any time by any goroutine. If
// it is called before the session runs, the session ends as soon as it begins. Cut sets the
// deadlines of the connections at once, and these must not be changed any more.
func (s *Session) Cut(cause error) { s.cut(ReasonCanceled, cmp.Or(cause, context.Canceled)) }

// cut ends the session, and reports whether this was the first cause, which
// counts: both directions stop waiting.
func (s *Session) cut(reason Reason, cause error) bool { return s.cutBy(reason, cause, SideNone) }

// sideOf is the side at which a direction has failed.
func (s *Session) sideOf(d *direction) Side {
	if (d == &s.ab) == d.failedAt(sideSource) {
		return SideA
	}
	return SideB
}

// cutBy is cut because of an event of a side.
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
	case s.a.absent() || s.b.absent():
	case first && s.outlive(side):
	case !first && reason == ReasonEOF: // the end of what one side had sent before its failure
	case first, s.outlived && side == SideNone && !s.settled:
		s.interruptBoth()
		s.outlived = first && reason == ReasonEOF
	case side == SideNone: // the connections are left to settle
		s.outlived = false
	}
	return first
}

// interruptBoth makes both directions stop. It needs cutting.
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
	if s.a.waitsInside() || s.b.waitsInside() {
		s.stuck = s.r.clock.afterFunc(closeGrace, s.closeStuck)
	}
	if w := s.ab.pacer(); w != nil {
		w.of.stop()
	}
}

// closeGrace is the time that the calls of a wrapper have to return after the deadlines of its connection
// were set to the past. Then it is closed, in case its deadlines do nothing.
const closeGrace = time.Second

// closeStuck closes the wrapped connections of a session that was cut and has not stopped. If this does not end
// their calls either, it closes the other connection: its peer must not wait for a Read that nothing ends.
func (s *Session) closeStuck() {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled {
		return
	}
	s.closeLegs(true)
	s.stuck = s.r.clock.afterFunc(closeGrace, func() {
		s.cutting.Lock()
		defer s.cutting.Unlock()
		if !s.settled {
			s.closeLegs(false)
		}
	})
}

// closeLegs resets and closes the connections with calls that wait inside of a wrapper, or else the
// other connections. It needs cutting.
func (s *Session) closeLegs(inside bool) {
	for _, l := range []*leg{&s.a, &s.b} {
		if l.waitsInside() == inside {
			s.guarded(l.reset)
			s.guarded(l.close)
		}
	}
}

// interrupt makes a leg's calls return. One without deadlines is closed.
func (s *Session) interrupt(l *leg) {
	if !s.guarded(l.interrupt) {
		s.guarded(l.reset)
		s.guarded(l.close)
	}
}

// settle runs after both directions have stopped: it delivers the bytes that a reset side had
// sent, counts lost bytes, and resets the sides that have to be.
func (s *Session) settle() {
	s.cutting.Lock()
	s.settled = true
	if s.outlived { // its Read must not wait once more
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
	s.awaitSides(resetA, resetB)
	s.settleSide(&s.ba, &s.a, resetA && !gently)
	s.settleSide(&s.ab, &s.b, resetB && !gently)
	s.noteTruncated()
}

// settleSide prepares the close of a side to which a direction writes.
func (s *Session) settleSide(to *direction, l *leg, reset bool) {
	switch {
	case reset:
		to.countLost(l.abort())
	case s.r.cfg.CloseOnEOF && !l.closed && to.atEOF() && s.Result().Culprit == SideNone:
		to.cutOff(cutOffBy(l.conn))
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

// Result returns the counters of the session so far; after Run has returned, the final ones.
// It allocates nothing.
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

// How a session unwraps its connections. The goroutines that drive the directions ask the wrappers, each for its own
// ends, so that a wrapper that waits holds up neither the other direction nor the caller of Start.

// bind sets up d to move from one leg to the other. If wrappers have to be asked first, d can only be ended for now.
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

// open asks the wrappers of a direction's ends, which may wait, and binds it to the ends beneath them.
//
//go:noinline
func (s *Session) open(dr *goroutineDriver) {
	d, ends, from, to := dr.dir, &s.ends[0], &s.a, &s.b
	if d == &s.ba {
		ends, from, to = &s.ends[1], to, from
	}
	written := unwrapWriter(to.conn)
	s.opened(to, &to.dst, newEnd(written.w, to.state, &written))
	read, _ := unwrapReader(s.opening, from.conn, math.MaxInt) // of that, nothing is too much
	if read.err != nil && s.opening.Err() != nil {
		read.err = os.ErrDeadlineExceeded // as a Read that was cut
	}
	s.opened(from, &from.src, newEnd(read.r, from.state, &read))
	switch {
	case servedByLoop(read.r), servedByLoop(written.w):
		read.err = errLoopConn
	case isMissing(read.r):
		read.err = errNilSrc
	case isMissing(written.w):
		read.err = errNilDst
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

// opened makes e an end of a leg. A cut that came before knew nothing of it.
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

// beginOpening makes the context of the session's wrappers. A cut may have come before.
func (s *Session) beginOpening(ctx context.Context) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	s.opening, s.unwait = context.WithCancelCause(context.WithoutCancel(ctx)) // which cuts the session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != ReasonNone {
		s.unwait(s.cause)
	}
}

// A session has one timer for all of its timeouts. It is not touched when bytes
// move: a move stores the time, and the timer, when it fires, looks at how long
// ago that was and either cuts the session or sleeps for the rest.

// startTimer arms the timer for the first time, if there is any timeout.
func (s *Session) startTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left, what := s.nextTimeout(); what != ReasonNone {
		s.timer = s.r.clock.afterFunc(left, s.onTimer)
	}
}

// untoldTimeout replaces a missing half-close timeout if an end of file could not be
// passed on: the other side does not know of it, and may wait forever.
const untoldTimeout = 5 * time.Second

// directionEnded ends the session if the first end counts.
// Otherwise it starts the half-close timeout if d is the first direction that ends.
func (s *Session) directionEnded(d *direction) {
	if s.r.cfg.CloseOnEOF {
		defer s.cut(ReasonEOF, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == SideNone && s.reason == ReasonNone {
		s.first = SideA
		if d == &s.ba {
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
	what := s.due()
	if what.quiet() {
		s.lookForAcks()
		what = s.due()
	}
	if what != ReasonNone {
		_ = s.cut(what, timeoutError(what))
	}
}

// due returns the timeout that is over. If there is none it arms the timer for the next one, and returns ReasonNone.
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

// nextTimeout returns the time until the next timeout, and which it is, ReasonNone if
// there is none. It is called with mu held.
func (s *Session) nextTimeout() (left time.Duration, what Reason) {
	limits := s.limits
	if s.untold {
		l := *limits
		l.HalfCloseTimeout = untoldTimeout
		limits = &l
	}
	now, started := s.r.clock.now(), s.started.Load()
	moved := s.ab.moved() + s.ba.moved()
	if s.ab.resting() || s.ba.resting() || s.untold && moved != s.moved {
		s.active.Store(now)
	}
	s.moved = moved
	s.heard = s.heard || s.ba.answered() || s.ba.resting()
	if told := limits.Answered; told != nil && s.ba.spoken() && now-started >= int64(limits.FirstByte) {
		told()
	}
	return limits.next(age{
		now: now, started: started, active: max(s.active.Load(), s.acked.since), seed: started,
		half: s.halfOpen.Load(), answered: s.heard,
	})
}

// lookForAcks takes note of what the sides have acknowledged.
func (s *Session) lookForAcks() {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled {
		return
	}
	var x, y acks
	s.guarded(func() {
		x, _ = acksBy(s.a.conn)
		y, _ = acksBy(s.b.conn)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked.note(x, y, s.r.clock.now())
}

// hasQuietTimeout reports whether the time of each move is recorded. If an end of file cannot be passed on, which
// becomes known only later, the timer compares the counts of bytes (Session.moved).
func (s *Session) hasQuietTimeout() bool {
	return s.limits.IdleTimeout > 0 || s.limits.HalfCloseTimeout > 0
}

// A wrapped connection may do other things than fail: any of its methods may panic,
// or end the goroutine that calls it. The session then ends, both connections are
// closed, nothing that is leased is kept, and a panic goes on in Run's caller, or
// on a goroutine of a session that was started.

// errPanicked cuts a session after a panic.
var errPanicked = errors.New("penstock: relay: a wrapped connection or a hook panicked")

// errLeft cuts a session after a wrapper or a hook called runtime.Goexit, as t.FailNow of
// a test does.
var errLeft = errors.New("penstock: relay: a wrapped connection or a hook ended the goroutine that called it")

// notePanic notes a panic to go on with. The first one counts.
func (s *Session) notePanic(p any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panicked == nil {
		s.panicked = p
	}
}

// guarded calls f, which may call a wrapper, and reports whether f returned. A wrapper may end the goroutine, so it gets one.
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
	if isPlain(s.a.conn) && isPlain(s.b.conn) {
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
