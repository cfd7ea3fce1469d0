package relay

import "syscall"

// A driver runs one direction on a goroutine, waiting with the runtime's poller.
//
// A step runs with both descriptors held: inside the callbacks of both RawConns,
// which keep the numbers from being closed and reused, and keep other readers of
// the source and writers of the sink out. The one to wait for is the outer:
// returning false from its callback waits, with the inner let go.
//
// RawConn.Read discards the readiness that the poller has stored before it calls
// back (internal/poll, prepareRead), and the poller is edge-triggered. So false
// may be returned only after the callback itself has met EAGAIN. A step that
// answers waitSource has just read and met EAGAIN; one that answers waitSink has
// just written and met EAGAIN.
//
// Lock order: the directions of one session never hold the same of the four
// locks (read and write of each descriptor), so the order does not matter.
type driver struct {
	dir      *direction
	src, dst syscall.RawConn // nil for an end moved by its own Read or Write

	w       wait
	stopped error // why a descriptor could not be held

	// The callbacks, made once so that a step allocates nothing.
	onSource, onSourceInner func(uintptr) bool
	onSink, onSinkInner     func(uintptr) bool
}

func newDriver(d *direction) *driver {
	dr := &driver{dir: d}
	if s, ok := d.src.(*descriptor); ok {
		dr.src = s.raw
	}
	if s, ok := d.dst.(*descriptor); ok {
		dr.dst = s.raw
	}
	dr.onSource = func(uintptr) bool { return dr.stepHolding(dr.holdSink) != waitSource }
	dr.onSink = func(uintptr) bool { return dr.stepHolding(dr.holdSource) != waitSink }
	dr.onSourceInner = dr.stepInner
	dr.onSinkInner = dr.stepInner
	return dr
}

// run drives the direction until it has ended, or until a descriptor is closed or
// its deadline passes: then it returns that error, and the direction may hold
// leases.
func (dr *driver) run() error {
	for dr.w != waitDone {
		var err error
		if dr.w == waitSink && dr.dst != nil {
			err = dr.dst.Write(dr.onSink)
		} else if dr.src != nil {
			err = dr.src.Read(dr.onSource)
		} else {
			dr.stepHolding(dr.holdSink)
		}
		if err == nil {
			err = dr.stopped
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stepHolding steps with the other descriptor held too, and returns what to wait
// for; waitDone if that descriptor cannot be held any more.
func (dr *driver) stepHolding(hold func() error) wait {
	if err := hold(); err != nil {
		dr.stopped = err
		return waitDone
	}
	return dr.w
}

func (dr *driver) holdSink() error {
	if dr.dst == nil {
		dr.w = dr.dir.step()
		return nil
	}
	return dr.dst.Write(dr.onSinkInner)
}

func (dr *driver) holdSource() error {
	if dr.src == nil {
		dr.w = dr.dir.step()
		return nil
	}
	return dr.src.Read(dr.onSourceInner)
}

func (dr *driver) stepInner(uintptr) bool {
	dr.w = dr.dir.step()
	return true
}

// hold calls f with both descriptors of d held, deadlines or not; or with false
// if one of them is closed.
func hold(d *direction, f func(held bool)) {
	held := holdEnd(d.src, func() {
		if !holdEnd(d.dst, func() { f(true) }) {
			f(false)
		}
	})
	if !held {
		f(false)
	}
}

// holdEnd calls f with one end held, or returns false.
func holdEnd(end any, f func()) bool {
	desc, ok := end.(*descriptor)
	if !ok {
		f()
		return true
	}
	return desc.raw.Control(func(uintptr) { f() }) == nil
}
