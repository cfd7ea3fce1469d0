package server

import "github.com/penstock/penstock/proxy/config"

// warnOfSize warns of a table that was adopted with another size than the configuration has.
func (s *Server) warnOfSize(now *laneState) {
	if now.sessions != now.cfg.Sessions {
		s.log.Warn("the lane has adopted a table of sessions with its own size, which it keeps until its pins are removed",
			"sessions", now.sessions, "configured", now.cfg.Sessions, "pins", now.cfg.Pins, "instead", "let a process drain without lane.leave, which resets its sessions at the end, and start the next one")
	}
}

// lasting returns the keys of the lane in force that a reload cannot change to those of next. The size in force is that of the table: while sessions go on
// over a restart it is adopted with them.
func (l *laneState) lasting(next *config.Lane) (keys []config.KeyChange) {
	was := l.cfg
	was.Sessions = l.sessions
	keys = was.Lasting(next)
	for i := range keys {
		if keys[i].Key == "sessions" && l.cfg.Leave {
			keys[i].New += config.UnlessLeft
		}
	}
	return keys
}
