package relay

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay/driver"
)

// A Driven is a session on an event loop. It is made to be part of a larger struct, takes no goroutine and at most
// 280 bytes, and may be used again after its end. Like its [Driver] it belongs to the loop's goroutine.
type Driven struct {
	ab, ba  direction // first, for their atomics on 32-bit systems
	active  int64     // loop clock of the last byte moved, or of the end of the last wait for bandwidth; after the end, of the end
	started int64
	drv     *Driver
	owner   Owner
	limits  *Limits
	timer   loop.Timer
	a, b    loopSocket // own the descriptors
	reason  Reason
	state   drivenState
	counted uint16                // the period in which the bulkTracker last counted it
	waited  [smallWaitings]uint32 // in ticks, see waits.go; they end at active
	pauses  [2]uint32             // waits of a tick or more for bytes of a, and of b
}

// A drivenState holds flags of a Driven.
type drivenState uint8

const (
	half     drivenState = 1 << iota // one direction has ended
	over                             // both directions have ended, or it was cut
	recalled                         // the loop will call it in its next turn
	due                              // the loop is making that call
	moving                           // it is being started, or is in move: an end waits until that is over
	toEnd                            // its driver still has to end it
	offered                          // a Carrier may have it: its driver has an offer
	carried                          // a Carrier has it, and the sockets
)

func (s *Driven) is(f drivenState) bool { return s.state&f != 0 }

// An Owner is notified of the end of its session.
type Owner interface {
	// Ended is called on the loop's goroutine, once, when both sockets are closed and
	// everything is accounted for: with the results of [Session.Run], except for the addresses
	// in the error, which the owner knows. s may be started again.
	Ended(s *Driven, res Result, err error)
}

// An Observer is an Owner that is also notified of stages of its session, on the loop's goroutine.
type Observer interface {
	Owner
	// FirstByte is called when the first byte of a side was moved, unless the owner has moved
	// bytes of this side before the session.
	FirstByte(s *Driven, source Side)
	// HalfClosed is called when a side's end of file was passed on, and the other side goes on.
	HalfClosed(s *Driven, source Side)
}

// sideOf returns the side that a direction reads.
func (s *Driven) sideOf(d *direction) Side {
	if d == &s.ab {
		return SideA
	}
	return SideB
}

// Start joins two sockets, which s owns from now on, until both directions have ended or the session is cut. It
// moves bytes at once, so owner may be notified of the end before Start returns; but if Start is called within
// a callback of a session or mirror, bytes move only in the loop's next turn. If s has a session that has not
// ended, that session goes on, a and b are reset, and owner is notified of [ReasonError] before Start returns.
func (d *Driver) Start(s *Driven, a, b Socket, owner Owner) { d.StartLimited(s, a, b, owner, nil) }

// StartLimited is Start with limits for this session; a is the client and b the
// endpoint. nil means the limits of the relay's [Config].
func (d *Driver) StartLimited(s *Driven, a, b Socket, owner Owner, limits *Limits) {
	if s.drv != nil && !s.is(over) {
		d.refuse(s, a, b, owner)
		return
	}
	if limits == nil {
		limits = &d.relay.limits
	}
	now, spare, before := max(1, d.loop.Now()), s.throttle(), [2]socketState{s.a.state & noted, s.b.state & noted}
	*s = Driven{drv: d, owner: owner, limits: limits, active: now, started: now, state: moving, a: newSocket(a), b: newSocket(b)}
	s.a.state |= before[0]
	s.b.state |= before[1]
	s.bind(&a, &b)
	s.ab.setTransform(&a)
	s.ba.setTransform(&b)
	s.ab.setMirror(&a, &s.ba)
	s.ba.setMirror(&b, &s.ab)
	if limits.paces() {
		d.pace(s, spare)
	}
	d.sessions++
	d.loop.Hand(a.ID, s)
	d.loop.Hand(b.ID, s)
	s.a.note(a.Events)
	s.b.note(b.Events)
	s.ab.began(a.Moved, &s.b)
	s.ba.began(b.Moved, &s.a)
	s.setGate(&s.ab, &s.ba, &a)
	s.setGate(&s.ba, &s.ab, &b)
	s.a.set(said, a.Moved > 0)
	s.b.set(said|saidLast, b.Moved > 0)
	if left, what := s.nextTimeout(); what != ReasonNone {
		d.loop.Arm(&s.timer, s, left)
	}
	s.state &^= moving
	for _, way := range [2]*direction{&s.ab, &s.ba} {
		if f := way.failure(); f != nil { // a Gate where none may be
			s.end(Reason(way.reason.Load()), s.opErrorOf(way, *f))
			return
		}
	}
	if d.stepping {
		s.recall()
		return
	}
	s.move()
}

