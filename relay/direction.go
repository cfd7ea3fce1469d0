package relay

import (
	"context"
	"errors"
	"math/bits"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/relay/driver"
)

// A direction moves bytes from one source to one sink. It is a state machine: step moves the
// bytes that can be moved at once and returns the event to wait for; a driver waits and steps
// again. It knows neither goroutines nor pollers nor descriptors, so that every driver, and
// the scripted sockets of the tests, run the same code.
//
// Its states, by what it holds:
//
//	nothing held, end not seen   next: read (fillBuffer, fillPipe or transfer)
//	residue held                 next: deliver; the source is not read meanwhile
//	nothing held, end seen       next: pass the end on
//	ended                        nothing more, ever
//
// A read is attempted only with nothing held. So the pipe is empty before every fill: otherwise EAGAIN could also
// mean that it is out of slots. And one direction holds one lease at most.
//
// Only the driver's goroutine calls its methods; the counters may be read by any.
//
// An idle session is little more than its two directions, so they are small: leased resources
// are in an inFlight, and state that only few directions ever need is made when they do (rareState).
type direction struct {
	link link
	held *inFlight // never nil within a move

	rare    atomic.Pointer[rareState] // nil until it is needed; written by the driver
	spliced atomic.Int64
	copied  atomic.Int64
	reason  atomic.Uint32 // a Reason: why it ended

	moves  uint32 // reads and writes that moved bytes; they may wrap
	streak uint16 // consecutive reads that speak for another mode
	state  directionState

	mode      mode     // how the next read goes
	pipeSize  pipeSize // to ask for at the next lease
	growScore uint8    // how much speaks for a larger pipe, up to growAt
	pace      pacing
}

// A pipeSize is the binary logarithm of a pipe's size in bytes, which is a power of two (pipe(7)).
type pipeSize uint8

const defaultPipe pipeSize = 16 // pipe.DefaultSize

// pipeOf returns the largest size of no more than n bytes.
func pipeOf(n int) pipeSize { return pipeSize(max(bits.Len(uint(n)), 1) - 1) }

func (p pipeSize) bytes() int { return 1 << p }

// A directionState holds flags of a direction.
type directionState uint16

const (
	filledOnce  directionState = 1 << iota // the pipe has been filled since the source was last empty
	filledAgain                            // filled again since then
	largeLast                              // the last fill was large, see grow
	limited                                // rareState.remain bounds the reads
	stalled                                // splice moved nothing although bytes were queued
	noPipe                                 // the last lease of a pipe failed
	noDrain                                // the sink refused to splice: empty the pipe by reading it
	blocked                                // the sink took nothing at the last write
	pinned                                 // the mode does not adapt
	oneWay                                 // the end of file is not passed on to the sink
	waits                                  // a Write of the sink may wait
	mirrored                               // rareState.mirror gets its bytes
	observed                               // the observer of a mirror sees its bytes
	eofSeen
	ended       // nothing more is to be moved
	holdsUrgent // the buffer holds one byte, which was sent as urgent data
)

func (d *direction) is(s directionState) bool { return d.state&s != 0 }

func (d *direction) set(s directionState, on bool) {
	if on {
		d.state |= s
	} else {
		d.state &^= s
	}
}

// env returns the environment of d's driver.
func (d *direction) env() *environment { return d.link.environment() }

// An environment is what a driver's directions share.
type environment struct {
	leaser
	tune   *Config
	counts *counts
	clock  clock                  // of sessions on goroutines
	ctx    context.Context        // of a copy
	first  atomic.Pointer[pair]   // of a session on goroutines: the link on which the first end of file was passed on
	active func(*direction, wait) // notes that a direction is not idle, and what it waited for until now; may be nil
	// engineChanged is called after a change of a direction's mode; may be nil.
	engineChanged func(*direction)
}

// An inFlight holds the resources of a direction while bytes are in flight. The residue is the bytes read
// ahead, then buf.b[off:end], then the contents of the pipe.
type inFlight struct {
	buf      *buffer
	off, end int
	pipe     splicePipe
}

