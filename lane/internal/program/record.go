package program

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// A Leg has the addresses of one of a session's two connections.
type Leg struct{ Remote, Local netip.AddrPort }

// tuple returns the key of packets that arrive from the leg's remote end.
func (l Leg) tuple() laneTuple {
	return laneTuple{
		Remote: words(l.Remote.Addr()), Local: words(l.Local.Addr()),
		RemotePort: swapped(l.Remote.Port()), LocalPort: swapped(l.Local.Port()),
	}
}

// words returns an address in the programs' format, in which IPv4 is mapped into IPv6.
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

// ErrBothEnds means that the other end of a connection belongs to a session too.
var ErrBothEnds = errors.New("both ends are in the lane")

// Register writes a session's record into a free slot, and adds the session's tuples. The error wraps
// ebpf.ErrKeyExist if another session has one of the tuples, and [ErrBothEnds] if another session has one in
// the other direction.
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
		return fmt.Errorf("slot %d is no longer free", slot)
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

// free returns an error if the other end of a leg belongs to a session too: packets would have to be translated
// twice.
func (p *Program) free(l Leg) error {
	other := Leg{Remote: l.Local, Local: l.Remote}.tuple()
	var at lanePlace
	if err := p.objects.Flows.Lookup(&other, &at); err == nil {
		return fmt.Errorf("flow %v to %v: %w", l.Remote, l.Local, ErrBothEnds)
	}
	return nil
}

// Forget removes the tuples of a slot's session. It keeps a tuple that belongs to another session by now.
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

// Flows returns the accounts of both sides. Packets may pass meanwhile. The programs note an end of file before
// they raise the numbers that count it as a byte, so Flows reads the ends of file last.
func (s *Session) Flows() [2]translate.Flow {
	f := [2]translate.Flow{s.Flow(0), s.Flow(1)}
	for i := range f {
		f[i].Fin = atomic.LoadUint64(&s.Half[i].Fin)
	}
	return f
}

// Clock returns what the session's time was spent on, until its last packet.
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

// Spent returns how long the session has been in the lane, until its last packet.
func (s *Session) Spent() time.Duration {
	return max(0, time.Duration(atomic.LoadUint64(&s.SpentBefore)+atomic.LoadUint64(&s.Last)-atomic.LoadUint64(&s.Begun)))
}

// By returns the side that has sent an RST, or else the side that has sent the first FIN. -1 means that neither
// has come.
func (s *Session) By() int { return int(sideOf(s.EndedBy)) - 1 }

// RoundTrip returns three times that packets took to one side's endpoint and back: the mean and the shortest
// time until their timestamps came back, and the time from a packet without data until data came. 0 means that
// there was no measurement.
func (s *Session) RoundTrip(side int) (mean, least, data time.Duration) {
	h := &s.Half[side]
	of := func(n *uint32) time.Duration { return max(0, time.Duration(atomic.LoadUint32(n))-1) * time.Microsecond }
	return of(&h.Rtt), of(&h.LeastRtt), of(&h.DataRtt)
}

// Packets returns how many packets of one side were carried.
func (s *Session) Packets(side int) uint64 { return atomic.LoadUint64(&s.Half[side].Packets) }

// LastNew returns the side that has sent the last new bytes in the lane, or -1 if none has.
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

// sessionSize is the size of a session's record.
const sessionSize = int(unsafe.Sizeof(laneSession{}))

var pageMask = os.Getpagesize() - 1

// A Session is the record of a slot. The programs share it, so fields that they write must be read through its
// methods.
type Session laneSession

// Session returns the record of a slot. It is valid until Close.
//
// The conversion is safe: the mapping has whole pages and is aligned, a record has the same layout in C and in
// Go (bpf2go writes the type), and a record has no pointers.
func (p *Program) Session(slot uint32) *Session {
	return (*Session)(unsafe.Pointer(&p.memory[int(slot)*sessionSize]))
}

// State returns the state of the session.
func (s *Session) State() state.State { return state.Word(atomic.LoadUint64(&s.Word)).State() }

// Change changes the state, as the owner, if the present state is in from, and reports whether it did.
func (s *Session) Change(to state.State, from ...state.State) bool {
	for {
		w := state.Word(atomic.LoadUint64(&s.Word))
		may := false
		for _, f := range from {
			may = may || (w.State() == f && state.Allowed(f, to, state.Owner))
		}
		if !may {
			return false
		}
		if atomic.CompareAndSwapUint64(&s.Word, uint64(w), uint64(w.Next(to))) {
			return true
		}
	}
}

// Refusal returns why the last attempt to leave failed, and how many attempts there were.
func (s *Session) Refusal() (why, tries uint32) {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&s.Why))), atomic.LoadUint32(&s.Tries)
}

// LastPacket returns when a packet was last carried, in ns of the monotonic clock.
func (s *Session) LastPacket() uint64 { return atomic.LoadUint64(&s.Last) }

// Mark notes the session's tag, and when the session began by the monotonic clock. The programs neither read
// nor write the two. They are for user space, including the next process.
func (s *Session) Mark(tag [TagSize]byte, begun time.Duration) { s.Tag, s.Joined = tag, uint64(begun) }

// TagSize is the size of a tag.
const TagSize = len(laneSession{}.Tag)