// errDriven is the cause of a refused start.
var errDriven = errors.New("penstock: relay: start: the Driven has a session that has not ended")

// refuse ends the start of a session with a Driven that still has another session. A socket of the other session
// stays open.
func (d *Driver) refuse(s *Driven, a, b Socket, owner Owner) {
	for _, p := range [2]*Socket{&a, &b} {
		if p.Gate != nil {
			p.Gate.Close()
		}
	}
	for _, p := range [2]loopSocket{newSocket(a), newSocket(b)} {
		if p.fd == s.a.fd || p.fd == s.b.fd {
			continue
		}
		d.loop.Drop(p.id)
		p.abort(true)
		p.close()
	}
	owner.Ended(s, Result{Reason: ReasonError}, errDriven)
}

// began counts bytes that the owner has moved to a socket.
func (d *direction) began(n int, to *loopSocket) {
	if n > 0 {
		d.consumed(n)
		d.copied.Add(int64(n))
		to.state |= wrote
	}
}

// socketOf returns the socket that a direction reads.
func (s *Driven) socketOf(d *direction) *loopSocket {
	if d == &s.ab {
		return &s.a
	}
	return &s.b
}

// Ready implements [loop.Handler]. Events before [Driver.Start] are kept for it.
func (s *Driven) Ready(which uint8, events loop.Events) {
	if s.is(offered) && !s.regain() {
		return
	}
	if events != 0 {
		p := &s.a
		if which == 1 {
			p = &s.b
		}
		p.note(events)
		if s.drv == nil || s.a.closed() && s.b.closed() {
			return // it has not been started, or not again
		}
		s.flushLayers()
	} else {
		s.state = s.state&^recalled | due
	}
	s.advance()
	s.state &^= due
	if s.is(offered) {
		s.lend()
	}
}

// advance moves, and lets more bytes gather where that pays.
func (s *Driven) advance() {
	before := s.spliced()
	s.move()
	if s.spliced()-before >= bulkMove {
		s.drv.gather(s)
	}
}

// spliced returns how many bytes were spliced, both ways.
func (s *Driven) spliced() int64 { return s.ab.spliced.Load() + s.ba.spliced.Load() }

// checkPeerFailure ends the session if a socket has failed and no direction would notice, because the direction
// that reads it is blocked by its destination, or has ended. It reports whether it did. It is called after each
// move: the bytes that a direction has just read may have blocked it.
func (s *Driven) checkPeerFailure(p *loopSocket) bool {
	if !p.is(gone) {
		return false
	}
	reads, writes := &s.ab, &s.ba
	if p == &s.b {
		reads, writes = writes, reads
	}
	if reads.wantsRead() {
		return false
	}
	err := p.socketError()
	if err == nil {
		return false
	}
	if !reads.is(ended) {
		reads.fail("read", sideSource, err)
	} else {
		writes.fail("write", sideSink, err)
	}
	s.settle(reasonOf(err), opErrorOn(p, "read", err))
	return true
}

