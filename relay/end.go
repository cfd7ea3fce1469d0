package relay

import (
	"io"
)

// An end is the source (an io.Reader) or the sink (an io.Writer) of a direction.
type end struct {
	rw   any
	desc *descriptor // nil for an end moved by its own Read or Write
	leg  *legState
}

// connect gives d its ends, its thresholds, its leases and the mode to start in.
// A descriptor that is written from an end moved by its own Read is moved by its
// own Write: the direction waits in Read, and must hold nothing there.
func (r *Relay) connect(d *direction, ends *pair, env *environment, from, to end) {
	ends.env = env
	d.link, d.pipeSize = ends, defaultPipe
	if from.desc == nil {
		ends.source = &opaqueSource{r: from.rw.(io.Reader), leg: from.leg, buffer: newWaitingBuffer(r.cfg.WrappedBuffer, d.is(oneWay))}
		to.desc = nil
	} else {
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