// A rareState is state that few directions need.
type rareState struct {
	ahead   []byte        // read by a wrapper before the relay; borrowed
	remain  int64         // bytes still allowed to be read
	mark    *lowWaterMark // the source's low-water mark; nil before proven bulk
	failure *failure      // nil if it did not fail
	pacer   *pacer        // nil unless it is paced
	mirror  *Mirror       // nil unless mirrored
	answers *observing    // nil unless observed
	rewrite *rewrite      // nil unless rewritten
	gate    driver.Gate   // nil unless it holds back the direction's bytes; then limited is set
	hears   *direction    // the direction with the gate that hears these bytes, or nil; then limited is set
	asked   bool          // Pass of gate was called
	carried int64         // bytes that Carriers have delivered; set by a loop when a Carrier no longer has the session
	seed    int64         // in ab of a loop's session that has come back; 0: its sockets decide it
	acked   progress      // in ab of a loop's session
	lost    atomic.Int64
	fell    [numFallbacks]atomic.Uint32
}

// rareState returns d's rareState, and makes one if there is none.
func (d *direction) rareState() *rareState {
	o := d.rare.Load()
	if o == nil {
		o = new(rareState)
		d.rare.Store(o)
	}
	return o
}

// A failure is the error that ended a direction, and the side that it came from.
type failure struct {
	op   string // "read", "write", "splice", opHalfClose, ...
	side side
	err  error
}

type side uint8

const (
	sideNone side = iota
	sideSource
	sideSink
)

// A mode is how a direction's next read goes.
type mode uint8

const (
	copying      mode = iota // recv into a buffer, send
	splicing                 // splice into a leased pipe, splice out
	transferring             // one call from file to sink, nothing in between
	rewriting                // recv into a buffer, by a Transform, send
)

// A wait is the result of a step.
type wait uint8

const (
	waitTurn   wait = iota // nothing: the turn's budget is spent, step again
	waitSource             // until the source is readable; no lease is held
	waitSink               // until the sink is writable; the residue is held
	waitTokens             // until its rate lets it go on; no lease is held, unless its source waits in Read
	waitDone               // the direction has ended
)

// movesPerTurn bounds the reads and writes of one step, so that a busy direction
// lets its driver look at deadlines and at other directions.
const movesPerTurn = 32

// errInvalidRead: a wrapper breaks the contract of [io.Reader].
var errInvalidRead = errors.New("read returned an impossible number of bytes")

// step moves the bytes that can be moved without waiting, and returns what to wait for.
func (d *direction) step() wait {
	for range movesPerTurn {
		if w := d.move(); w != waitTurn {
			return w
		}
	}
	return waitTurn
}

func (d *direction) move() wait {
	switch {
	case d.is(ended):
		return waitDone
	case d.is(limited) && d.atGate():
		return d.ask()
	case d.readAhead() > 0:
		return d.deliverAhead()
	case d.held.end > d.held.off:
		return d.deliverBuffer()
	case d.held.pipe != nil && d.held.pipe.Len() > 0:
		return d.deliverPipe()
	case d.is(eofSeen) || d.spent():
		return d.passEnd()
	case d.pace != unpaced && !d.granted():
		return waitTokens
	}
	switch d.mode {
	case splicing:
		return d.fillPipe()
	case transferring:
		return d.transfer()
	case rewriting:
		return d.fillRewritten()
	}
	return d.fillBuffer()
}

// wantsRead reports whether the next move reads.
func (d *direction) wantsRead() bool {
	return !d.is(ended|eofSeen) && !d.spent() && !d.shut() && d.residue() == 0
}

// limit allows n more bytes to be read.
func (d *direction) limit(n int64) {
	d.set(limited, true)
	d.rareState().remain = n
}

// spent reports whether all that may be read has been read.
func (d *direction) spent() bool {
	return d.is(limited) && d.rareState().remain == 0 && d.rareState().gate == nil
}

// clip bounds n by the bytes that the limit, or the rate, still allows to be read.
func (d *direction) clip(n int) int {
	if d.is(limited) || d.pace != unpaced {
		return d.clipped(n)
	}
	return n
}

func (d *direction) clipped(n int) int {
	if d.is(limited) {
		n = int(min(int64(n), d.rareState().remain))
	}
	if d.pace != unpaced {
		n = d.pacer().clip(n)
	}
	return n
}

