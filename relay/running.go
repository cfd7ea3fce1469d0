package relay

import (
	"sync"

	"github.com/penstock/penstock/internal/closed"
)

// ErrClosed is the error of sessions that a closed [Relay] has ended, or refused. It matches os.ErrClosed.
var ErrClosed error = closed.Error("penstock: relay: the relay is closed")

// running is the sessions on goroutines that run.
type running struct {
	mu     sync.Mutex
	all    map[*Session]struct{}
	closed bool
	over   chan struct{} // closed when none runs; nil: none waits for that
}

// add notes a session that begins, and reports whether it may.
func (r *running) add(s *Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if r.all == nil {
		r.all = make(map[*Session]struct{})
	}
	r.all[s] = struct{}{}
	return true
}

func (r *running) remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
	if len(r.all) == 0 && r.over != nil {
		close(r.over)
		r.over = nil
	}
}

// close has add refuse, and returns the sessions that run.
func (r *running) close() (all []*Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for s := range r.all {
		all = append(all, s)
	}
	return all
}

// none returns a channel that is closed when none runs. No session begins any more.
func (r *running) none() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over == nil {
		r.over = make(chan struct{})
		if len(r.all) == 0 {
			over := r.over
			r.over = nil
			close(over)
			return over
		}
	}
	return r.over
}
