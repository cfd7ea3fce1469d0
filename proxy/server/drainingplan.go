package server

import (
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/config"
)

// A Draining is sessions of a listener that drain, for it listens at their address no more.
type Draining struct {
	Sessions int64
	Within   time.Duration // the last of them is reset by then
}

// DrainingUnder returns the sessions that drain since their listener has left their address, or was drained, and that go on doing so if a configuration comes into
// force, by the listener's name: one that is to listen there again gets its sessions back.
func (s *Server) DrainingUnder(cfg *config.Config) map[string]Draining {
	s.mu.Lock()
	defer s.mu.Unlock()
	back, found := s.rejoined(cfg), make(map[string]Draining)
	for key, list := range s.draining {
		for _, p := range list {
			if back(p.owner, key) {
				continue
			}
			of := found[p.owner]
			for _, l := range p.of {
				of.Sessions += l.Clients()
			}
			of.Within = max(of.Within, time.Until(p.cut.ends()))
			found[p.owner] = of
		}
	}
	return found
}

// rejoined returns a function that reports whether a listener of a configuration listens at an address, by its key. The server's mu is held.
func (s *Server) rejoined(cfg *config.Config) func(listener, key string) bool {
	type place struct{ listener, key string }
	at, lives := make(map[place]bool), s.livesUnder(cfg)
	for _, l := range cfg.Listeners {
		if lives.set.drained(l.Name) {
			continue
		}
		for _, b := range l.Bind {
			if b.Systemd != "" {
				at[place{l.Name, passedKey(b.Systemd, "")}] = true
			} else {
				at[place{l.Name, bindKey(l, b)}] = true
			}
		}
	}
	return func(listener, key string) bool {
		if i := strings.LastIndexByte(key, '#'); i >= 0 && at[place{listener, key[:i+1]}] {
			return true
		}
		return at[place{listener, key}]
	}
}