// move moves bytes, both ways, and then carries out the ends that callbacks have asked for. When it
// returns, s may have ended, and may even be in use for another session.
func (s *Driven) move() {
	drv := s.drv
	s.state |= moving
	if !s.moveBoth() {
		s.state &^= moving
	}
	if len(drv.ends) > 0 {
		drv.seeToEnds()
	}
}

// moveBoth moves bytes, both ways, and reports whether the session has ended.
func (s *Driven) moveBoth() (ended bool) {
	if s.outlived() {
		return s.linger()
	}
	again := false
	for _, d := range [2]*direction{&s.ab, &s.ba} {
		if s.is(toEnd) {
			return false
		}
		if !s.canMove(d) {
			continue
		}
		moves, open := d.moves, s.open()
		w := s.drv.step(d)
		if d.moves != moves {
			s.moved(d, moves == 0, open)
		}
		switch {
		case w == waitDone && s.stopped(d, open):
			return true
		case w == waitTokens:
			now := s.drv.loop.Now()
			s.pass(s.ended(d, open, now), now)
			s.drv.await(d)
		}
		again = again || w == waitTurn
	}
	if s.is(toEnd) {
		return false
	}
	if s.checkPeerFailure(&s.a) || s.checkPeerFailure(&s.b) {
		return true
	}
	if again {
		s.recall()
	}
	return false
}

// recall calls the session again in the loop's next turn.
func (s *Driven) recall() {
	if !s.is(recalled) {
		s.state |= recalled
		s.drv.loop.Again(s.a.id)
	}
}

// canMove reports whether a step could achieve anything.
func (s *Driven) canMove(d *direction) bool {
	from, to := &s.a, &s.b
	if d == &s.ba {
		from, to = to, from
	}
	switch {
	case d.is(ended), d.pace == resting:
		return false
	case d.held != nil:
		return to.is(writable)
	case d.mode == rewriting && d.awaitsWork():
		return false
	case from.state&(readable|drained) != 0:
		return true
	}
	return to.is(writable) && d.waitsForSink()
}

// stopped handles the end of a direction, and reports whether the session has ended. open is the wait that has
// ended.
func (s *Driven) stopped(d *direction, open waiting) bool {
	if d.failure() != nil || s.is(half) || s.drv.relay.cfg.CloseOnEOF {
		now := s.drv.loop.Now()
		if open == forNothing {
			open = s.ended(d, open, now)
		}
		s.pass(open, now)
	}
	if f := d.failure(); f != nil {
		s.settle(Reason(d.reason.Load()), s.opErrorOf(d, *f))
		return true
	}
	if s.is(half) {
		s.settle(ReasonEOF, nil)
		return true
	}
	s.state |= half
	s.socketOf(d).set(lastWay, true)
	if s.drv.relay.cfg.CloseOnEOF {
		s.settle(ReasonEOF, nil)
		return true
	}
	if s.limits.HalfCloseTimeout > 0 {
		now := s.drv.loop.Now()
		s.pass(s.open(), now)
	}
	if o, ok := s.owner.(Observer); ok {
		o.HalfClosed(s, s.sideOf(d))
	}
	return s.timeout()
}

