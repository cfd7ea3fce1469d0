package balancer

import (
	"net/netip"

	"github.com/penstock/penstock/proxy/core"
)

// A view is what is in force, for those who only look and must not wait.
type view struct {
	addresses  []netip.AddrPort             // of the listeners
	listenings map[string][]*core.Listening // by listener
	bounds     []*bound                     // that are not given up
}

// look makes the view of what is in force now.
func (s *Server) look() {
	v := &view{listenings: make(map[string][]*core.Listening)}
	for name, l := range s.listeners {
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
