package program

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// A Leg is the addresses of one of a session's two connections.
type Leg struct{ Remote, Local netip.AddrPort }

// tuple returns the key of packets that arrive from the leg's remote end.
func (l Leg) tuple() laneTuple {
	return laneTuple{
		Remote: words(l.Remote.Addr()), Local: words(l.Local.Addr()),
		RemotePort: swapped(l.Remote.Port()), LocalPort: swapped(l.Local.Port()),
	}
}

// words returns an address as the programs see it, IPv4 mapped into IPv6.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

func swapped(port uint16) uint16 { return port>>8 | port<<8 }

// address is the inverse of words and swapped.
func address(w [4]uint32, port uint16) netip.AddrPort {
	var b [16]byte
	for i := range w {
		binary.NativeEndian.PutUint32(b[4*i:], w[i])
	}
	return netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), swapped(port))
}

// ErrBothEnds is the error of a connection whose other end is one of a session too.
var ErrBothEnds = errors.New("both ends are in the lane")

// Register writes a session's record in a free slot and adds its tuples. The error wraps
// ebpf.ErrKeyExist if a session has one of them, and [ErrBothEnds] if one has it in the other direction.
func (p *Program) Register(slot uint32, generation uint32, legs [2]Leg) error {
	s := p.Session(slot)
	word := state.Word(atomic.LoadUint64(&s.Word))
	if word.State() != state.Free {
		return fmt.Errorf("slot %d has a session: %v", slot, word.State())
	}
	*s = Session{Word: uint64(word), Generation: generation}
	for i, l := range legs {
		s.Half[i].In = l.tuple()
		if l.Remote.Addr().Unmap().Is6() {
			s.Half[i].V6 = 1
		}
		if err := p.free(l); err != nil {
			return err
		}
	}
	if !s.Change(state.User, state.Free) {
		return fmt.Errorf("slot %d is not free any more", slot)
	}
	for i := range legs {
		p.ports.add(slot, i, &s.Half[i].In)
		if err := p.objects.Flows.Update(&s.Half[i].In, &lanePlace{Slot: slot, Generation: generation, Side: uint32(i)}, ebpf.UpdateNoExist); err != nil {
			p.Forget(slot)
			s.Change(state.Free, state.User)
			return fmt.Errorf("flow %v to %v: %w", legs[i].Remote, legs[i].Local, err)
		}
		p.ports.lead(slot, i)
	}
	return nil
}

// free refuses a leg whose other end is one of a session too: packets would have to be translated
// twice.
func (p *Program) free(l Leg) error {
	other := Leg{Remote: l.Local, Local: l.Remote}.tuple()
	var at lanePlace
	if err := p.objects.Flows.Lookup(&other, &at); err == nil {
		return fmt.Errorf("flow %v to %v: %w", l.Remote, l.Local, ErrBothEnds)
	}
	return nil
}

// Forget removes the tuples of a slot's session. A tuple that has become another session's stays.
func (p *Program) Forget(slot uint32) {
	s := p.Session(slot)
	for i := range s.Half {
		var at lanePlace
		p.ports.mislead(slot, i)
		if err := p.objects.Flows.Lookup(&s.Half[i].In, &at); err == nil && at.Slot == slot && at.Generation == s.Generation {
			_ = p.objects.Flows.Delete(&s.Half[i].In) // a SYN may have removed it meanwhile
		}
		p.ports.remove(slot, i)
	}
}

// Leg returns the addresses of one side.
func (s *Session) Leg(side int) Leg {
	in := &s.Half[side].In
	return Leg{Remote: address(in.Remote, in.RemotePort), Local: address(in.Local, in.LocalPort)}
}

// Flow returns the account of packets from one side.
func (s *Session) Flow(side int) translate.Flow {
	h := &s.Half[side]
	return translate.Flow{
		First: h.First, FirstAck: h.FirstAck,
		Sent: atomic.LoadUint64(&h.Sent), Acked: atomic.LoadUint64(&h.Acked), Edge: atomic.LoadUint64(&h.Edge), Fin: atomic.LoadUint64(&h.Fin),
		Stamp: atomic.LoadUint32(&h.Stamp), Window: atomic.LoadUint32(&h.Window), Widest: atomic.LoadUint32(&h.Widest),
		Zeros: atomic.LoadUint32(&h.Zeros), Repeats: atomic.LoadUint32(&h.Repeats),
		Hole: atomic.LoadUint64(&h.Hole), Payload: atomic.LoadUint64(&h.Payload), Segments: atomic.LoadUint32(&h.Segments),
		BehindGap: atomic.LoadUint32(&h.BehindGap), Lost: atomic.LoadUint32(&h.Lost), Resent: atomic.LoadUint32(&h.Resent), Takes: h.Takes,
	}
}

// Flows returns the accounts of both sides, while packets may pass. The ends of file are read after all numbers that may count one
// as a byte: the programs note them before.
func (s *Session) Flows() [2]translate.Flow {
	f := [2]translate.Flow{s.Flow(0), s.Flow(1)}
	for i := range f {
		f[i].Fin = atomic.LoadUint64(&s.Half[i].Fin)
	}
	return f
}

// Clock returns how the session's time has passed until its last packet.
func (s *Session) Clock() (c translate.Clock) {
	c.Pending, c.Acked, c.Spoke, c.Stalled = atomic.LoadUint32(&s.Pending), atomic.LoadUint32(&s.Acked), sideOf(s.Spoke), sideOf(s.Stalled)
	for i := range s.Half {
		h := &s.Half[i]
		for w := range h.Waits {
			c.Waits[i][w] = atomic.LoadUint32(&h.Waits[w])
		}
		c.Narrow[i] = atomic.LoadUint32(&h.Narrow)
		c.Answers[i], c.Pauses[i] = atomic.LoadUint32(&h.Answers), atomic.LoadUint32(&h.Pauses)
	}
	return c
}

// Spent returns for how long the session has been in the lane, until its last packet.
func (s *Session) Spent() time.Duration {
	return max(0, time.Duration(atomic.LoadUint64(&s.SpentBefore)+atomic.LoadUint64(&s.Last)-atomic.LoadUint64(&s.Begun)))
}

// By returns the side of the RST that was carried, or else of the first FIN; -1: there was none.
func (s *Session) By() int { return int(sideOf(s.EndedBy)) - 1 }

// RoundTrip returns how long the last packets to one side's endpoint took until their timestamps came back, the
// shortest of all that were measured, and the time from one without data until data came. 0: none was.
func (s *Session) RoundTrip(side int) (mean, least, data time.Duration) {
	h := &s.Half[side]
	of := func(n *uint32) time.Duration { return max(0, time.Duration(atomic.LoadUint32(n))-1) * time.Microsecond }
	return of(&h.Rtt), of(&h.LeastRtt), of(&h.DataRtt)
}

// Packets returns how many packets of one side were carried.
func (s *Session) Packets(side int) uint64 { return atomic.LoadUint64(&s.Half[side].Packets) }

// LastNew returns the side that new bytes have come from last in the lane, -1 if none have.
func (s *Session) LastNew() int { return int(sideOf(s.Newest)) - 1 }

// An Event is a change that a program has made.
type Event struct {
	Slot, Generation uint32
	State            state.State
	Reset            bool // the session has ended by an RST
}

// ParseEvent reads an event from the ring.
func ParseEvent(b []byte) (e Event, ok bool) {
	if len(b) < 16 {
		return e, false
	}
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
	return Event{Slot: word(0), Generation: word(1), State: state.State(word(2)), Reset: word(3) != 0}, true
}
