package program

import (
	"errors"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// Connection returns the numbers and options with which a new socket to one side's endpoint goes on where the
// lane has stopped. The state must be Held, and a grace period must have passed. Only what the other endpoint
// has acknowledged counts as received, so that this endpoint sends the rest again. An end of file that the
// other endpoint has acknowledged must come again too: the programs make it from the endpoint's next
// acknowledgement.
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

// ended reports whether o has acknowledged the end of file of f.
func ended(f, o *translate.Flow) bool { return f.Fin != 0 && o.Acked >= f.Fin }

// The values of enum behind in the programs.
const (
	lags    = 1
	owesEnd = 2
)

// Resets calls reset for a side's connection at the last number that was carried to its endpoint, and also at
// the last number that the endpoint has acknowledged, if that is a different one. The endpoint takes an RST
// only at the number that it expects next. That number is one of the two, or lies between them. The endpoint
// answers an RST that is ahead with an acknowledgement, and then the kernel sends an RST at the acknowledged
// number. The endpoint ignores an RST that is behind (RFC 5961, 3.2).
func (s *Session) Resets(side int, reset func(sys.Connection) error) (err error) {
	c, f, o := s.Connection(side), s.Flow(side), s.Flow(1-side)
	if last := f.FirstAck + uint32(o.Sent); last != c.Send {
		ahead := c
		ahead.Send = last
		err = reset(ahead)
	}
	return errors.Join(err, reset(c))
}

// Stop stops the lane for the session, so that packets are dropped, and reports whether the session was in the
// lane. If so, the owner has the session in state Held. ends says that the session is about to be reset, and
// not to come back.
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

// Restored notes, in state Held, that the sockets were made again, and gives the session to user space. No
// packet is on the way to the sockets then.
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

// Bits of Noted, as in the programs: an RST went up to its socket, a packet could not be noted, and a packet
// was above 64 KiB.
const (
	notedReset = 1 << 33
	notedLost  = 1 << 34
	notedBig   = 1 << 35
)

// Big reports whether a packet above 64 KiB has come. An endpoint with big TCP sends such packets, and the
// programs do not carry them.
func (s *Session) Big() bool {
	return (atomic.LoadUint64(&s.Half[0].Noted)|atomic.LoadUint64(&s.Half[1].Noted))&notedBig != 0
}

// ForgetNotes forgets the packets that were noted for both sides, in state User, if one of them may keep the
// session there. It reports whether it did. There are three kinds of such packets: a packet that could not be
// noted, an RST, and data that the last attempt found on the way to its socket. An RST or data that the socket
// refuses, for example because it is out of the window, never gets there. A grace period must pass before the
// session is armed.
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

// ShutSides changes the windows that the endpoints see, from the next packet on. If one side is set, the
// endpoint of that side sees a window of 0 in everything that its socket sends. If both sides are set, the
// endpoints are promised nothing more. The endpoint of a side that is not set sees the window of its socket.
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

// Announce calls probe, which must make a side's socket send a window probe. The probe announces the socket's
// window.
func (s *Session) Announce(side int, probe func() error) error {
	s.Opens = 1 << side
	defer func() { s.Opens = 0 }()
	return probe()
}
