package server

import (
	"slices"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/rollback"
)

// An earlier is a configuration before the one in force, and the changes by hand that ended with it: they are
// restored if it, or one before it, is applied again.
type earlier struct {
	of    any // its origin
	ended []state.Change
}

// livesUnder returns the changes by hand under a configuration. Those that have ended since it was in force are
// among them, the later ones first.
func (s *Server) livesUnder(cfg *config.Config) lives {
	l := s.live.under(cfg)
	at := s.earlierAt(cfg)
	if at < 0 {
		return l
	}
	for _, before := range slices.Backward(s.earlier[at:]) {
		set, restored := l.set.Restore(before.ended, cfg)
		l.set, l.restored = manual{set}, append(l.restored, restored...)
	}
	return l
}

// earlierAt returns the place of a configuration among the earlier ones; -1: it is none of them.
func (s *Server) earlierAt(cfg *config.Config) int {
	return slices.IndexFunc(s.earlier, func(e earlier) bool { return e.of == cfg.Origin() })
}

// noteLives logs the changes by hand that a configuration has ended and restored, and keeps those that ended
// for a rollback. before was in force until then.
func (s *Server) noteLives(before *config.Config, l *lives) {
	s.logEnded(l.ended)
	for i := range l.restored {
		c := &l.restored[i]
		s.log.Info("change by hand restored", "what", c.String(), "by", c.By, "since", c.Since)
	}
	if len(l.restored) > 0 {
		s.markLive()
	}
	if s.cfg == before { // a listener is ready again
		return
	}
	s.applied = *l
	if at := s.earlierAt(s.cfg); at >= 0 {
		s.earlier = slices.Delete(s.earlier, at, len(s.earlier))
	} else if before != nil && len(config.Diff(before, s.cfg)) > 0 {
		e := earlier{of: before.Origin()}
		for i := range l.ended {
			e.ended = append(e.ended, l.ended[i].Change)
		}
		s.earlier = append(s.earlier, e)
		s.earlier = slices.Delete(s.earlier, 0, max(len(s.earlier)-rollback.Kept, 0))
	}
}

// AppliedLive returns the changes by hand that the last [Server.Apply] has ended, with the reasons, and those
// that it has restored: an Apply of a configuration that was in force before restores the changes that ended
// with it. Both are empty for none.
func (s *Server) AppliedLive() (ended, restored []admin.LiveChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended, restored = []admin.LiveChange{}, []admin.LiveChange{}
	for i := range s.applied.ended {
		e := &s.applied.ended[i]
		c := s.liveChange(&e.Change)
		c.Ends, c.Waits = e.Why, ""
		ended = append(ended, c)
	}
	for i := range s.applied.restored {
		restored = append(restored, s.liveChange(&s.applied.restored[i]))
	}
	return ended, restored
}
