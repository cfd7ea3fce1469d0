package router

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/limit"
)

// An admissionLimit is a limit at which accepting pauses: further clients wait in the kernel's
// queue.
type admissionLimit uint8

const (
	unlimited admissionLimit = iota
	atConnections
	atRate
	atProcessRate
	doorLimits
)

// String is its key in the configuration.
func (l admissionLimit) String() string {
	return [...]string{"", "connections", "per_second", "process per_second"}[l]
}

// pauses are how often accepting has paused at each limit.
type pauses struct {
	at    atomic.Uint32 // the limit at which it pauses now
	count [doorLimits]atomic.Int64
}

// begin notes that accepting pauses at a limit, and reports whether that is new. Loops that
// find that out at once may count it twice.
func (p *pauses) begin(at admissionLimit) bool {
	if admissionLimit(p.at.Load()) == at || admissionLimit(p.at.Swap(uint32(at))) == at {
		return false
	}
	p.count[at].Add(1)
	return true
}

// end notes that it does not pause.
func (p *pauses) end() {
	if p.at.Load() != 0 {
		p.at.Store(0)
	}
}

// full returns the limit at which accepting pauses at a time.
func (state *ListenerState) full(process *limit.Rate, now int64) admissionLimit {
	switch {
	case state.Connections.Full():
		return atConnections
	case state.Rate.Until(now) > 0:
		return atRate
	case process != nil && process.Until(now) > 0:
		return atProcessRate
	}
	return unlimited
}

// PausedAt returns the limit at which accepting pauses at a time, by its key, "" if it does
// not; process is the one of all listeners, or nil.
func (state *ListenerState) PausedAt(process *limit.Rate, now int64) string {
	return state.full(process, now).String()
}

// Pauses returns how often accepting has paused at a limit, by its key.
func (state *ListenerState) Pauses() map[string]int64 {
	counts := make(map[string]int64)
	for l := range state.pauses.count {
		if n := state.pauses.count[l].Load(); n > 0 {
			counts[admissionLimit(l).String()] = n
		}
	}
	return counts
}

// CanAccept implements [worker.Admitter].
func (a *admission) CanAccept(now int64) error {
	state := a.state
	at := state.full(a.cfg.Process, now)
	if at == unlimited {
		state.pauses.end()
		return nil
	}
	if state.pauses.begin(at) && state.Paused != nil {
		state.Paused(at.String(), time.Duration(now))
	}
	if at == atConnections {
		return limit.ErrConnections
	}
	return limit.ErrRate
}
