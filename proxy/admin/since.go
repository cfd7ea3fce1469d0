package admin

import (
	"context"
	"sync"
	"time"
)

// lookForProblems is how often the problems are looked at where nobody asks for them, at the most: a look takes a hundredth of the time at most.
const lookForProblems = time.Second

// A sinces is since when each problem without a time of its own has been there, as far as it was looked. The zero value is ready.
type sinces struct {
	mu sync.Mutex
	at map[Problem]time.Time // by its kind and subject
}

// note gives a time to each problem that has none. now is the time of the look; list has all problems at that time.
func (s *sinces) note(list []Problem, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	still := make(map[Problem]time.Time)
	for i := range list {
		p := &list[i]
		if !p.Since.IsZero() {
			continue
		}
		key := Problem{Kind: p.Kind, Listener: p.Listener, Upstream: p.Upstream, Endpoint: p.Endpoint}
		at, known := s.at[key]
		if !known {
			at = now
		}
		p.Since, still[key] = at, at
	}
	s.at = still
}

// Watch looks at the problems every second, so that they are known to have been there, until ctx ends. The process has opened everything.
func (s *Server) Watch(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			began := time.Now()
			s.current()
			pause.Reset(max(lookForProblems, 100*time.Since(began)))
		}
	}
}
