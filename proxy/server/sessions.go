package server

import (
	"context"
	"iter"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// Sessions implements [admin.Balancer]. It takes a few sessions at a time from where they are
// served, which goes on meanwhile, so yield may take its time.
func (s *Server) Sessions(ctx context.Context) iter.Seq[admin.Session] {
	return func(yield func(admin.Session) bool) {
		for one := range s.group.Sessions(ctx) {
			if !yield(sessionStatus(&one)) {
				return
			}
		}
	}
}

func sessionStatus(of *worker.Session) admin.Session {
	s := admin.Session{
		Client: of.Client, Listener: of.Listener, Upstream: of.Upstream, Endpoint: of.Endpoint, Name: of.EndpointName,
		State: string(of.State), Loop: of.Loop, AgeUs: of.Age.Microseconds(),
		Bytes: bytesOf(worker.Bytes{ClientToEndpoint: of.ClientToEndpoint, EndpointToClient: of.EndpointToClient}, worker.Bytes{}),
	}
	if of.Idle >= 0 {
		us := of.Idle.Microseconds()
		s.IdleUs = &us
	}
	return s
}
