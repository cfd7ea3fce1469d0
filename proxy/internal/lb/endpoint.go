package lb

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// MaxWeight is the largest weight of an endpoint.
const MaxWeight = 256

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

	word        atomic.Uint64 // sessions and flags: see activeMask
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

// SetWeight changes the weight. A weight of 0 takes effect at once; a table that a policy has computed from weights stays as it is.
func (e *Endpoint) SetWeight(w int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.weight.Store(int32(w))
	e.flag(flagWeightless, w == 0)
}

// Limit returns how many sessions it may have at a time; 0 means any number.
func (e *Endpoint) Limit() int { return int(e.limit.Load()) }

// SetLimit changes how many sessions it may have at a time; 0 or less means any
// number. Sessions beyond a new limit stay.
func (e *Endpoint) SetLimit(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit.Store(uint32(max(n, 0)))
	e.changed()
}

// Active returns the number of sessions, with those whose connection is being made.
func (e *Endpoint) Active() int { return int(e.word.Load() & activeMask) }

// Picked returns how many times it was picked.
func (e *Endpoint) Picked() uint64 { return e.picked.Load() }

// SetHealthy sets the verdict of health checks. An endpoint that becomes usable by it begins
// its slow start.
func (e *Endpoint) SetHealthy(healthy bool) { e.set(flagDown, !healthy) }

// SetEjected sets the verdict of outlier detection; the end of an ejection begins a slow
// start.
func (e *Endpoint) SetEjected(ejected bool) { e.set(flagEjected, ejected) }

// SetBarred says whether its checks have answered that it must not serve: then it does not
// even where no other endpoint can. As long as it is healthy that makes no difference.
func (e *Endpoint) SetBarred(barred bool) { e.set(flagBarred, barred) }

// SetFailing says whether the last connection to it could not be made. Only a pick as a last
// resort minds that, see [Working]. It costs next to nothing if it was said before.
func (e *Endpoint) SetFailing(failing bool) {
	if failing != e.Failing() {
		e.set(flagFailing, failing)
	}
}

// Failing returns the state that SetFailing has set.
func (e *Endpoint) Failing() bool { return e.word.Load()&flagFailing != 0 }

// SetDraining sets whether the endpoint keeps its sessions and gets no more.
func (e *Endpoint) SetDraining(draining bool) { e.set(flagDraining, draining) }

// SetBroken says whether its circuit breaker refuses connections. That it does not any
// more begins no slow start: a breaker tries an endpoint with few by itself.
func (e *Endpoint) SetBroken(broken bool) { e.set(flagBroken, broken) }

func (e *Endpoint) set(flag uint64, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flag(flag, on)
}

// flag sets or clears a flag, and updates the sets. The caller has mu.
func (e *Endpoint) flag(flag uint64, on bool) {
	switch was := e.word.Load(); {
	case on:
		e.word.Or(flag)
	case was&flag != 0:
		if e.word.And(^flag); flag&(flagDown|flagEjected) != 0 && was&unusableFlags == flag {
			e.usableSince.Store(max(e.now(), 1))
		}
	}
	e.changed()
}

// Added begins the slow start of an endpoint that has just been added to a running
// upstream. The endpoints that an upstream begins with need none.
func (e *Endpoint) Added() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.usableSince.Store(max(e.now(), 1))
	e.changed()
}

// A State is the state of an endpoint at a moment.
type State struct {
	Down, Ejected, Broken, Barred, Draining bool
	// Active is how many sessions it has.
	Active int
}

// State returns the present state.
func (e *Endpoint) State() State {
	w := e.word.Load()
	return State{
		Down: w&flagDown != 0, Ejected: w&flagEjected != 0, Broken: w&flagBroken != 0,
		Barred: w&flagBarred != 0, Draining: w&flagDraining != 0, Active: int(w & activeMask),
	}
}

// whole is the ramp of an endpoint that is not in slow start.
const whole = 1 << 16