// settle ends the session: it delivers the bytes that a side sent before its reset, counts
// lost bytes, resets the sides that have to be, closes both, and notifies the owner.
func (s *Driven) settle(reason Reason, cause error) {
	if s.is(offered) {
		if !s.regain() {
			s.resetCarried(reason, cause)
			return
		}
		s.forgetOffer()
	}
	drv := s.drv
	if l := drv.lingering[s]; l != nil {
		delete(drv.lingering, s)
		if l.last != nil {
			s.close(*l.last)
			return
		}
		reason, cause = l.reason, l.cause
	} else if reason == ReasonReset || reason == ReasonError {
		if s.lingers(reason, cause) {
			return
		}
	}
	s.pass(s.open(), drv.loop.Now())
	legs := s.legsAtEnd()
	s.isOver()
	if t := s.throttle(); t != nil {
		drv.loop.Disarm(&t.pacers[0].timer)
		drv.loop.Disarm(&t.pacers[1].timer)
	}
	if s.ab.atEOF() && s.ba.atEOF() {
		reason, cause = ReasonEOF, nil
	}
	s.reason = reason
	early := reason == ReasonEOF && !(s.ab.atEOF() && s.ba.atEOF())
	gently := reason == ReasonIdle && !s.is(half) && !s.unanswered() && s.losesNothing()
	if reason != ReasonEOF || early {
		s.a.untold()
		s.b.untold()
	}
	s.ab.stopRewrite()
	s.ba.stopRewrite()
	resetB := drv.finish(&s.ab, &s.ba, reason)
	resetA := drv.finish(&s.ba, &s.ab, reason)
	if truncated(&s.ab, &s.ba) {
		s.reason, cause = ReasonTruncated, ErrTruncated
	}
	for _, d := range [2]*direction{&s.ab, &s.ba} {
		if m := d.mirror(); m != nil {
			m.sessionEnded(d.atEOF())
		}
	}
	s.closeGates()
	e := lastStep{resetA && !gently, resetB && !gently, cause, legs}
	if early && s.lingersLast(e) {
		return
	}
	s.close(e)
}

// isOver notes that only the session's close is left.
func (s *Driven) isOver() {
	if s.is(toEnd) {
		s.drv.forgetEnd(s)
	}
	s.state = s.state&^(moving|toEnd) | over
	s.drv.loop.Disarm(&s.timer)
}

// close closes both sides, and notifies the owner.
func (s *Driven) close(e lastStep) {
	drv := s.drv
	s.isOver()
	x, y := s.layers()
	s.closeSide(&s.ba, &s.ab, &s.a, x, e.resetA)
	s.closeSide(&s.ab, &s.ba, &s.b, y, e.resetB)
	if s.reason == ReasonEOF && truncated(&s.ab, &s.ba) {
		s.reason, e.cause = ReasonTruncated, ErrTruncated
	}
	s.active = drv.loop.Now()
	drv.sessions--
	res := s.Result()
	res.Legs = e.legs
	s.tell(res, e.cause)
	if s.is(over) { // it was not started again: give up the parts that it was bound to
		s.limits = &drv.relay.limits
		s.ab.link, s.ba.link = (*aToB)(s), (*bToA)(s)
		s.ab.forget()
		s.ba.forget()
	}
	if len(drv.ends) > 0 {
		drv.seeToEnds()
	}
}

// tell notifies the owner of the session's end. Events that come from here on are those of the next session's sockets, see Ready.
func (s *Driven) tell(res Result, cause error) {
	s.a.state &^= noted
	s.b.state &^= noted
	s.owner.Ended(s, res, cause)
}

// closeSide closes the side to which a direction writes and from which the direction back reads, and its layer if it
// has one, unless it is closed already.
func (s *Driven) closeSide(to, back *direction, p *loopSocket, y *layered, reset bool) {
	if p.closed() {
		return
	}
	if reset || y != nil && !y.end() {
		to.countUntaken(p.abort(to.certain(back)))
	} else if s.drv.relay.cfg.CloseOnEOF && culprit(&s.ab, &s.ba) == SideNone {
		to.cutOff(p.cutOff())
	}
	s.drv.loop.Drop(p.id)
	p.close()
}

// finish is the function finish for a driver's direction, with work as its lease.
func (d *Driver) finish(dir, other *direction, reason Reason) (resetSink bool) {
	if dir.held == nil {
		dir.held = &d.work
	}
	own := dir.held
	d.stepping = true
	e := endingOf(dir, other, reason)
	e.flushAndAbandon(true)
	resetSink = e.over()
	d.stepping = false
	if own != &d.work {
		*own = inFlight{}
		d.spare = append(d.spare, own)
	}
	dir.held = nil
	return resetSink
}

// Limits returns the session's limits. Once its owner was notified of the end, they are the limits of the relay's
// [Config]. Before the first Start they are nil.
func (s *Driven) Limits() *Limits { return s.limits }

