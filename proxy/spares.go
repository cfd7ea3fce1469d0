package proxy

import (
	"sync"

	"github.com/penstock/penstock/proxy/core"
)

// spares are [core.Spares] for goroutines.
type spares struct {
	mu sync.Mutex
	core.Spares
}

func (s *spares) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Reserve()
}

func (s *spares) claim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Claim()
}

func (s *spares) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Release()
}

func (s *spares) trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Trim()
}

func (s *spares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Close()
}
