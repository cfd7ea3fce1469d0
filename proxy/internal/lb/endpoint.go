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
	// ID identifies the endpoint: usually its name or address, which must be the same on every node of a fleet. The
	// consistent policies hash it.
	ID string

	// Weight is from 0 to [MaxWeight]. With 0 an endpoint keeps its sessions and gets no new ones.
	Weight int

	// Connections is how many sessions it may have at a time; 0 means no limit.
	Connections int

	// Now is a clock that never goes backwards, in nanoseconds; nil means the clock of the process. Only slow start
	// uses it.
	Now func() int64

	// Of is for the caller. This package does not use it.
	Of any
}

// An Endpoint serves an upstream's clients. Its owner sets its state ([Endpoint.SetHealthy] and the like), and every
// pick looks at it. It is safe for concurrent use, and must not be copied.
type Endpoint struct {
	// Of is for the owner. This package does not use it.
	Of any

	id   string
	hash uint64
	now  func() int64

	word        atomic.Uint64 // sessions and flags: see activeMask
	limit       atomic.Uint32 // of sessions; 0 means no limit
	weight      atomic.Int32
	usableSince atomic.Int64 // when it became usable, by the clock; 0 once that does not matter any more
	picked      atomic.Uint64
	inSets      atomic.Pointer[[]membership] // its places in sets; written under mu
	scored      atomic.Bool                  // one of the sets has a tree; written under mu

	mu sync.Mutex // held while flags, weight or inSets change; no pick waits for it
}

// NewEndpoint returns a healthy endpoint without sessions. It replaces a weight or limit out of range by the nearest
// valid value.
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

// monotonic never returns 0, because 0 means never.
func monotonic() int64 { return int64(time.Since(start)) + 1 }

// ID returns the identity that the endpoint was made with.
func (e *Endpoint) ID() string { return e.id }

// Weight returns the weight.
func (e *Endpoint) Weight() int { return int(e.weight.Load()) }

// SetWeight changes the weight. Weight 0 takes effect at once. Tables that policies have computed from weights do not
// change.
func (e *Endpoint) SetWeight(w int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.weight.Store(int32(w))
	e.flag(flagWeightless, w == 0)
}

// Limit returns how many sessions the endpoint may have at a time; 0 means no limit.
func (e *Endpoint) Limit() int { return int(e.limit.Load()) }

// SetLimit changes how many sessions the endpoint may have at a time; 0 or less means no limit. Sessions beyond a new
// limit stay.
func (e *Endpoint) SetLimit(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit.Store(uint32(max(n, 0)))
	e.changed()
}

// Active returns the number of sessions, including sessions that are still connecting.
func (e *Endpoint) Active() int { return int(e.word.Load() & activeMask) }

// Picked returns how many times the endpoint was picked.
func (e *Endpoint) Picked() uint64 { return e.picked.Load() }

// SetHealthy sets the verdict of health checks. If this makes the endpoint usable, its slow start begins.
func (e *Endpoint) SetHealthy(healthy bool) { e.set(flagDown, !healthy) }

// SetEjected sets the verdict of outlier detection. After an ejection slow start begins.
func (e *Endpoint) SetEjected(ejected bool) { e.set(flagEjected, ejected) }

// SetBarred says whether the endpoint's checks have answered that it must not serve. A barred endpoint does not serve
// even if no other endpoint can. This makes no difference while it is healthy.
func (e *Endpoint) SetBarred(barred bool) { e.set(flagBarred, barred) }

// SetFailing says whether the last connection to the endpoint failed. It matters only to picks with [Working] or
// [LastResort]. It costs next to nothing if it changes nothing.
func (e *Endpoint) SetFailing(failing bool) {
	if failing != e.Failing() {
		e.set(flagFailing, failing)
	}
}

// Failing returns what SetFailing has set.
func (e *Endpoint) Failing() bool { return e.word.Load()&flagFailing != 0 }

