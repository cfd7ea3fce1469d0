package admin

import (
	"fmt"
	"strings"
	"time"
)

// Unusable returns in one line why the endpoint gets no clients, or "" if it may get some.
func (e *Endpoint) Unusable() string {
	switch {
	case e.State == Draining:
		return "drained"
	case e.State == Maint:
		return "in maintenance"
	case e.State == Removed:
		return "removed"
	case e.Weight == 0:
		return "weight 0"
	case e.State == Down:
		return reason("down", time.Time{}, e.Why)
	case e.State == Standby:
		return reason("standby", time.Time{}, e.Why)
	case e.State == Ejected:
		return reason("ejected", e.Until, e.Why)
	case e.Breaker != "":
		return reason("breaker "+e.Breaker, e.BreakerUntil, e.BreakerWhy)
	case e.Max > 0 && e.Active >= e.Max:
		return fmt.Sprintf("full (%d of %d)", e.Active, e.Max)
	}
	return ""
}

// Reason returns in one line why clients get nothing from the endpoint: it is unusable, the
// last connection to it has failed, or both. It returns "" if neither is so.
func (e *Endpoint) Reason() string {
	why, f := e.Unusable(), e.LastFailure
	switch {
	case f == nil || f.Over:
		return why
	case why == "":
		return f.Cause
	case e.State == Draining || e.State == Maint || e.State == Removed || e.Weight == 0 || strings.Contains(why, f.Cause):
		return why
	}
	return why + " (last failure: " + f.Cause + ")"
}

// reason joins a state, its end if known, and its reason if known.
func reason(state string, until time.Time, why string) string {
	if !until.IsZero() {
		state += " until " + until.Local().Format(time.TimeOnly)
	}
	if why != "" {
		state += ": " + why
	}
	return state
}
