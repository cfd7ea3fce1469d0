package worker

import (
	"errors"
	"os"
	"syscall"
)

// FDReserve is descriptors that are kept for connections to targets: one for each client that
// was accepted and for which no socket was made yet, and one for each loop or listener, which
// takes it before it accepts. Otherwise a burst of clients would take every descriptor, and
// none of them could be served. A connect takes a reserved one only if there is no other
// descriptor, so as a rule nothing is opened or closed for a connection. The zero value has
// none. It is not safe for concurrent use.
type FDReserve struct {
	files  []*os.File // owned
	needed int        // by clients and listeners
}

// surplus is how many descriptors beyond the need are kept for the next clients.
const surplus = 4

// Reserve sees to it that there is one more. The error is that descriptors are
// short: a spare that cannot be had for another reason is done without.
func (s *FDReserve) Reserve() error {
	if s.needed >= len(s.files) {
		f, err := os.Open(os.DevNull)
		switch {
		case err == nil:
			s.files = append(s.files, f)
		case LacksDescriptor(err):
			return err
		}
	}
	s.needed++
	return nil
}

// Claim closes one, for a caller that is about to open another descriptor, and reports whether
// there was one.
func (s *FDReserve) Claim() bool {
	last := len(s.files) - 1
	if last < 0 {
		return false
	}
	s.files[last].Close()
	s.files = s.files[:last]
	return true
}

// Release is the end of a need that Reserve has noted.
func (s *FDReserve) Release() {
	s.needed--
	if len(s.files) > s.needed+surplus {
		s.Claim()
	}
}

// Trim closes those beyond the need.
func (s *FDReserve) Trim() {
	for len(s.files) > s.needed {
		s.Claim()
	}
}

// Close closes them all.
func (s *FDReserve) Close() {
	for s.Claim() {
	}
}

// LacksDescriptor reports whether err is for want of a descriptor.
func LacksDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