// Result returns the counters of the session so far; after its end, the final ones.
func (s *Driven) Result() Result {
	res := Result{Reason: s.reason, AToB: s.ab.flow(), BToA: s.ba.flow(), Waits: s.waits()}
	if s.is(carried) {
		o := s.offer()
		res.Reason = o.reason
		res.AToB.Carried, res.BToA.Carried, _ = o.carrier.Progress()
	}
	switch {
	case s.a.is(lastWay):
		res.First = SideA
	case s.b.is(lastWay):
		res.First = SideB
	}
	if s.is(over) && (s.reason == ReasonReset || s.reason == ReasonError) {
		res.Culprit = culprit(&s.ab, &s.ba)
	}
	switch {
	case s.drv == nil:
	case s.is(over):
		res.Duration = time.Duration(s.active - s.started)
	default:
		res.Duration = time.Duration(s.drv.loop.Now() - s.started)
	}
	return res
}

// opErrorOf returns a failure of a direction as an error of package net.
func (s *Driven) opErrorOf(d *direction, f failure) error {
	p := &s.b
	if (d == &s.ba) == (f.side == sideSink) {
		p = &s.a
	}
	return opErrorOn(p, f.op, f.err)
}

// opErrorOn returns the error of package net for a failure at a socket, except for the
// addresses.
func opErrorOn(p *loopSocket, op string, err error) error {
	network := "unix"
	if p.is(tcp) {
		network = "tcp"
	}
	return newOpError(op, network, err)
}

// The two links of a session on a loop are the session itself, seen from either
// side: they take no memory.
type (
	aToB Driven // from a to b
	bToA Driven // from b to a
)

var errNoTransfer = errors.New("no transfer between sockets")

func (s *aToB) environment() *environment                { return &s.drv.env }
func (s *aToB) recv(p []byte) (int, error)               { return s.ab.recvMarked(&s.a, p) }
func (s *aToB) fill(c splicePipe, max int) (int, error)  { return s.a.fill(c, max) }
func (s *aToB) peek(err error) (int, error)              { return s.a.peek(err) }
func (s *aToB) send(p []byte) (int, error)               { return s.ab.sendMarked(&s.b, p) }
func (s *aToB) drain(c splicePipe, max int) (int, error) { return s.b.drain(c, max) }
func (s *aToB) closeWrite() error                        { return s.b.closeWrite() }
func (s *aToB) raiseMark(n int) bool                     { return s.a.raiseMark(n) }
func (s *aToB) lowerMark()                               { s.a.lowerMark() }
func (s *aToB) aborted() bool                            { return s.a.aborted() }
func (s *aToB) queued() int                              { return s.a.queued() }
func (s *aToB) transfer(int) (int, string, error)        { return 0, "", errNoTransfer }

func (s *bToA) environment() *environment                { return &s.drv.env }
func (s *bToA) recv(p []byte) (int, error)               { return s.ba.recvMarked(&s.b, p) }
func (s *bToA) fill(c splicePipe, max int) (int, error)  { return s.b.fill(c, max) }
func (s *bToA) peek(err error) (int, error)              { return s.b.peek(err) }
func (s *bToA) send(p []byte) (int, error)               { return s.ba.sendMarked(&s.a, p) }
func (s *bToA) drain(c splicePipe, max int) (int, error) { return s.a.drain(c, max) }
func (s *bToA) closeWrite() error                        { return s.a.closeWrite() }
func (s *bToA) raiseMark(n int) bool                     { return s.b.raiseMark(n) }
func (s *bToA) lowerMark()                               { s.b.lowerMark() }
func (s *bToA) aborted() bool                            { return s.b.aborted() }
func (s *bToA) queued() int                              { return s.b.queued() }
func (s *bToA) transfer(int) (int, string, error)        { return 0, "", errNoTransfer }

