package server

import (
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// places returns the listeners and upstreams to which an earlier process's sessions in the lane may belong. The server's mu
// is held.
func (s *Server) places() *lanes.Places {
	p := &lanes.Places{Listeners: make(map[string]*lanes.Listener, len(s.listeners)), Upstreams: make(map[string]*lanes.Upstream, len(s.upstreams)), Now: s.now, Down: s.upstreamManager.down.add}
	bounded := true
	for name, l := range s.listeners {
		p.Idle, bounded = max(p.Idle, l.cfg.Timeouts.Idle), bounded && l.cfg.Timeouts.Idle > 0
		of := &lanes.Listener{Name: name, Router: l.now, Service: l.service}
		for _, socket := range s.binds.at(l.keys) {
			if socket.listening != nil && socket.listener.TCP() {
				of.Sockets = append(of.Sockets, lanes.Socket{Listening: socket.listening, Covers: socket.covers})
			}
		}
		p.Listeners[name] = of
	}
	if !bounded {
		p.Idle = 0
	}
	for name, u := range s.upstreams {
		of := &lanes.Upstream{Name: name, Snapshot: u.snapshot}
		for _, m := range u.order {
			of.Endpoints = append(of.Endpoints, m.endpoint)
		}
		p.Upstreams[name] = of
	}
	return p
}

// laneChanges returns the listeners that from now on keep their sessions in user space, and the listeners that let
// their sessions leave for the lane.
func (c *change) laneChanges() (stay, leave map[string]bool) {
	stay, leave = make(map[string]bool), make(map[string]bool)
	for name, l := range c.listeners {
		if l.old == nil {
			continue
		}
		if was, is := lanes.Use(l.old.cfg) == worker.LaneOn, lanes.Use(l.cfg) == worker.LaneOn; was != is {
			stay[name], leave[name] = was, is
		}
	}
	return stay, leave
}
