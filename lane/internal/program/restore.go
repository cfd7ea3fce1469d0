package program

import (
	"errors"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// Connection returns the numbers and options that a socket to one side's endpoint goes on with where the lane has stopped,
// in state Held and after a grace period: all that the other endpoint has acknowledged counts as
// received, and nothing else, so that this endpoint sends the rest again. An end of file that it has acknowledged is to come again: the
// program makes it of the endpoint's next acknowledgement.
func (s *Session) Connection(side int) sys.Connection {
	h, other := &s.Half[side], &s.Half[1-side]
	f, o, l := s.Flow(side), s.Flow(1-side), s.Leg(side)
	received := o.Acked
	if ended(&f, &o) {
		received = f.Fin - 1
	}
	return sys.Connection{
		Local: l.Local, Remote: l.Remote,
		Send: f.FirstAck + uint32(f.Acked), Receive: f.First + uint32(received),
		SendWindow: f.Window, ReceiveWindow: uint32(o.Edge - o.Acked),
		SendScale: h.Scale, ReceiveScale: other.Unit,
		SACK: h.Sack != 0, Timestamps: h.Timestamps != 0, Timestamp: o.Stamp + other.Time,
		SegmentSize: h.Takes,
	}
}

// ended reports whether the end of file of f is acknowledged by o.
func ended(f, o *translate.Flow) bool { return f.Fin != 0 && o.Acked >= f.Fin }

// As enum behind in the programs.
const (
	lags    = 1
	owesEnd = 2
)

// Resets calls reset for a side's connection at the last number that was carried to its endpoint, and at the last that it has
// acknowledged, if that is another one. An endpoint takes an RST at the number that it expects next, which is one of them
// or between them: it acknowledges an RST that is ahead, and the stack answers with an RST at that number; it ignores an RST
// that is behind (RFC 5961, 3.2).
func (s *Session) Resets(side int, reset func(sys.Connection) error) (err error) {
	c, f, o := s.Connection(side), s.Flow(side), s.Flow(1-side)
	if last := f.FirstAck + uint32(o.Sent); last != c.Send {
		ahead := c
		ahead.Send = last
		err = reset(ahead)
	}
	return errors.Join(err, reset(c))
}

// Stop stops the lane, so that packets are dropped, and reports whether the program had the session. The
// owner has it in state Held, and knows how it is to end.
func (s *Session) Stop(ends bool) bool {
	if s.State() != state.Lane {
		return false
	}
	s.Ends, s.Shut = 0, 0 // they are not read in state Lane
	if ends {
		s.Ends = 1
	}
	return s.Change(state.Held, state.Lane)
}

// ToBeReset reports whether the session was stopped to be reset.
func (s *Session) ToBeReset() bool { return s.Ends != 0 }

// Restored notes, in state Held, that the sockets were made again, and gives the session to
// user space: no packet is on the way to them.
func (s *Session) Restored() {
	for i := range s.Half {
		atomic.AndUint64(&s.Half[i].Noted, notedBig)
		f, o := s.Flow(i), s.Flow(1-i)
		s.Half[i].Restored, s.Half[i].Behind, s.Half[i].Reach = 1, 0, f.FirstAck+uint32(o.Sent)
		if o.Sent > f.Acked {
			s.Half[i].Behind |= lags
		}
		if ended(&f, &o) {
			s.Half[i].Behind |= owesEnd
		}
	}
	s.Change(state.User, state.Held)
}

// As in the programs: an RST was let up, a packet that they could not note, and a packet above 64 KiB.
const (
	notedReset = 1 << 33
	notedLost  = 1 << 34
	notedBig   = 1 << 35
)

// Big reports whether a packet above 64 KiB has come, of big TCP, which the programs do not carry.
func (s *Session) Big() bool {
	return (atomic.LoadUint64(&s.Half[0].Noted)|atomic.LoadUint64(&s.Half[1].Noted))&notedBig != 0
}

// ForgetNotes forgets, in state User, the packets that were noted for both sides if one of them may keep the session there, and reports
// whether it was so. It is a packet that could not be noted, an RST, and data that the last attempt has found on the way to its socket: an RST or data
// that the socket refuses, such as one out of its window, never gets there. A grace period has to pass before the session is armed.
func (s *Session) ForgetNotes() (kept bool) {
	why, _ := s.Refusal()
	kept = laneWhy(why) == laneWhyWHY_IN_FLIGHT
	for i := range s.Half {
		kept = kept || atomic.LoadUint64(&s.Half[i].Noted)&(notedReset|notedLost) != 0
	}
	for i := range s.Half {
		if kept {
			atomic.AndUint64(&s.Half[i].Noted, notedBig)
		}
	}
	return kept
}

// WasReset reports whether an RST has passed since the session left.
func (s *Session) WasReset() bool { return s.Reset != 0 }

// ShutSides shows the endpoint of one side a window of 0 from the next packet on, in all that its socket sends. With both sides, the endpoints are
// promised nothing more. The endpoints of other sides see the windows of the sockets.
func (s *Session) ShutSides(sides [2]bool) {
	bits := uint8(0)
	for i, is := range sides {
		if is {
			bits |= 1 << i
		}
	}
	s.Shut = 0
	s.Held = [2]uint32{}
	s.Shut = bits
}

// IsShut reports whether the endpoint of a side is shut.
func (s *Session) IsShut(side int) bool { return s.Shut&(1<<side) != 0 }

// Announce calls probe, which has a side's socket send a probe: that announces its window.
func (s *Session) Announce(side int, probe func() error) error {
	s.Opens = 1 << side
	defer func() { s.Opens = 0 }()
	return probe()
}
