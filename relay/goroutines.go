package relay

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A goroutineDriver runs one direction on a goroutine, waiting with the runtime's poller.
//
// A step between two descriptors holds both. RawConn.Read or Write holds the descriptor to wait for: returning
// false from its callback waits. RawConn.Control pins the other: its number cannot be closed and reused meanwhile,
// but it takes no lock and knows no deadlines. So no two locks are ever held at once, and the source's deadline
// does not keep a residue from being delivered.
//
// RawConn.Read and Write look at a deadline as they begin and as they wait, so a busy
// direction leaves the callback each lookEvery, and looks at the deadlines of both ends
// (runNative).
//
// RawConn.Read discards the readiness that the poller has stored before it calls back
// (internal/poll, prepareRead), and the poller is edge-triggered. So false may be
// returned only after the callback itself has got EAGAIN. A step that answers
// waitSource has just read and got EAGAIN; a step that answers waitSink has just
// written and got EAGAIN.
//
// A copy ([Relay.Copy]) keeps the deadlines of both ends at every read and every write, as [io.Copy]
// does, so each of its moves holds the one end that it moves.
//
// An end that is moved by its own Read or Write may wait inside it. Nothing is held meanwhile: neither a lock
// nor the other end's number.
type goroutineDriver struct {
	dir      *direction
	src, dst *descriptor // nil for an end moved by its own Read or Write
	w        wait
	lease    inFlight // of the direction
	looked   int64    // clock time of the last look at the deadlines

	// The end for which the driver waits, and the end that is pinned meanwhile. An idle
	// session keeps its drivers, so they are small: the same two callbacks serve for
	// waiting at either end.
	waiting, pinned *descriptor
	onReady         func(fd uintptr) (done bool)
	withPinned      func(fd uintptr)
}

func newGoroutineDriver() *goroutineDriver {
	dr := new(goroutineDriver)
	dr.onReady = func(fd uintptr) bool {
		dr.waiting.fd = int(fd)
		if dr.pinned == nil {
			dr.w = dr.dir.move()
		} else if err := dr.pinned.raw.Control(dr.withPinned); err != nil {
			s := dr.sideOf(dr.pinned)
			dr.w = dr.dir.fail(opOf(s), s, rawCause(err))
		}
		if dr.waiting == dr.src {
			return dr.w != waitSource || dr.src.stopped() || dr.due()
		}
		return dr.w != waitSink || dr.due()
	}
	dr.withPinned = func(fd uintptr) {
		if dr.pinned.fd = int(fd); dr.dir.is(oneWay) {
			dr.w = dr.dir.move()
		} else {
			dr.w = dr.dir.step()
		}
	}
	return dr
}

func (dr *goroutineDriver) sideOf(d *descriptor) side {
	if d == dr.dst {
		return sideSink
	}
	return sideSource
}

// take makes dr the driver of d.
func (dr *goroutineDriver) take(d *direction) *goroutineDriver {
	dr.dir, dr.w = d, waitTurn
	d.held = &dr.lease
	ends := d.link.(*pair)
	dr.src, _ = ends.source.(*descriptor)
	dr.dst, _ = ends.sink.(*descriptor)
	return dr
}

// run drives the direction to its end. The direction fails, possibly with a residue, when a descriptor is
// closed or its deadline passes.
func (dr *goroutineDriver) run() {
	for dr.w != waitDone {
		switch {
		case dr.dir.is(oneWay) && dr.canceled():
		case dr.w == waitTokens:
			dr.dir.await()
			dr.w = waitTurn
		case dr.src != nil && dr.dst != nil && dr.dir.is(oneWay):
			dr.runCopy()
		case dr.src != nil && dr.dst != nil:
			dr.runNative()
		case dr.src != nil && dr.dir.wantsRead():
			dr.waiting, dr.pinned = dr.src, nil
			dr.held(dr.src.raw.Read(dr.onReady), sideSource)
		case dr.src != nil, dr.dir.is(oneWay):
			dr.w = dr.dir.move()
		default:
			dr.w = dr.dir.step()
		}
	}
}

