package server

import (
	"maps"
	"weak"

	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Held holds the objects of the configuration in force, each by its name.
type Held struct {
	Services map[string]*worker.Service
	Views    map[string]*router.UpstreamSnapshot
	Sets     map[string]*lb.Set
}

// Equal reports whether they are the same.
func (h Held) Equal(o Held) bool {
	return maps.Equal(h.Services, o.Services) && maps.Equal(h.Views, o.Views) && maps.Equal(h.Sets, o.Sets)
}

// Held returns the objects of the configuration in force.
func (s *Server) Held() Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Held{map[string]*worker.Service{}, map[string]*router.UpstreamSnapshot{}, map[string]*lb.Set{}}
	for name, l := range s.listeners {
		for _, key := range l.keys {
			if socket := s.binds[key]; socket != nil {
				h.Services[name] = socket.listening.Service()
			}
		}
	}
	for name, u := range s.upstreams {
		h.Views[name], h.Sets[name] = u.snapshot, u.snapshot.Set()
	}
	return h
}

// EndpointsOf returns the endpoints of an upstream.
func (s *Server) EndpointsOf(upstream string) (list []weak.Pointer[router.Endpoint]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.upstreams[upstream].order {
		list = append(list, weak.Make(m.endpoint))
	}
	return list
}

// Judged returns how many endpoints of an upstream are judged.
func (s *Server) Judged(upstream string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, n := s.upstreams[upstream].outlier.Ejected()
	return n
}

// Knows reports whether an upstream knows an endpoint at an address, even if it is not a member.
func (s *Server) Knows(upstream, address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	up := s.upstreams[upstream].router
	e, made, err := up.Endpoint(address, sockopt.Address{Network: "tcp", Name: address}, lb.EndpointConfig{ID: address})
	if made {
		up.Forget(e)
	}
	return err == nil && !made
}