// Retag changes the tag. It first zeroes the tag's first eight bytes, which are aligned. It writes them last,
// in one store.
func (s *Session) Retag(tag *[TagSize]byte) {
	first := (*uint64)(unsafe.Pointer(&s.Tag))
	atomic.StoreUint64(first, 0)
	copy(s.Tag[8:], tag[8:])
	atomic.StoreUint64(first, binary.NativeEndian.Uint64(tag[:]))
}

// Began returns when the session began, by the monotonic clock.
func (s *Session) Began() time.Duration { return time.Duration(s.Joined) }

// Report notes that the session's end was reported, so that no later process reports it again.
func (s *Session) Report() { s.Reported = 1 }

// IsReported reports whether the end was reported.
func (s *Session) IsReported() bool { return s.Reported != 0 }

// ProbePriority is the SO_PRIORITY of a socket that must send acknowledgements while the lane has its session:
// the guard lets them out. It has the value of PROBE in the programs.
const ProbePriority = 0x6c616e65

// Bound sets the session's own user timeout, rounded up to milliseconds. 0 means that the session has no user
// timeout, not even the lane's.
func (s *Session) Bound(timeout time.Duration) { s.UserTimeout = own(timeout) }

// Bounded returns the session's own user timeout, or false if it has none of its own.
func (s *Session) Bounded() (timeout time.Duration, own bool) { return ownOf(s.UserTimeout) }

// KeepAlive sets the session's own keepalive time. It treats the time like Bound.
func (s *Session) KeepAlive(after time.Duration) { s.Keepalive = own(after) }

// KeptAlive returns the session's own keepalive time, or false if it has none of its own.
func (s *Session) KeptAlive() (after time.Duration, own bool) { return ownOf(s.Keepalive) }

// own encodes a session's own time for its record: in milliseconds, plus 1. 0 in a record means that the
// session has no time of its own.
func own(d time.Duration) uint32 {
	ms := (max(d, 0) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(ms, math.MaxUint32-1)) + 1
}

func ownOf(word uint32) (d time.Duration, own bool) {
	if word == 0 {
		return 0, false
	}
	return time.Duration(word-1) * time.Millisecond, true
}

// A pinned table comes from another process, and may be damaged. So everything read from a record
// is bounded before it is used as an index, and a session is not adopted if no program can have
// written its record.

// sideOf returns n if it is 1 + a side, and 0 otherwise.
func sideOf(n uint8) uint8 {
	if n > 2 {
		return 0
	}
	return n
}

const (
	mostScale    = 14      // TCP_MAX_WSCALE (include/net/tcp.h, RFC 7323, 2.3)
	mostPosition = 1 << 62 // more bytes than any session carries
)

// IsSound reports whether the record of a slot can belong to a session that is or was in the lane. It does not
// check fields that are only observations: these are bounded when they are read.
func (p *Program) IsSound(slot uint32) bool {
	s, at := p.Session(slot), p.Session(slot).State()
	switch {
	case p.strangers[slot]:
		return false
	case at != state.Lane && at != state.Done && at != state.Held && at != state.Reset:
		return false
	case s.IsReported() && at != state.Done && at != state.Reset: // a session that goes on has no end
		return false
	case s.Half[0].V6 != s.Half[1].V6:
		return false
	}
	return s.Half[0].isSound() && s.Half[1].isSound()
}

func (h *laneHalf) isSound() bool {
	in := &h.In
	remote, local := address(in.Remote, in.RemotePort), address(in.Local, in.LocalPort)
	for _, at := range []*uint64{&h.Sent, &h.Acked, &h.Edge, &h.Fin, &h.Hole} {
		if atomic.LoadUint64(at) > mostPosition {
			return false
		}
	}
	for _, a := range []struct {
		unspecified, is6 bool
		port             uint16
	}{{remote.Addr().IsUnspecified(), remote.Addr().Is6(), remote.Port()}, {local.Addr().IsUnspecified(), local.Addr().Is6(), local.Port()}} {
		if a.unspecified || a.port == 0 || h.V6 > 1 || a.is6 != (h.V6 == 1) {
			return false
		}
	}
	return h.Scale <= mostScale && h.Unit <= mostScale
}

// Discard removes the tuples of a slot with an unsound record, and frees the slot from any state. The slot can
// be used again after a grace period.
func (p *Program) Discard(slot uint32) {
	p.Forget(slot)
	s := p.Session(slot)
	for {
		w := state.Word(atomic.LoadUint64(&s.Word))
		if atomic.CompareAndSwapUint64(&s.Word, uint64(w), uint64(w.Next(state.Free))) {
			return
		}
	}
}

// leads reports whether a tuple leads to a record that has this tuple. If the record has another tuple, its
// slot is added to strangers.
func (p *Program) leads(key *laneTuple, at *lanePlace) bool {
	if at.Slot >= p.size || at.Side > 1 {
		return false
	}
	s := p.Session(at.Slot)
	if s.Generation != at.Generation || s.State() == state.Free {
		return false
	}
	if s.Half[at.Side].In != *key {
		p.strangers[at.Slot] = true
		return false
	}
	return true
}

// NotAfter sets the times of the last packet and of the session's beginning to now, by the monotonic clock, if
// they are later.
func (s *Session) NotAfter(now time.Duration) {
	for _, at := range []*uint64{&s.Last, &s.Joined} {
		if n := atomic.LoadUint64(at); n > uint64(now) {
			atomic.CompareAndSwapUint64(at, n, uint64(now))
		}
	}
}
