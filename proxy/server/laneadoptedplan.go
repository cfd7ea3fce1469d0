package server

import (
	"time"

	"github.com/penstock/penstock/proxy/config"
)

// AdoptedEnding returns how many adopted sessions of each listener would end at once if a configuration came into force, by the listener's name: those that
// have lasted, or have been idle, for longer than its timeouts there, and not for longer than those in force. Which ones end by a user timeout is not known before.
func (s *Server) AdoptedEnding(cfg *config.Config) map[string]int64 {
	next := make(map[string]adoptedLimits, len(cfg.Listeners))
	for _, l := range cfg.Listeners {
		next[l.Name] = adoptedLimitsOf(l)
	}
	a, now := &s.adopted, time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	ending := make(map[string]int64)
	for _, one := range a.list {
		l, there := next[one.listener]
		if there && one.cause == nil && one.end.Load() == nil && one.overdueBy(&l, now) != nil && one.overdue(now, a.idle) == nil {
			ending[one.listener]++
		}
	}
	return ending
}