// consumed notes that n bytes left the source. Activity is noted here, before the bytes can reach
// the sink, and after a write only if that write had to wait: one look at the clock for a
// message, not two.
func (d *direction) consumed(n int) {
	d.moves++
	if active := d.env().active; active != nil {
		active(d, waitSource)
	}
	if d.is(limited) {
		d.rareState().remain -= int64(n)
	}
	if d.pace != unpaced {
		d.pay(n)
	}
}

// residue is the number of bytes held.
func (d *direction) residue() int {
	return d.readAhead() + d.held.residue()
}

func (l *inFlight) residue() int {
	if l == nil {
		return 0
	}
	n := l.end - l.off
	if l.pipe != nil {
		n += l.pipe.Len()
	}
	return n
}

// sourceEnd handles a read of 0 bytes that was confirmed to be the end.
func (d *direction) sourceEnd() wait {
	if d.link.aborted() {
		return d.fail("read", sideSource, syscall.ECONNRESET)
	}
	d.heard(nil)
	d.set(eofSeen, true)
	return waitTurn
}

// passEnd passes the end of file on, once everything was delivered.
func (d *direction) passEnd() wait {
	if d.mode == rewriting {
		if w := d.endRewrite(); w != waitDone || d.is(ended) { // bytes are left, or the rewrite has failed
			return w
		}
	}
	d.release()
	if !d.is(oneWay) {
		switch err := d.link.closeWrite(); {
		case errors.Is(err, errNoHalfClose):
			d.fallback(FallbackHalfClose)
		case wouldBlock(err): // the socket has not taken a layer's last bytes
			return waitSink
		case err != nil:
			return d.failHalfClose(err)
		}
	}
	if d.is(eofSeen) {
		d.finished(ReasonEOF)
	} else {
		d.finished(ReasonLimit)
	}
	return waitDone
}

// opHalfClose is the operation in an error of closeWrite. The name of its system call, shutdown, could be taken for
// [Relay.Shutdown].
const opHalfClose = "half-close"

// failHalfClose handles a failed closeWrite. A reset closes the socket, and shutdown(2) then returns ENOTCONN
// (net/ipv4/af_inet.c, inet_shutdown).
func (d *direction) failHalfClose(err error) wait {
	if errors.Is(err, syscall.ENOTCONN) {
		err = syscall.ECONNRESET
	}
	return d.fail(opHalfClose, sideSink, err)
}

// sourceError handles a failed read. Nothing is held but empty leases.
func (d *direction) sourceError(op string, err error) wait {
	switch err {
	case syscall.EAGAIN:
		d.sourceEmpty()
		d.refund()
		d.release()
		d.raiseMark()
		return waitSource
	case syscall.EINTR:
		return waitTurn
	}
	return d.fail(op, sideSource, err)
}

// sinkError handles a failed write; the residue stays held.
func (d *direction) sinkError(op string, err error) wait {
	switch err {
	case syscall.EAGAIN:
		d.refund()
		d.set(blocked, true)
		return waitSink
	case syscall.EINTR:
		return waitTurn
	}
	return d.fail(op, sideSink, err)
}

// fail ends the direction. Its residue stays held until abandon.
func (d *direction) fail(op string, s side, err error) wait {
	if !d.is(ended) {
		d.rareState().failure = &failure{op: op, side: s, err: err}
		d.finished(reasonOf(err))
	}
	return waitDone
}

// failedAt reports whether the direction failed at that side.
func (d *direction) failedAt(s side) bool {
	f := d.failure()
	return f != nil && f.side == s
}

// failure is how the direction failed, nil if it did not.
func (d *direction) failure() *failure {
	if o := d.rare.Load(); o != nil {
		return o.failure
	}
	return nil
}

// setAhead notes the bytes that a wrapper had read before the relay.
func (d *direction) setAhead(b []byte) {
	if len(b) > 0 {
		d.rareState().ahead = b
	}
}

// readAhead returns how many of the bytes of setAhead are left.
func (d *direction) readAhead() int {
	if o := d.rare.Load(); o != nil {
		return len(o.ahead)
	}
	return 0
}

func (d *direction) finished(r Reason) {
	d.refund()
	d.set(ended, true)
	d.reason.Store(uint32(r))
	if d.state&(mirrored|observed) != 0 {
		d.showEnd(r == ReasonEOF)
	}
}

// carried returns the bytes that Carriers before the present one have delivered.
func (d *direction) carried() int64 {
	if o := d.rare.Load(); o != nil {
		return o.carried
	}
	return 0
}