// canceled fails a copy before its next read if its context has ended. It is not inlined: the frame of run stays on
// the stack while the copy waits.
//
//go:noinline
func (dr *goroutineDriver) canceled() bool {
	ctx := dr.dir.env().ctx
	if ctx == nil || ctx.Err() == nil || !dr.dir.wantsRead() {
		return false
	}
	dr.w = dr.dir.fail("read", sideSource, ctx.Err())
	return true
}

// runNative waits for the end that the direction needs, and steps. Once the source's deadline has passed, only
// the residue is delivered, and then Read fails. The sink's deadline counts once a byte was written to it.
func (dr *goroutineDriver) runNative() {
	if dr.w == waitSink || dr.dir.residue() > 0 {
		dr.waiting, dr.pinned = dr.dst, dr.src
		if dr.sourceLate() {
			dr.pinned = nil
		}
		dr.held(dr.dst.raw.Write(dr.onReady), sideSink)
	} else if dr.waiting, dr.pinned = dr.src, dr.dst; !dr.sinkLate() {
		dr.held(dr.src.raw.Read(dr.onReady), sideSource)
	}
}

// The following functions are not inlined: their callers' frames stay on the stack while the session is idle.

//go:noinline
func (dr *goroutineDriver) sourceLate() bool {
	return dr.dir.residue() > 0 && !dr.dir.is(eofSeen) && dr.src.raw.Read(once) != nil
}

//go:noinline
func (dr *goroutineDriver) sinkLate() bool {
	if dr.dir.moves != 0 {
		dr.held(dr.dst.raw.Write(once), sideSink)
	}
	return dr.w == waitDone
}

// once is a callback of RawConn that does nothing: Read and Write fail if the deadline has passed.
func once(uintptr) bool { return true }

// lookEvery is how often a direction that does not stop looks at the deadlines of its ends.
const lookEvery = int64(10 * time.Millisecond)

// due reports, before a session's direction waits, whether it is time to look at the deadlines.
//
//go:noinline
func (dr *goroutineDriver) due() bool {
	if dr.pinned == nil || dr.dir.is(oneWay) {
		return false
	}
	now := max(1, dr.dir.env().clock.now())
	if dr.looked == 0 {
		dr.looked = now
	}
	if now-dr.looked < lookEvery {
		return false
	}
	dr.looked = now
	return true
}

// runCopy makes one move of a copy between two descriptors, or waits for it. A file that one call sends is
// pinned meanwhile: a regular file has no deadlines (os.ErrNoDeadline).
func (dr *goroutineDriver) runCopy() {
	switch d := dr.dir; {
	case d.residue() > 0:
		dr.waiting, dr.pinned = dr.dst, nil
		dr.held(dr.dst.raw.Write(dr.onReady), sideSink)
	case !d.wantsRead():
		dr.w = d.move()
	case d.mode == transferring:
		dr.waiting, dr.pinned = dr.dst, dr.src
		dr.held(dr.dst.raw.Write(dr.onReady), sideSink)
	default:
		dr.waiting, dr.pinned = dr.src, nil
		dr.held(dr.src.raw.Read(dr.onReady), sideSource)
	}
}

// held fails the direction if one of its ends could not be held.
func (dr *goroutineDriver) held(err error, s side) {
	if err != nil {
		dr.w = dr.dir.fail(opOf(s), s, rawCause(err))
	}
}

func opOf(s side) string {
	if s == sideSink {
		return "write"
	}
	return "read"
}

// rawCause strips the words of RawConn: the caller did not call "raw-read".
func rawCause(err error) error {
	var op *net.OpError
	var path *os.PathError
	switch {
	case errors.As(err, &op):
		return op.Err
	case errors.As(err, &path):
		return path.Err
	}
	return sys.Closed(err)
}

// hold calls f with the descriptors of d pinned, whatever their deadlines, or with false if one of them is
// closed.
func hold(d *direction, f func(held bool)) {
	ends := d.link.(*pair)
	held := holdEnd(ends.source, func() {
		if !holdEnd(ends.sink, func() { f(true) }) {
			f(false)
		}
	})
	if !held {
		f(false)
	}
}

// holdEnd calls f with one end pinned, or returns false if it is closed.
func holdEnd(end any, f func()) bool {
	desc, ok := end.(*descriptor)
	if !ok {
		f()
		return true
	}
	return desc.raw.Control(func(fd uintptr) { desc.fd = int(fd); f() }) == nil
}
