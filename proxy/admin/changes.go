package admin

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An EndpointVerb is a way to change an endpoint by hand.
type EndpointVerb string

// The ways to change an endpoint.
const (
	EndpointAdd    EndpointVerb = "add"
	EndpointRemove EndpointVerb = "remove"
	EndpointWeight EndpointVerb = "weight"
	EndpointReady  EndpointVerb = "ready" // gets clients again, even after remove
	EndpointDrain  EndpointVerb = "drain" // no new clients; sessions may last for drain_timeout; checks continue
	EndpointMaint  EndpointVerb = "maint" // no new clients and no checks; sessions continue
)

// An EndpointChange is a change to an endpoint by hand.
type EndpointChange struct {
	What     EndpointVerb
	Upstream string `param:"upstream"`
	Endpoint string // name or address; for EndpointAdd the address
	Weight   int    `param:"weight"` // for EndpointAdd and EndpointWeight

	// For EndpointAdd.
	Name        string `param:"name"` // empty means the address
	Zone        string `param:"zone"`
	Backup      bool   `param:"backup"`
	Connections int64  // limit of sessions; 0 is none
}

// EndpointChanged is the result of an [EndpointChange].
type EndpointChanged struct {
	Endpoint string `json:"endpoint"` // name of the endpoint
	From     string `json:"from"`
	To       string `json:"to"` // the new value; equal to From if nothing was changed
	// Weight is the endpoint's weight now, or 0 if it was removed. With 0 the endpoint gets no clients.
	Weight int `json:"weight"`
	// Taking is how many endpoints of the upstream take clients now. If it is 0, Others says why the endpoints take
	// none, except for an endpoint that this change has taken out. Others is left out if there is nothing to say.
	Taking int    `json:"taking"`
	Others string `json:"others,omitempty"`
	// Sessions is the number of the endpoint's sessions. ResetAfterMs is how long they may last while the endpoint is
	// drained. It is left out otherwise.
	Sessions     int64  `json:"sessions"`
	ResetAfterMs *int64 `json:"reset_after_ms,omitempty"`
	// Unkept says why the change is lost at a restart. Left out if nothing is lost.
	Unkept string `json:"unkept,omitempty"`
}

// A LiveChange is a change by hand that is in force.
type LiveChange struct {
	What     string    `json:"what"`               // change in words
	Kind     string    `json:"kind"`               // kind: endpoint added, endpoint removed, endpoint state, endpoint weight, listener drained, split or denied
	Upstream string    `json:"upstream,omitempty"` // the change is about this upstream, Endpoint or Listener; the others are left out
	Endpoint string    `json:"endpoint,omitempty"`
	Listener string    `json:"listener,omitempty"`
	Line     string    `json:"line,omitempty"` // line of the configuration that it changes
	By       string    `json:"by"`             // who made the change
	Since    time.Time `json:"since"`          // when the change was made
	// Waits says that the change has no effect now, because its endpoint does not exist. Left out otherwise.
	Waits string `json:"waits,omitempty"`
	// Ends says in a [Plan] why the reload would end the change. Left out if it would not.
	Ends string `json:"ends,omitempty"`
}

// A StateFile is the file that keeps changes by hand over a restart.
type StateFile struct {
	Path string `json:"path"` // absolute path
	// Problem says why changes are not kept, or what was wrong with the file at the start.
	Problem string `json:"problem,omitempty"`
}

func (s *Server) endpointAdd(_ context.Context, a *arguments) (any, error) {
	c := &EndpointChange{What: EndpointAdd, Endpoint: a.text("address"), Weight: 1, Connections: int64(argument[int](a, "connections"))}
	a.into(c)
	if strings.HasPrefix(c.Endpoint, "unix:") && !a.trusted {
		return nil, forbidden("endpoint add: %s: only root or the user of the process may add a unix socket, and only over the unix socket of the admin API, because its server would take clients for the process's user: write it into the configuration file", c.Endpoint)
	}
	return s.cfg.Balancer.ChangeEndpoint(c, a.by)
}

func endpointVerb(what EndpointVerb) func(*Server, context.Context, *arguments) (any, error) {
	return func(s *Server, _ context.Context, a *arguments) (any, error) {
		c := &EndpointChange{What: what, Endpoint: a.text("endpoint")}
		a.into(c)
		return s.cfg.Balancer.ChangeEndpoint(c, a.by)
	}
}

// ChangeEndpoint calls [Balancer].ChangeEndpoint.
func (c *Client) ChangeEndpoint(ctx context.Context, e *EndpointChange) (EndpointChanged, error) {
	all := []any{"upstream", e.Upstream, "endpoint", e.Endpoint}
	if e.What == EndpointAdd {
		all = append(pairs(e), "address", e.Endpoint, "connections", e.Connections)
	}
	if e.What == EndpointAdd || e.What == EndpointWeight {
		all = append(all, "weight", fmt.Sprint(e.Weight)) // 0, too
	}
	return post[EndpointChanged](ctx, c, "/v1/endpoint/"+string(e.What), all...)
}