// sessionOf returns the session of a direction.
func sessionOf(d *direction) *Driven {
	switch l := d.link.(type) {
	case *aToB:
		return (*Driven)(l)
	case *bToA:
		return (*Driven)(l)
	}
	return d.link.(*layeredLink).of
}

// A Socket is one end of a session on a loop: a connected, non-blocking stream socket. It is registered with
// the loop with the argument which, 0 for side a and 1 for side b.
type Socket struct {
	FD     int
	ID     loop.ID
	Events loop.Events // the events so far

	TCP     bool // it is a TCP socket, not a unix one
	NoDelay bool // TCP_NODELAY is set; otherwise the session sets it before the second write

	// Moved is the number of bytes of this socket that the owner has already read and
	// written to the other end: they count as copied. Then Events contains Readable only
	// if there may be more bytes.
	Moved int

	// Layer is the protocol over the socket; nil: the bytes of the socket are the bytes
	// of the session.
	Layer driver.Layer
	// Ahead is bytes that were already read from the socket; they are sent first. At most 64 KiB, the
	// size of a read. They are borrowed until the end of the session.
	Ahead []byte

	// Gate holds back the bytes that come from the socket, including Ahead, except the first Free
	// bytes; Moved does not count here. nil: nothing holds them back. Until the gate is open, urgent
	// data become bytes of the stream. Only one of the two sockets may have one, and not together
	// with a Layer.
	Gate driver.Gate
	Free int

	// Mirror gets the bytes that come from the socket, or is nil. The owner has already written the bytes of
	// Moved to it. A mirror that was not started gets nothing, and ends with [driver.MirrorError].
	Mirror *Mirror

	// Transform changes the bytes that come from the socket, including Ahead, or is nil. With a Transform Moved
	// must be 0, because the Transform would miss these bytes. It is asked about bytes that it holds back after
	// Hold at the earliest and twice Hold at the latest, even if no further bytes have come. If Hold is negative,
	// they wait for further bytes or the end of the session.
	Transform driver.Transform
	Hold      time.Duration
}

func newSocket(s Socket) loopSocket {
	p := loopSocket{id: s.ID, fd: int32(s.FD), state: writable} // until a write says otherwise
	p.set(tcp, s.TCP)
	p.set(delays, s.TCP && !s.NoDelay)
	return p
}

// Expired implements [loop.Expirer]: it cuts the session if a timeout has passed, and
// otherwise arms the timer for the remaining time.
func (s *Driven) Expired(*loop.Timer) {
	if s.outlived() {
		s.move()
		return
	}
	if s.is(offered) && !s.regain() {
		s.refresh()
	}
	if !s.timeout() {
		s.lend()
	}
}

// timeout does the work of Expired, and reports whether it has ended the session.
func (s *Driven) timeout() bool {
	if told := s.limits.Answered; told != nil && s.ba.spoken() && s.drv.loop.Now()-s.started >= int64(s.limits.FirstByte) {
		told()
		if s.is(over) { // Answered has cut it
			return true
		}
	}
	switch left, what := s.nextTimeout(); {
	case what == ReasonNone:
		s.drv.loop.Disarm(&s.timer)
	case left > 0:
		s.drv.loop.Arm(&s.timer, s, left)
	case what == ReasonIdle && s.is(carried) && !s.is(half) && s.offer().carrier.Return():
		s.drv.loop.Disarm(&s.timer) // the session ends when it is back, see Driven.Return
	default:
		s.settle(what, timeoutError{Reason: what})
		return true
	}
	return false
}

// nextTimeout returns the time until the next timeout and its reason, or ReasonNone if there is none.
func (s *Driven) nextTimeout() (left time.Duration, what Reason) {
	now := s.drv.loop.Now()
	if s.ab.pace == resting || s.ba.pace == resting {
		s.pass(forBandwidth, now)
	}
	a := age{
		now: now, started: s.started, active: s.idleSince(), seed: s.seed(),
		half: s.is(half), answered: s.ba.answered() || s.ba.pace == resting,
	}
	left, what = s.limits.next(a)
	if left > 0 || !what.quiet() || s.is(carried) {
		return left, what
	}
	if x, y := s.a.acks(), s.b.acks(); x.left > 0 || y.left > 0 {
		s.ab.rareState().acked.note(x, y, now)
	}
	a.active = s.idleSince()
	return s.limits.next(a)
}

