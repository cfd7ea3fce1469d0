package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

func (s *Server) endpointAdd(_ context.Context, a *arguments) (any, error) {
	c := &EndpointChange{What: EndpointAdd, Upstream: a.upstream, Endpoint: a.address, Name: a.name, Zone: a.zone, Weight: 1, Backup: a.backup, Connections: int64(a.connections)}
	if a.weighed {
		c.Weight = a.weight
	}
	return s.cfg.Balancer.ChangeEndpoint(c, a.by)
}

// endpointVerb returns the answer to requests that change an endpoint that there is.
func endpointVerb(what EndpointVerb) func(*Server, context.Context, *arguments) (any, error) {
	return func(s *Server, _ context.Context, a *arguments) (any, error) {
		return s.cfg.Balancer.ChangeEndpoint(&EndpointChange{What: what, Upstream: a.upstream, Endpoint: a.endpoint, Weight: a.weight}, a.by)
	}
}

func (s *Server) listenerReady(ctx context.Context, a *arguments) (any, error) {
	return empty{}, s.cfg.Balancer.ReadyListener(ctx, a.listener, a.by)
}

// ChangeEndpoint calls [Balancer].ChangeEndpoint.
func (c *Client) ChangeEndpoint(ctx context.Context, e *EndpointChange) (done EndpointChanged, err error) {
	q := url.Values{"upstream": {e.Upstream}, "endpoint": {e.Endpoint}}
	if e.What == EndpointAdd {
		q = url.Values{"upstream": {e.Upstream}, "address": {e.Endpoint}}
		for key, value := range map[string]string{"name": e.Name, "zone": e.Zone} {
			if value != "" {
				q.Set(key, value)
			}
		}
		if e.Backup {
			q.Set("backup", "true")
		}
		if e.Connections != 0 {
			q.Set("connections", fmt.Sprint(e.Connections))
		}
	}
	if e.What == EndpointAdd || e.What == EndpointWeight {
		q.Set("weight", fmt.Sprint(e.Weight))
	}
	return done, c.do(ctx, http.MethodPost, "/v1/endpoint/"+string(e.What), q, &done)
}

// ReadyListener calls [Balancer].ReadyListener.
func (c *Client) ReadyListener(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/listener/ready", url.Values{"listener": {name}}, nil)
}
