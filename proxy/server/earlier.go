package server

import (
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

// An earlier is the configuration before the one in force, and the changes by hand that ended with it: they are
// restored if it is applied again.
type earlier struct {
	cfg   *config.Config
	ended []state.Change
}

// livesUnder returns the changes by hand under a configuration. Those that the configuration in force has
// ended are among them if it is the one before.
func (s *Server) livesUnder(cfg *config.Config) lives {
	l := s.live.under(cfg)
	if cfg != s.earlier.cfg {
		return l
	}
	var set live.Set
	set, l.restored = l.set.Restore(s.earlier.ended, cfg)
	l.set = manual{set}
	return l
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
	switch s.cfg {
	case before: // a listener is ready again
		return
	case s.earlier.cfg:
		s.earlier = earlier{}
	default:
		s.earlier = earlier{cfg: before}
		for i := range l.ended {
			s.earlier.ended = append(s.earlier.ended, l.ended[i].Change)
		}
	}
	s.applied = *l
}

// AppliedLive returns the changes by hand that the last [Server.Apply] has ended, with the reasons, and those
// that it has restored: an Apply of the configuration before the one in force restores the changes that ended
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