// idleSince returns the clock time of the last byte moved, or of the last known acknowledgement if that came
// later.
func (s *Driven) idleSince() int64 {
	if o := s.ab.rare.Load(); o != nil {
		return max(s.active, o.acked.since)
	}
	return s.active
}

// seed returns the session's own random number, which decides its lifetime. It comes from a's first socket: a
// session that has come back keeps it.
func (s *Driven) seed() int64 {
	if o := s.ab.rare.Load(); o != nil && o.seed != 0 {
		return o.seed
	}
	return s.started ^ int64(s.a.id)<<20
}

// Idle returns the time since the last byte moved, or since one direction ended if that was later. An
// acknowledgement counts only if it was found after IdleTimeout without a byte. After the end of the session Idle
// has no meaning.
func (s *Driven) Idle() time.Duration {
	if s.drv == nil {
		return 0
	}
	if s.is(carried) {
		s.refresh()
	}
	return time.Duration(s.drv.loop.Now() - s.idleSince())
}

// Descriptors returns the session's sockets, for calls such as getpeername(2). The session still owns them.
// They have no meaning before Start and after the end, and are -1 while a [driver.Carrier] has the session.
func (s *Driven) Descriptors() (a, b int) { return int(s.a.fd), int(s.b.fd) }

// Idle is the time since the last byte moved. It is known if the session has an idle or half-close timeout, a
// wrapper, or [Config.LegsAfter]. Idle may be called at any time by any goroutine; before Run and after its end it
// has no meaning.
func (s *Session) Idle() (d time.Duration, known bool) {
	if s.started.Load() == 0 || !s.hasQuietTimeout() && s.waits == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.r.clock.now() - max(s.active.Load(), s.acked.since)), true
}

// A pendingEnd is the end of a session that a callback has asked for while a session of the driver was being
// moved. It has to wait: the driver's work and warm hold bytes of the moving direction, and the moves after the
// callback need the session as it is.
type pendingEnd struct {
	of     *Driven
	reason Reason
	cause  error
}

// Cut ends the session for a cause, as [Session.Cut] does, and notifies the owner before it returns. Within a
// callback while bytes are being moved, such as a callback of a [driver.Transform] or a [driver.MirrorObserver],
// Cut ends the session soon after the callback has returned, before the loop waits. The first cause counts,
// unless the session ends by itself at that moment. Cut does nothing before Start and after the end.
func (s *Driven) Cut(cause error) {
	if s.drv != nil && !s.is(over) {
		s.end(ReasonCanceled, cmp.Or(cause, context.Canceled))
	}
}

// end ends the session, at once if possible, otherwise as soon as the moves are over. The first end counts.
func (s *Driven) end(reason Reason, cause error) {
	switch {
	case s.is(toEnd):
	case s.is(moving) || s.drv.stepping:
		s.state |= toEnd
		s.drv.ends = append(s.drv.ends, pendingEnd{s, reason, cause})
	default:
		s.settle(reason, cause)
	}
}

// seeToEnds carries out pending ends, except of sessions that are still being moved. It is called after each
// move, so none is left when the loop waits.
func (d *Driver) seeToEnds() {
	for !d.stepping {
		i := slices.IndexFunc(d.ends, func(e pendingEnd) bool { return !e.of.is(moving) })
		if i < 0 {
			return
		}
		e := d.ends[i]
		e.of.settle(e.reason, e.cause) // settle takes it from the list
	}
}

// forgetEnd removes a session's pending end.
func (d *Driver) forgetEnd(s *Driven) {
	d.ends = slices.DeleteFunc(d.ends, func(e pendingEnd) bool { return e.of == s })
}