// ramp is the part, of whole, of its weight that an endpoint has in a slow start of so long; at
// least a hundredth, or no client would ever be sent to try it.
func (e *Endpoint) ramp(slowStart int64) uint64 {
	rose := e.usableSince.Load()
	if rose == 0 || slowStart <= 0 {
		return whole
	}
	since := e.now() - rose
	if since >= slowStart {
		e.usableSince.CompareAndSwap(rose, 0) // the clock is not asked again
		return whole
	}
	return max(uint64(float64(whole)*float64(max(since, 0))/float64(slowStart)), whole/100)
}

// An endpoint's word has all that decides whether it may have another session, so that this
// and the taking of a place are one compare-and-swap: no limit is ever passed, and an endpoint
// that was taken out gets no other session, however many clients pick at that moment.
//
//	bits 0-31   sessions
//	bits 32-38  flags
const activeMask = 1<<32 - 1

const (
	flagDown       = 1 << (32 + iota) // by health checks
	flagEjected                       // by outlier detection
	flagBroken                        // by its circuit breaker
	flagDraining                      // by an operator, or because it goes
	flagWeightless                    // weight 0
	flagBarred                        // its checks have answered that it must not serve
	flagFailing                       // the last connection to it could not be made
)

const (
	unusableFlags     = flagDown | flagEjected | flagBroken // make an endpoint unusable, unless in panic
	absentFlags       = flagDraining | flagWeightless       // take it out of the reckoning altogether
	noLastResortFlags = flagBarred | flagFailing            // keep it from being picked as a last resort
)

// hasRoom reports whether an endpoint whose word and limit are these may have another
// session, if none of the flags of excluded keeps it out.
func hasRoom(w uint64, limit uint32, excluded uint64) bool {
	return w&(absentFlags|excluded) == 0 && (limit == 0 || uint32(w&activeMask) < limit)
}

// CanAcquire reports whether the endpoint can be acquired.
func (e *Endpoint) CanAcquire() bool { return hasRoom(e.word.Load(), e.limit.Load(), unusableFlags) }

// CanAcquireAnyway reports whether AcquireAnyway may succeed.
func (e *Endpoint) CanAcquireAnyway(panicking bool) bool {
	return hasRoom(e.word.Load(), e.limit.Load(), excludedAnyway(panicking))
}

// AcquireAnyway gives the endpoint another session, unless it has its limit of them, though it may be unusable: a client has to find out whether it
// serves. A barred one is taken in panic alone. If it returns true the caller calls [Endpoint.Release] once, as after [Set.Pick].
func (e *Endpoint) AcquireAnyway(panicking bool) bool { return e.acquire(excludedAnyway(panicking)) }

func excludedAnyway(panicking bool) uint64 {
	if panicking {
		return 0
	}
	return flagBarred
}

func (e *Endpoint) acquire(excluded uint64) bool {
	for {
		w, limit := e.word.Load(), e.limit.Load()
		if !hasRoom(w, limit, excluded) {
			return false
		}
		if e.word.CompareAndSwap(w, w+1) {
			e.picked.Add(1)
			if e.scored.Load() || limit > 0 && uint32((w+1)&activeMask) >= limit {
				e.rejoin()
			}
			return true
		}
	}
}

// Add gives the endpoint a session that it has already, and no pick has chosen, whatever its limit and its flags are. The caller calls
// [Endpoint.Release] once.
func (e *Endpoint) Add() {
	w, limit := e.word.Add(1), e.limit.Load()
	if e.scored.Load() || limit > 0 && uint32(w&activeMask) >= limit {
		e.rejoin()
	}
}

// Release ends a session.
func (e *Endpoint) Release() {
	if e.release() {
		e.notifyRoom()
	}
}

// Return gives back a place that was acquired and not used. OnRoom is not called: a client
// that has found it taken meanwhile has to look again when it has joined a queue.
func (e *Endpoint) Return() { e.release() }

// release counts the end, and reports whether there may be room for a client that waits.
func (e *Endpoint) release() bool {
	w := e.word.Add(^uint64(0))
	if w&activeMask == activeMask {
		panic("lb: release of an endpoint that has no session: " + e.id)
	}
	limit := e.limit.Load()
	if e.scored.Load() || limit > 0 {
		e.rejoin()
	}
	return limit > 0
}
