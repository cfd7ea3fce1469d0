package proxy

import (
	"os"
	"sync"
)

// spares are descriptors that are kept for connections to targets: one for each
// client that was accepted and for which no target was dialed yet, and one for
// each listener, which takes it before it accepts. Otherwise a burst of clients
// would take every descriptor, and none of them could be served. Who dials asks
// for its spare only if there is no other descriptor, so as a rule nothing is
// opened or closed for a connection.
type spares struct {
	mu     sync.Mutex
	files  []*os.File // owned
	needed int        // by clients and listeners
}

// surplus is how many spares that nobody needs are kept for those who come next.
const surplus = 4

// reserve sees to it that there is one more. The error is that descriptors are
// short: a spare that cannot be had for another reason is done without.
func (s *spares) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.needed >= len(s.files) {
		f, err := os.Open(os.DevNull)
		switch {
		case err == nil:
			s.files = append(s.files, f)
		case lacksDescriptor(err):
			return err
		}
	}
	s.needed++
	return nil
}

// claim gives one back to the process, for who is about to open another, and
// reports whether there was one.
func (s *spares) claim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop()
}

// release is the end of a need that reserve has noted.
func (s *spares) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needed--
	if len(s.files) > s.needed+surplus {
		s.drop()
	}
}

func (s *spares) drop() bool {
	last := len(s.files) - 1
	if last < 0 {
		return false
	}
	s.files[last].Close()
	s.files = s.files[:last]
	return true
}

// trim closes those that nobody needs.
func (s *spares) trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) > s.needed {
		s.drop()
	}
}

// close closes them all.
func (s *spares) close() {
	for s.claim() {
	}
}
