package server

import (
	"net/netip"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A view is the present state, for readers that must not wait.
type view struct {
	addresses  []netip.AddrPort                 // of the listeners
	listenings map[string][]*worker.Listening   // by listener
	sockets    []*listenSocket                  // that are not given up
	states     map[string]*router.ListenerState // by listener
}

// refreshView makes the view of the present state.
func (s *Server) refreshView() {
	v := &view{listenings: make(map[string][]*worker.Listening), states: make(map[string]*router.ListenerState, len(s.listeners))}
	for name, l := range s.listeners {
		v.states[name] = l.state
		for _, key := range l.keys {
			socket := s.binds[key]
			if socket == nil || socket.listening == nil {
				continue
			}
			v.listenings[name] = append(v.listenings[name], socket.listening)
			v.sockets = append(v.sockets, socket)
			v.addresses = append(v.addresses, socket.listener.Own()...)
		}
	}
	for _, socket := range s.replaced {
		v.listenings[socket.owner] = append(v.listenings[socket.owner], socket.listening)
	}
	s.view.Store(v)
}