// atEOF reports whether the direction ended by end of file.
func (d *direction) atEOF() bool { return Reason(d.reason.Load()) == ReasonEOF }

// reasonOf separates a peer that went away from other failures.
func reasonOf(err error) Reason {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN) {
		return ReasonReset
	}
	return ReasonError
}

// refused reports whether err means that the kernel or a sandbox refuses this operation on these
// descriptors, and not that it failed.
func refused(err error) bool {
	switch err {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EPERM, syscall.EOPNOTSUPP, syscall.EXDEV, syscall.EBADF:
		return true
	}
	return false
}

// copyFromHere makes the direction copy until its end, for the reason f.
func (d *direction) copyFromHere(f Fallback) wait {
	d.fallback(f)
	d.set(pinned, true)
	d.switchTo(copying)
	return waitTurn
}

// forget drops mirror, observer and rewrite after the session's end. The counters stay.
func (d *direction) forget() {
	if o := d.rare.Load(); o != nil {
		d.mode = copying
		d.set(mirrored, false)
		d.set(observed, false)
		o.mirror, o.answers, o.rewrite = nil, nil, nil
	}
}

func (d *direction) fallback(f Fallback) { d.rareState().fell[f].Add(1) }

// hasFallen reports whether the fallback f was counted.
func (d *direction) hasFallen(f Fallback) bool {
	o := d.rare.Load()
	return o != nil && o.fell[f].Load() > 0
}

func (d *direction) countLost(n int64) {
	if n > 0 && d.mode == rewriting { // a Transform may have made more bytes of those that came
		r := d.rareState()
		n = min(n, r.rewrite.in-r.lost.Load())
	}
	if n > 0 {
		d.rareState().lost.Add(n)
	}
}

// certain reports whether bytes that the destination has not acknowledged were certainly not taken before it was reset.
// A peer that resets the connection may have taken bytes a moment before, but not if it has ended: its end
// acknowledged what it had taken. back is the other direction.
func (d *direction) certain(back *direction) bool {
	reset := func(d *direction, at side) bool { return d.failedAt(at) && Reason(d.reason.Load()) == ReasonReset }
	return back.is(eofSeen) || !reset(d, sideSink) && !reset(back, sideSource)
}

// countUntaken counts what the destination had not acknowledged when it was reset. Part of it may be the end of
// file, or bytes of others: a header before the session, or what TLS adds.
func (d *direction) countUntaken(n int64) {
	if d.atEOF() {
		n--
	}
	d.countLost(min(n, d.spliced.Load()+d.copied.Load()))
}

// flow returns the counters.
func (d *direction) flow() Flow {
	f := Flow{
		Spliced: d.spliced.Load(),
		Copied:  d.copied.Load(),
		Reason:  Reason(d.reason.Load()),
	}
	if o := d.rare.Load(); o != nil {
		f.Lost, f.Carried = o.lost.Load(), o.carried
		for i := range o.fell {
			f.Fallbacks[i] = int64(o.fell[i].Load())
		}
	}
	return f
}

// A source is where a direction reads. Its calls never wait, except recv of an end that is moved by its own
// Read. Errors are as they came: a syscall.Errno, or the error of Read.
type source interface {
	sender
	// transfer moves bytes straight into the sink and names the system call that
	// it made. Only a regular file has it.
	transfer(dst sink, max int) (n int, op string, err error)
}

// A sender is the part of a source that every link has.
type sender interface {
	// recv reads once; 0 and nil means end of file.
	recv(p []byte) (int, error)
	// fill splices once into the pipe.
	fill(c splicePipe, max int) (int, error)
	// peek is called after a fill of 0 bytes or an EAGAIN (in spliceErr). It returns a
	// positive number if bytes are queued, 0 and nil at the end of file, and EAGAIN if
	// nothing has come yet.
	peek(spliceErr error) (int, error)
	// raiseMark makes the source readable only once n bytes are queued, and reports
	// whether it can. lowerMark undoes that; it is called from other goroutines.
	raiseMark(n int) bool
	lowerMark()
	// aborted reports, after an end of file, whether it was really a reset, and a write on the same socket
	// has already received its error.
	aborted() bool
	// queued returns the bytes that wait in the receive queue.
	queued() int
}

