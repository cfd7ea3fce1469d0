// Package pool keeps things that must be closed: kernel pipes, connections,
// mappings.
package pool

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrClosed is returned by Get once Close has been called. It is os.ErrClosed.
var ErrClosed = os.ErrClosed

// Config says how a Pool makes, keeps and drops its items.
type Config[T any] struct {
	New      func() (T, error)
	Close    func(T)
	Reset    func(T) bool
	MaxIdle  int
	MinIdle  int
	IdleTime time.Duration
}

// Stats is a snapshot.
type Stats struct {
	Made, Closed, Live, Idle, Hits, Misses, Steals, Evictions, Discards int64
}

// Pool is a temporary one behind a mutex.
type Pool[T any] struct {
	mu     sync.Mutex
	cfg    Config[T]
	idle   []T
	closed bool
	st     Stats
}

// New makes a pool.
func New[T any](cfg Config[T]) (*Pool[T], error) {
	if cfg.New == nil {
		return nil, errors.New("pool: new: Config.New is nil")
	}
	if cfg.MaxIdle == 0 {
		cfg.MaxIdle = 1024
	}
	return &Pool[T]{cfg: cfg}, nil
}

// TryGet takes an idle item.
func (p *Pool[T]) TryGet() (x T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		x = p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.st.Hits++
		return x, true
	}
	p.st.Misses++
	return x, false
}

// Get takes an idle item or makes one.
func (p *Pool[T]) Get() (T, error) {
	if x, ok := p.TryGet(); ok {
		return x, nil
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	var zero T
	if closed {
		return zero, fmt.Errorf("pool: get: %w", ErrClosed)
	}
	x, err := p.cfg.New()
	if err != nil {
		return zero, fmt.Errorf("pool: get: %w", err)
	}
	p.mu.Lock()
	p.st.Made++
	p.mu.Unlock()
	return x, nil
}

func (p *Pool[T]) drop(x T) {
	p.mu.Lock()
	p.st.Closed++
	p.mu.Unlock()
	if p.cfg.Close != nil {
		p.cfg.Close(x)
	}
}

// Put gives an item back.
func (p *Pool[T]) Put(x T) {
	if p.cfg.Reset != nil && !p.cfg.Reset(x) {
		p.drop(x)
		return
	}
	p.mu.Lock()
	if !p.closed && len(p.idle) < p.cfg.MaxIdle {
		p.idle = append(p.idle, x)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.drop(x)
}

// Discard closes a live item.
func (p *Pool[T]) Discard(x T) {
	p.mu.Lock()
	p.st.Discards++
	p.mu.Unlock()
	p.drop(x)
}

// Sweep ends an interval.
func (p *Pool[T]) Sweep() int { return p.Trim(p.cfg.MinIdle) }

// Trim closes idle items beyond keep.
func (p *Pool[T]) Trim(keep int) int {
	p.mu.Lock()
	keep = min(max(keep, 0), len(p.idle))
	out := append([]T(nil), p.idle[keep:]...)
	p.idle = p.idle[:keep]
	p.st.Evictions += int64(len(out))
	p.mu.Unlock()
	for _, x := range out {
		p.drop(x)
	}
	return len(out)
}

// Stats is a snapshot.
func (p *Pool[T]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.st
	s.Idle = int64(len(p.idle))
	s.Live = s.Made - s.Closed - s.Idle
	return s
}

// Close closes every idle item.
func (p *Pool[T]) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Trim(0)
	return nil
}
