package lb

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// MaxWeight is the largest weight of an endpoint.
const MaxWeight = 256

// ErrWeight is wrapped by the error of a weight that is out of range.
var ErrWeight = errors.New("no such weight")

// EndpointConfig sets up an [Endpoint].
type EndpointConfig struct {
	// ID identifies the endpoint, and is hashed by the consistent policies: the same on every
	// node of a fleet, as a rule the name or the address.
	ID string

	// Weight is from 0 to [MaxWeight]. With 0 an endpoint keeps its sessions and gets no more.
	Weight int

	// Connections is how many sessions it may have at a time; 0 means any number.
	Connections int

	// Now is a clock that never goes backwards, in nanoseconds; nil means the
	// process's. Only slow start asks it.
	Now func() int64

	// Of is its owner's business.
	Of any
}

// An Endpoint serves an upstream's clients. Its state is set by others ([Endpoint.SetHealthy]
// and the like) and looked at by every pick. It is safe for concurrent use, and must not be
// copied.
type Endpoint struct {
	// Of is its owner's business.
	Of any

	id   string
	hash uint64
	now  func() int64

	word        atomic.Uint64 // sessions and flags: see word.go
	limit       atomic.Uint32 // of sessions; 0 means any number
	weight      atomic.Int32
	usableSince atomic.Int64 // clock when it became usable; 0 if that is of no interest any more
	picked      atomic.Uint64
	inSets      atomic.Pointer[[]membership] // in the sets that it is in; written under mu
	scored      atomic.Bool                  // one of them has a tree; written under mu

	mu sync.Mutex // of changes of flags, weight or inSets; no pick waits for it
}

// NewEndpoint returns a healthy endpoint without sessions. Weights and limits out of range are
// replaced by the nearest valid one.
func NewEndpoint(cfg EndpointConfig) *Endpoint {
	e := &Endpoint{id: cfg.ID, hash: xxh3.HashString(cfg.ID), now: cfg.Now, Of: cfg.Of}
	if e.now == nil {
		e.now = monotonic
	}
	e.weight.Store(int32(min(max(cfg.Weight, 0), MaxWeight)))
	e.limit.Store(uint32(max(cfg.Connections, 0)))
	if e.Weight() == 0 {
		e.word.Store(flagWeightless)
	}
	return e
}

var start = time.Now()

// monotonic is never 0, which stands for never.
func monotonic() int64 { return int64(time.Since(start)) + 1 }

// ID returns the identity that the endpoint was made with.
func (e *Endpoint) ID() string { return e.id }

// Weight returns the weight.
func (e *Endpoint) Weight() int { return int(e.weight.Load()) }

// SetWeight changes the weight. Tables that a policy has computed from weights follow with
// [Set.Rebuild]; a weight of 0 takes effect at once. An error wraps [ErrWeight].
func (e *Endpoint) SetWeight(w int) error {
	if w < 0 || w > MaxWeight {
		return fmt.Errorf("%w as %d: write one from 0 to %d", ErrWeight, w, MaxWeight)
	}
	e.setWeight(w)
	return nil
}

func (e *Endpoint) setWeight(w int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.weight.Store(int32(w))
	e.flag(flagWeightless, w == 0)
}

// Limit returns how many sessions it may have at a time; 0 means any number.
func (e *Endpoint) Limit() int { return int(e.limit.Load()) }

// SetLimit changes how many sessions it may have at a time; 0 or less means any
// number. Those beyond a new limit stay.
func (e *Endpoint) SetLimit(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit.Store(uint32(max(n, 0)))
	e.changed()
}

// Active returns the number of sessions, those included whose connection is being made.
func (e *Endpoint) Active() int { return int(e.word.Load() & activeMask) }

// Picked returns how many times it was picked.
func (e *Endpoint) Picked() uint64 { return e.picked.Load() }
