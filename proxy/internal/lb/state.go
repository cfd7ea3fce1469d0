package lb

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
// upstream. Those that an upstream begins with need none.
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
