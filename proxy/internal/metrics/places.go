package metrics

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxScrapes is how many scrapes are served at once. Each has a sample of its own in memory.
const maxScrapes = 2

const (
	// stalledTime is how long a scraper may take to read a part of its answer while another one wants the place, and
	// slowTime is that for the whole.
	stalledTime = 250 * time.Millisecond
	slowTime    = 5 * time.Second
	// placeTime is how long that one waits for the place.
	placeTime = time.Second
)

// places are those of the scrapes that are served. One that waits for its scraper makes room for the next scrape.
type places struct {
	taken   chan struct{} // one element for each
	mu      sync.Mutex
	writing []*answer // those that are being read by their scrapers
}

func newPlaces() *places { return &places{taken: make(chan struct{}, maxScrapes)} }

// take takes a place. It waits only if scrapers are reading their answers: one of them may be cut. release gives it back.
func (p *places) take(ctx context.Context) bool {
	select {
	case p.taken <- struct{}{}:
		return true
	default:
	}
	deadline := time.NewTimer(placeTime)
	defer deadline.Stop()
	for {
		next := p.makeRoom(time.Now())
		if next < 0 {
			return false
		}
		again := time.NewTimer(next)
		select {
		case p.taken <- struct{}{}:
			again.Stop()
			return true
		case <-again.C:
		case <-deadline.C:
			again.Stop()
			return false
		case <-ctx.Done():
			again.Stop()
			return false
		}
	}
}

func (p *places) release() { <-p.taken }

// makeRoom cuts the answer that has waited longest for its scraper, if it has for long. It returns the time until one
// may have; negative: no answer is being read.
func (p *places) makeRoom(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := time.Duration(-1)
	var longest *answer
	for _, a := range p.writing {
		left := min(stalledTime-now.Sub(a.since), slowTime-now.Sub(a.began))
		if next < 0 || left < next {
			longest, next = a, max(left, 0)
		}
	}
	if longest == nil || next > 0 {
		return next
	}
	// It stays until its handler has returned. A second cut changes nothing.
	_ = http.NewResponseController(longest.to).SetWriteDeadline(now)
	return stalledTime / 10
}

// answer returns where to write an answer. It is ended before the handler returns.
func (p *places) answer(w http.ResponseWriter) *answer {
	a := &answer{places: p, to: w, began: time.Now()}
	a.since = a.began
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = append(p.writing, a)
	return a
}

// An answer is one that is being written.
type answer struct {
	places       *places
	to           http.ResponseWriter
	began, since time.Time // of the whole, and of the part that its scraper has not taken; since is guarded by mu of places
}

var _ io.Writer = (*answer)(nil)

// Write writes a part.
func (a *answer) Write(part []byte) (int, error) {
	n, err := a.to.Write(part)
	a.places.mu.Lock()
	a.since = time.Now()
	a.places.mu.Unlock()
	return n, err
}

func (a *answer) end() {
	a.places.mu.Lock()
	defer a.places.mu.Unlock()
	a.places.writing = slices.DeleteFunc(a.places.writing, func(other *answer) bool { return other == a })
}
