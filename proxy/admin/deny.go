package admin

import (
	"context"
	"fmt"
	"time"
)

// A Denial denies sources for a time, beside the rules of the configuration. It is the form in which denials
// are kept.
type Denial struct {
	Source   string    `json:"source"`             // as in [SessionQuery]
	Listener string    `json:"listener,omitempty"` // "": all
	Until    time.Time `json:"until"`              // its end
	Since    time.Time `json:"since"`              // when it was made
	By       string    `json:"by,omitempty"`       // who asked for it
}

// Bounds of denials.
const (
	LeastDenial = time.Second
	MaxDenial   = 366 * 24 * time.Hour
	MaxDenials  = 10_000
)

// Denied is a list of denials.
type Denied struct {
	Denied []Denial `json:"denied"` // in force
}

// Denials describes the denials in force; GET /v1/denied lists them.
type Denials struct {
	Count  int      `json:"count"`  // all
	Latest []Denial `json:"latest"` // up to 10, the latest first
}

// ListenerDenials describes the denials in force at a listener. Clients and Refused count since the latest of them
// was made, but not longer than about a minute.
type ListenerDenials struct {
	Count   int    `json:"count"` // all of its
	Latest  Denial `json:"latest"`
	All     bool   `json:"all,omitempty"` // every client is denied
	Clients int64  `json:"clients"`       // that have come
	Refused int64  `json:"refused"`       // by the denials
}

// nearlyAll reports whether the denials refuse nine of ten clients, or more.
func (d *ListenerDenials) nearlyAll() bool { return d.Refused > 0 && d.Refused*10 >= d.Clients*9 }

// NewDenial is the answer to a new denial.
type NewDenial struct {
	Denial
	// Unkept is why the denial ends with the process; empty: it survives a restart.
	Unkept string `json:"unkept,omitempty"`
	Ended  *Ended `json:"ended,omitempty"` // sessions of the source; nil: they go on
}

func (s *Server) denied(context.Context, *arguments) (any, error) {
	return Denied{s.cfg.Balancer.Denied()}, nil
}

func (s *Server) denyAdd(ctx context.Context, a *arguments) (any, error) {
	if a.window < LeastDenial || a.window > MaxDenial {
		return nil, fmt.Errorf("%w: the time %v of the denial: write a time from 1s to 8784h (366 days), such as 1h", ErrInvalid, a.window)
	}
	d, err := s.cfg.Balancer.Deny(a.source, a.listener, a.window, a.by)
	if err != nil || !a.endToo {
		return d, err
	}
	ended, err := s.cfg.Balancer.EndSessions(ctx, EndQuery{SessionQuery: SessionQuery{Source: a.source, Listener: a.listener}, Now: true}, a.by)
	d.Ended = &ended
	return d, err
}

func (s *Server) denyRemove(_ context.Context, a *arguments) (any, error) {
	return empty{}, s.cfg.Balancer.Undeny(a.source, a.listener, a.by)
}

// Deny denies a source for a time, at a listener or at all. With end its sessions are ended at once.
func (c *Client) Deny(ctx context.Context, source, listener string, within time.Duration, end bool) (NewDenial, error) {
	return post[NewDenial](ctx, c, "/v1/deny/add", "source", source, "listener", listener, "for", within, "end", end)
}

// Undeny takes a denial back.
func (c *Client) Undeny(ctx context.Context, source, listener string) error {
	_, err := post[empty](ctx, c, "/v1/deny/remove", "source", source, "listener", listener)
	return err
}

// Denied returns the denials in force.
func (c *Client) Denied(ctx context.Context) (Denied, error) {
	return get[Denied](ctx, c, "/v1/denied")
}
