package relay

import (
	"io"
)

// An end is the source (an io.Reader) or the sink (an io.Writer) of a direction.
type end struct {
	rw   any
	desc *descriptor // nil for an end moved by its own Read or Write
	leg  *legState
	framing
}

// newEnd returns the source or the sink that is left of a connection's wrappers.
func newEnd(rw any, leg *legState, u *unwrapped) end {
	e := end{rw: rw, desc: newDescriptor(rw, leg), leg: leg, framing: streaming}
	if e.desc == nil {
		e.framing = framingOf(rw)
	}
	if e.framing == unknown && u.stream && !isFile(rw) {
		e.framing = streaming
	}
	return e
}

// connect gives d its ends, its thresholds, its leases and the mode to start in.
// A descriptor that is written from an end moved by its own Read is moved by its
// own Write: the direction waits in Read, and must hold nothing there.
// err is the error of the first read, which is not made then.
func (r *Relay) connect(d *direction, ends *pair, env *environment, from, to end, err error) {
	ends.env, ends.copied = env, bufferSize
	d.link, d.pipeSize = ends, defaultPipe
	switch {
	case from.desc == nil || err != nil:
		sizes := r.readSizes(from, to, d.is(oneWay))
		ends.source = &opaqueSource{
			r: wholeMessages(from.rw.(io.Reader)), leg: from.leg, framing: from.framing,
			buffer: waitingBuffer{sizes.first, sizes}, err: err,
		}
		to.desc = nil
	case to.framing != streaming:
		ends.copied = copyBuffer
		fallthrough
	default:
		ends.source = from.desc
	}
	if to.desc == nil {
		ends.sink = &opaqueSink{w: to.rw.(io.Writer), leg: to.leg}
		d.set(waits, true)
	} else {
		ends.sink = to.desc
	}
	d.chooseMode(r, isPlain(from.rw) && isPlain(to.rw))
}

// chooseMode sets the mode to start in, and whether it may change.
func (d *direction) chooseMode(r *Relay, plain bool) {
	d.set(pinned, true)
	switch {
	case d.is(waits) && !plain:
		d.fallback(FallbackWrapped)
	case r.cfg.Engine == EngineCopy:
	case d.is(waits) || r.pipes == nil:
		d.fallback(FallbackUnsupported)
	case r.cfg.Engine == EngineSplice:
		d.mode = splicing
	default:
		d.set(pinned, false)
	}
}
