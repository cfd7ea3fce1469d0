package balancer

import (
	"net/netip"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
)

// A view is what is in force, for those who only look and must not wait.
type view struct {
	addresses  []netip.AddrPort             // of the listeners
	listenings map[string][]*core.Listening // by listener
	bounds     []*bound                     // that are not given up
	doors      map[string]*dispatch.Door    // by listener
}

// look makes the view of what is in force now.
func (s *Server) look() {
	v := &view{listenings: make(map[string][]*core.Listening), doors: make(map[string]*dispatch.Door, len(s.listeners))}
	for name, l := range s.listeners {
		v.doors[name] = l.door
		for _, key := range l.keys {
			b := s.binds[key]
			if b == nil || b.listening == nil {
				continue
			}
			v.listenings[name] = append(v.listenings[name], b.listening)
			v.bounds = append(v.bounds, b)
			v.addresses = append(v.addresses, b.listener.Own()...)
		}
	}
	for _, b := range s.lingering {
		v.listenings[b.owner] = append(v.listenings[b.owner], b.listening)
	}
	s.view.Store(v)
}
