package relay

import (
	"errors"
	"math"
	"syscall"

	"github.com/penstock/penstock/relay/driver"
)

// errGate is the error of a session with a Gate where there may be none.
var errGate = errors.New("penstock: relay: start: a Gate can be on one side of a session only, and not on a side with a Layer")

// setGate makes a gate hold back the bytes of d, which reads from p, except the first p.Free, and hear the
// bytes of answers.
func (s *Driven) setGate(d, answers *direction, p *Socket) {
	switch {
	case p.Gate == nil:
		return
	case p.Layer != nil || d.is(limited):
		p.Gate.Close()
		d.fail("start", sideNone, errGate)
		return
	}
	d.limit(int64(max(p.Free, 0)))
	d.rareState().gate = p.Gate
	answers.limit(math.MaxInt64)
	answers.rareState().hears = d
}

// gate returns the gate of a direction, or nil if it has none or no longer.
func (d *direction) gate() driver.Gate {
	if !d.is(limited) {
		return nil
	}
	return d.rareState().gate
}

// shut reports whether the direction's next byte has to wait for a gate.
func (d *direction) shut() bool { return d.gate() != nil && d.rareState().remain == 0 }

// atGate reports whether move asks the gate. It and ask are not inlined, because the frame of move is on the
// stack of every idle session.
//
//go:noinline
func (d *direction) atGate() bool {
	return d.mode != rewriting && d.held.residue() == 0 && d.shut()
}

// ask is the move of a direction that is at its gate.
//
//go:noinline
func (d *direction) ask() wait {
	if err := d.pass(); err != nil {
		return d.sourceError("read", err)
	}
	return waitTurn
}

// hears reports whether the gate of the other direction sees the bytes of this one.
func (d *direction) hears() bool { return d.is(limited) && d.rareState().hears != nil }

// pass asks a shut gate to let bytes pass. EAGAIN: the direction waits for its source.
func (d *direction) pass() error {
	if !d.shut() {
		return nil
	}
	s, o := sessionOf(d), d.rareState()
	p, ahead := s.socketOf(d), o.ahead
	if o.rewrite != nil {
		ahead = o.rewrite.ahead
	}
	o.asked = true
	n, took, err := o.gate.Pass(int(p.fd), ahead[:len(ahead):len(ahead)], p.state&(peerClosed|gone) != 0)
	if len(took) > 0 {
		d.take(took)
	}
	switch {
	case err != nil:
		return err
	case n > 0:
		o.remain = int64(n)
	case n < 0:
		s.openGate(d)
	default:
		p.set(readable, false)
		return syscall.EAGAIN
	}
	return nil
}

// take notes bytes that a gate has taken from the direction's socket.
func (d *direction) take(b []byte) {
	o := d.rareState()
	if o.rewrite != nil {
		o.rewrite.ahead = b
	} else {
		o.ahead = b
	}
	if m := d.mirror(); m != nil && o.rewrite == nil {
		m.sent(b)
	}
}

// heard shows bytes that the direction has read to the gate of the other direction, if that gate wants them. No
// bytes mean the end of file.
func (d *direction) heard(b []byte) {
	if !d.hears() {
		return
	}
	held := d.rareState().hears
	switch held.gate().Answered(b[:len(b):len(b)]) {
	case driver.GateHears:
	case driver.GateOpens:
		sessionOf(d).openGate(held)
	default:
		sessionOf(d).stir(held)
	}
}

// openGate opens the gate of a direction for good.
func (s *Driven) openGate(d *direction) {
	d.rareState().gate.Close()
	if d.rareState().asked {
		s.stir(d)
	}
	d.unlimit()
	if other := s.opposite(d); other.hears() {
		other.unlimit()
	}
}

// stir makes a direction look again whether it may go on.
func (s *Driven) stir(d *direction) {
	s.socketOf(d).set(readable, true)
	s.recall()
}

func (s *Driven) opposite(d *direction) *direction {
	if d == &s.ab {
		return &s.ba
	}
	return &s.ab
}

// unlimit drops the state of a direction's gate. Then the session takes no additional memory, so it can become
// a [Parked].
func (d *direction) unlimit() {
	d.set(limited, false)
	o := d.rareState()
	o.gate, o.hears, o.asked, o.remain = nil, nil, false, 0
	if o.empty() {
		d.rare.Store(nil)
	}
}

func (o *rareState) empty() bool {
	for i := range o.fell {
		if o.fell[i].Load() != 0 {
			return false
		}
	}
	return o.ahead == nil && o.mark == nil && o.failure == nil && o.pacer == nil && o.mirror == nil && o.answers == nil && o.rewrite == nil &&
		o.carried == 0 && o.seed == 0 && o.lost.Load() == 0
}

// closeGates closes the gates at the end of the session.
func (s *Driven) closeGates() {
	for _, d := range [2]*direction{&s.ab, &s.ba} {
		if g := d.gate(); g != nil {
			g.Close()
			d.rareState().gate = nil
		}
	}
}
