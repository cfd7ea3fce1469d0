package program

import (
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/penstock/penstock/lane/internal/state"
)

// sessionSize is the size of a session's record.
const sessionSize = int(unsafe.Sizeof(laneSession{}))

var pageMask = os.Getpagesize() - 1

// A Session is the record of a slot. It is shared with the programs, so fields that they write are
// read by the methods alone.
type Session laneSession

// Session returns the record of a slot, which is there until Close.
//
// The mapping is of whole pages and aligned, records have no padding that differs between C and Go
// (bpf2go writes the type), and no pointer is in one.
func (p *Program) Session(slot uint32) *Session {
	return (*Session)(unsafe.Pointer(&p.memory[int(slot)*sessionSize]))
}

// State returns the state of the session.
func (s *Session) State() state.State { return state.Word(atomic.LoadUint64(&s.Word)).State() }

// Change changes the state as the owner, and reports whether it was one of from.
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

// Refusal returns why the last attempt to leave was given up, and how many were tried.
func (s *Session) Refusal() (why, tries uint32) {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&s.Why))), atomic.LoadUint32(&s.Tries)
}

// LastPacket returns when a packet was last carried, in ns of the monotonic clock.
func (s *Session) LastPacket() uint64 { return atomic.LoadUint64(&s.Last) }
