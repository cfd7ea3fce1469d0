package lb

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

// Acquire gives the endpoint another session, unless it is unusable or has its limit of them.
// If it returns true the caller calls [Endpoint.Release] once. [Set.Pick] does it by itself.
func (e *Endpoint) Acquire() bool { return e.acquire(unusableFlags) }

// CanAcquireAnyway reports whether AcquireAnyway may succeed.
func (e *Endpoint) CanAcquireAnyway(panicking bool) bool {
	return hasRoom(e.word.Load(), e.limit.Load(), excludedAnyway(panicking))
}

// AcquireAnyway is Acquire for one that may be unusable: a client has to find out whether it
// serves. One that is barred is taken in panic alone.
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

// Add gives the endpoint a session that it has already, whatever its limit and its flags are, and that no pick has chosen. The caller calls [Endpoint.Release] once.
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