// SetDraining says whether the endpoint keeps its sessions and gets no new ones.
func (e *Endpoint) SetDraining(draining bool) { e.set(flagDraining, draining) }

// SetBroken says whether the endpoint's circuit breaker refuses connections. No slow start begins when it closes: the
// breaker itself tries the endpoint with few connections first.
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

// Added begins the slow start of an endpoint that was added to others. The first endpoints of an upstream need none.
func (e *Endpoint) Added() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.usableSince.Store(max(e.now(), 1))
	e.changed()
}

// A State is the state of an endpoint at a moment.
type State struct {
	Down, Ejected, Broken, Barred, Draining bool
	// Active is the number of sessions.
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

// whole is the ramp of an endpoint outside slow start.
const whole = 1 << 16

// ramp returns which part of its weight, in parts of whole, an endpoint has in slow start. It is at least a
// hundredth, or no client would ever try the endpoint.
func (e *Endpoint) ramp(slowStart int64) uint64 {
	rose := e.usableSince.Load()
	if rose == 0 || slowStart <= 0 {
		return whole
	}
	since := e.now() - rose
	if since >= slowStart {
		e.usableSince.CompareAndSwap(rose, 0) // no need for the clock any more
		return whole
	}
	return max(uint64(float64(whole)*float64(max(since, 0))/float64(slowStart)), whole/100)
}

// SlowUntil returns when the endpoint gets its whole weight, by the clock; 0 if it has that already.
func (e *Endpoint) SlowUntil(slowStart time.Duration) int64 {
	rose := e.usableSince.Load()
	if e.ramp(int64(slowStart)) == whole {
		return 0
	}
	return rose + int64(slowStart)
}

// An endpoint's word has everything that decides whether it may have another session. So one compare-and-swap checks
// this and takes a place: however many clients pick at the same moment, no limit is exceeded, and an endpoint that
// was taken out gets no more sessions.
//
//	bits 0-31   sessions
//	bits 32-38  flags
const activeMask = 1<<32 - 1

const (
	flagDown       = 1 << (32 + iota) // by health checks
	flagEjected                       // by outlier detection
	flagBroken                        // by its circuit breaker
	flagDraining                      // by an operator, or because it is removed
	flagWeightless                    // weight 0
	flagBarred                        // its checks have answered that it must not serve
	flagFailing                       // the last connection to it failed
)

const (
	unusableFlags     = flagDown | flagEjected | flagBroken // make an endpoint unusable, except in panic
	absentFlags       = flagDraining | flagWeightless       // exclude it from all counts
	noLastResortFlags = flagBarred | flagFailing            // keep it from being picked as a last resort
)

// hasRoom reports whether an endpoint with this word and limit may have another session. excluded are the flags that
// keep it out.
func hasRoom(w uint64, limit uint32, excluded uint64) bool {
	return w&(absentFlags|excluded) == 0 && (limit == 0 || uint32(w&activeMask) < limit)
}

// CanAcquire reports whether the endpoint can be acquired.
func (e *Endpoint) CanAcquire() bool { return hasRoom(e.word.Load(), e.limit.Load(), unusableFlags) }

// CanAcquireAnyway reports whether AcquireAnyway may succeed.
func (e *Endpoint) CanAcquireAnyway(panicking bool) bool {
	return hasRoom(e.word.Load(), e.limit.Load(), excludedAnyway(panicking))
}

// AcquireAnyway gives the endpoint another session even if it is unusable: a client has to find out whether it
// serves. It respects the limit, and takes a barred endpoint only in panic. If it returns true the caller calls
// [Endpoint.Release] once, as after [Set.Pick].
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

// Add counts a session that the endpoint has already, and that no pick has chosen, whatever its limit and flags are.
// The caller calls [Endpoint.Release] once.
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

// Return gives back an acquired place that was not used. It does not call OnRoom: a client that found the place taken
// in the meantime picks again after it has joined a queue.
func (e *Endpoint) Return() { e.release() }

// release counts the end of a session, and reports whether there may be room for a waiting client.
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