// A sink is where a direction writes.
type sink interface {
	// send writes once and may take fewer bytes than offered.
	send(p []byte) (int, error)
	// drain splices once out of the pipe.
	drain(c splicePipe, max int) (int, error)
	// closeWrite passes on an end of file, or returns errNoHalfClose if that is impossible.
	closeWrite() error
}

// A link is the two ends of a direction.
type link interface {
	sender
	sink
	// environment returns what the driver's directions share.
	environment() *environment
	// transfer moves bytes straight from source to sink, as source.transfer does.
	transfer(max int) (n int, op string, err error)
}

// A pair is a link of two ends that know nothing of each other.
type pair struct {
	source
	sink
	env    *environment
	meters *meters // nil: none
	copied int     // size of the buffer in which bytes of a descriptor are copied to a sink that waits inside
}

func (p *pair) environment() *environment { return p.env }

// closeWrite notes the first end before the peer can answer it by an end of its own.
func (p *pair) closeWrite() error {
	p.env.first.CompareAndSwap(nil, p)
	return p.sink.closeWrite()
}

// readSize returns the size of the buffer for the next read, in bytes.
func (p *pair) readSize() int {
	if src, ok := p.source.(*opaqueSource); ok {
		return src.buffer.size
	}
	return p.copied
}

// errNoHalfClose: the sink has no CloseWrite, or none that works (errors.ErrUnsupported).
var errNoHalfClose = errors.New("no half-close")

func wouldBlock(err error) bool { return err == syscall.EAGAIN }

// A clock is where a session reads the time and sets its timer; tests inject
// their own.
type clock interface {
	// now returns nanoseconds since some fixed moment, monotonic.
	now() int64
	// afterFunc calls f on a goroutine of its own after d, until stopped.
	afterFunc(d time.Duration, f func()) timer
}

// A timer is a *time.Timer after time.AfterFunc.
type timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

// clockBase lies a century back, because the time of a bubble of testing/synctest begins with the year 2000, and no
// session expects a time before 0.
var clockBase = time.Now().Add(-100 * 365 * 24 * time.Hour)

type systemClock struct{}

func (systemClock) now() int64 { return int64(time.Since(clockBase)) }

func (systemClock) afterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }

// An ending is a direction's last moves, after its driver has stopped.
type ending struct {
	*direction
	reason                   Reason
	sinkFailed, sourceFailed bool // found by either direction
}

// endingOf begins the end of d; other is the opposite direction.
func endingOf(d, other *direction, reason Reason) ending {
	return ending{
		direction: d, reason: reason,
		sinkFailed:   d.failedAt(sideSink) || other.failedAt(sideSource),
		sourceFailed: d.failedAt(sideSource) || other.failedAt(sideSink),
	}
}

// flushAndAbandon delivers what it can, and gives up the rest. held says that the direction's ends are held.
func (e ending) flushAndAbandon(held bool) {
	switch {
	case !held || e.sinkFailed:
	case e.reason != ReasonEOF:
		e.flush(e.sourceFailed)
	case !e.is(ended): // the other direction's end has ended the session
		e.flush(true)
	}
	e.abandon(held)
}

// over records how the direction ended, and reports whether its destination must be reset: because the source's
// end of file was not passed on, or because the source failed later. A direction that was ended by the end of
// the other one (directionEnded) has passed on no end of file, but may have lost no byte.
func (e ending) over() (resetSink bool) {
	byOther := !e.is(ended) && e.reason == ReasonEOF
	switch {
	case e.is(ended):
	case byOther && e.flow().Lost > 0:
		byOther = false
		e.finished(ReasonTruncated)
	case byOther && !e.is(eofSeen): // nobody knows what was still on its way from the source
		e.finished(ReasonCanceled)
	default:
		e.finished(e.reason)
	}
	return e.sourceFailed || e.sinkFailed || !e.atEOF() && !byOther
}

// truncated reports whether the end of one direction has cost the other one bytes.
func truncated(ab, ba *direction) bool {
	return Reason(ab.reason.Load()) == ReasonTruncated || Reason(ba.reason.Load()) == ReasonTruncated
}

// finish ends a direction, and holds its ends meanwhile as a goroutine does.
func finish(d, other *direction, reason Reason) (resetSink bool) {
	e := endingOf(d, other, reason)
	hold(d, e.flushAndAbandon)
	return e.over()
}