// ParsePercent reads percentages of upstreams, each one written "shop:95" or, to a hundredth,
// "shop:99.75". Their sum must be 100. The error wraps [ErrInvalid].
func ParsePercent(list []string) (map[string]float64, error) {
	percent, sum := make(map[string]float64, len(list)), 0
	for _, text := range list {
		i := strings.LastIndexByte(text, ':')
		hundredths, ok := parseHundredths(strings.TrimSuffix(text[i+1:], "%"))
		if i <= 0 || !ok {
			return nil, fmt.Errorf("%w: %q: write an upstream and its percentage, such as shop:95 or shop:99.75", ErrInvalid, text)
		}
		if _, twice := percent[text[:i]]; twice {
			return nil, fmt.Errorf("%w: duplicate upstream %s", ErrInvalid, text[:i])
		}
		percent[text[:i]], sum = float64(hundredths)/100, sum+hundredths
	}
	if sum != 100_00 {
		return nil, fmt.Errorf("%w: the percentages add up to %v: write percentages that add up to 100", ErrInvalid, float64(sum)/100)
	}
	return percent, nil
}

// parseHundredths reads a percentage in decimal digits, to at most a hundredth.
func parseHundredths(text string) (hundredths int, ok bool) {
	p, err := strconv.ParseFloat(text, 64)
	if err != nil || !(p >= 0 && p <= 100) || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	whole := math.Round(p * 100)
	return int(whole), math.Abs(whole-p*100) < 1e-6
}

// A Denial denies sources for a time, in addition to the rules of the configuration. The state file keeps denials in
// this form.
type Denial struct {
	Source   string    `json:"source"`             // as in [SessionQuery]
	Listener string    `json:"listener,omitempty"` // "": all
	Until    time.Time `json:"until"`              // its end
	Since    time.Time `json:"since"`              // when the change was made
	By       string    `json:"by,omitempty"`       // who made the change
	// Waits says that the denial has no effect now, because its listener does not exist. Left out otherwise.
	Waits string `json:"waits,omitempty"`
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

// Denials describes the denials in force. GET /v1/denied lists them.
type Denials struct {
	Count  int      `json:"count"`  // all
	Latest []Denial `json:"latest"` // up to 10 of them, the latest first
}

// ListenerDenials describes the denials in force at a listener. Clients and Refused count since the latest denial was
// made, but at most for about a minute.
type ListenerDenials struct {
	Count   int    `json:"count"`         // all of its
	Latest  Denial `json:"latest"`        // if all clients are denied, the latest denial of all
	All     bool   `json:"all,omitempty"` // the denials cover every client
	Clients int64  `json:"clients"`       // that have come
	Refused int64  `json:"refused"`       // by the denials
}

// nearlyAll reports whether the denials refuse nine of ten clients or more.
func (d *ListenerDenials) nearlyAll() bool { return d.Refused > 0 && d.Refused*10 >= d.Clients*9 }

// NewDenial is the answer to a new denial.
type NewDenial struct {
	Denial
	// Unkept says why the change is lost at a restart. Left out if it is kept.
	Unkept string `json:"unkept,omitempty"`
	Ended  *Ended `json:"ended,omitempty"` // the source's sessions that were ended; left out if they continue
}

func (s *Server) denyAdd(ctx context.Context, a *arguments) (any, error) {
	within := argument[time.Duration](a, "for")
	if within < LeastDenial || within > MaxDenial {
		return nil, fmt.Errorf("%w: the time %v of the denial: write a time from 1s to 8784h (366 days), such as 1h", ErrInvalid, within)
	}
	d, err := s.cfg.Balancer.Deny(a.text("source"), a.text("listener"), within, a.by)
	if err != nil || !argument[bool](a, "end") {
		return d, err
	}
	q := EndQuery{Now: true}
	a.into(&q)
	ended, err := s.cfg.Balancer.EndSessions(ctx, q, a.by)
	if err != nil {
		return nil, fmt.Errorf("%s is denied, but its sessions were not ended: %w", d.Source, err)
	}
	d.Ended = &ended
	return d, nil
}

// Deny denies a source for a time, at a listener or at all. With end its sessions are ended at once.
func (c *Client) Deny(ctx context.Context, source, listener string, within time.Duration, end bool) (NewDenial, error) {
	return post[NewDenial](ctx, c, "/v1/deny/add", "source", source, "listener", listener, "for", within, "end", end)
}

// Undeny takes a denial back.
func (c *Client) Undeny(ctx context.Context, source, listener string) (Changed, error) {
	return post[Changed](ctx, c, "/v1/deny/remove", "source", source, "listener", listener)
}

// Denied returns the denials in force.
func (c *Client) Denied(ctx context.Context) (Denied, error) {
	return get[Denied](ctx, c, "/v1/denied")
}
