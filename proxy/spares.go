package proxy

import (
	"os"
	"sync"
)

// spares are descriptors that are kept for connections to targets: one for each
// client that was accepted and for which no target was dialed yet, and one for
// each listener, which takes it before it accepts. Otherwise a burst of clients
// would take every descriptor, and none of them could be served.
type spares struct {
	mu    sync.Mutex
	files []*os.File // owned
}

// reserve adds one. The error is that descriptors are short: a spare that cannot
// be had for another reason is done without.
func (s *spares) reserve() error {
	f, err := os.Open(os.DevNull)
	if err != nil {
		if lacksDescriptor(err) {
			return err
		}
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = append(s.files, f)
	return nil
}

// spend gives one back to the process, for who is about to open another.
func (s *spares) spend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.files) - 1; last >= 0 {
		s.files[last].Close()
		s.files = s.files[:last]
	}
}

// close closes what was not spent.
func (s *spares) close() {
	for range s.files {
		s.spend()
	}
}
