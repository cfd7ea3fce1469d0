package admin

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An EndpointVerb is a way in which an endpoint is changed by hand.
type EndpointVerb string

// The ways in which an endpoint is changed.
const (
	EndpointAdd    EndpointVerb = "add"
	EndpointRemove EndpointVerb = "remove"
	EndpointWeight EndpointVerb = "weight"
	EndpointReady  EndpointVerb = "ready" // it gets clients again, also after remove
	EndpointDrain  EndpointVerb = "drain" // no new clients; its sessions have drain_timeout, and it is checked
	EndpointMaint  EndpointVerb = "maint" // no new clients; its sessions go on, and it is not checked
)

// An EndpointChange is a change of an endpoint by hand.
type EndpointChange struct {
	What     EndpointVerb
	Upstream string
	Endpoint string // its name or its address; of EndpointAdd its address
	Weight   int    // of EndpointAdd and EndpointWeight

	// Of EndpointAdd.
	Name        string // empty: its address
	Zone        string
	Backup      bool
	Connections int64 // limit of its sessions; 0: none
}

// EndpointChanged is the result of an [EndpointChange].
type EndpointChanged struct {
	Endpoint string `json:"endpoint"` // its name
	From     string `json:"from"`
	To       string `json:"to"` // equal to From: nothing was changed
	// Weight is its weight now; with 0 it gets no clients. 0 as well if it is removed.
	Weight int `json:"weight"`
	// Taking is the number of endpoints of the upstream that may get clients now, whatever their checks say.
	Taking int `json:"taking"`
	// Unkept is why the change ends with the process; empty: it survives a restart.
	Unkept string `json:"unkept,omitempty"`
}

// A LiveChange is a change by hand that is in force.
type LiveChange struct {
	What     string    `json:"what"`               // a readable line
	Kind     string    `json:"kind"`               // endpoint added, endpoint removed, endpoint state, endpoint weight, listener drained or split
	Upstream string    `json:"upstream,omitempty"` // that it is about, as with Endpoint and Listener; left out: it is about none
	Endpoint string    `json:"endpoint,omitempty"`
	Listener string    `json:"listener,omitempty"`
	Line     string    `json:"line,omitempty"` // of the configuration, that it stands on
	By       string    `json:"by"`             // who asked for it
	Since    time.Time `json:"since"`          // when it was made
	// Waits is why the change has no effect now: its endpoint is not there.
	Waits string `json:"waits,omitempty"`
	// Ends is, in a [Plan], why a reload would end it; empty: it goes on.
	Ends string `json:"ends,omitempty"`
}

// A StateFile is the file that keeps changes by hand over a restart.
type StateFile struct {
	Path string `json:"path"` // absolute
	// Problem is why they are not kept, or what was wrong with the file at the start.
	Problem string `json:"problem,omitempty"`
}

func (s *Server) endpointAdd(_ context.Context, a *arguments) (any, error) {
	c := &EndpointChange{What: EndpointAdd, Upstream: a.upstream, Endpoint: a.address, Name: a.name, Zone: a.zone, Weight: 1, Backup: a.backup, Connections: int64(a.connections)}
	if a.weighed {
		c.Weight = a.weight
	}
	if strings.HasPrefix(a.address, "unix:") && !a.trusted {
		return nil, forbidden("endpoint add: %s: only root or the user of the process may add a unix socket, and only over the unix socket of the admin API, because its server would take clients for the process's user: write it into the configuration file", a.address)
	}
	return s.cfg.Balancer.ChangeEndpoint(c, a.by)
}

// endpointVerb returns the handler of requests that change an existing endpoint.
func endpointVerb(what EndpointVerb) func(*Server, context.Context, *arguments) (any, error) {
	return func(s *Server, _ context.Context, a *arguments) (any, error) {
		return s.cfg.Balancer.ChangeEndpoint(&EndpointChange{What: what, Upstream: a.upstream, Endpoint: a.endpoint, Weight: a.weight}, a.by)
	}
}

// ChangeEndpoint calls [Balancer].ChangeEndpoint.
func (c *Client) ChangeEndpoint(ctx context.Context, e *EndpointChange) (EndpointChanged, error) {
	pairs := named{"upstream", e.Upstream, "endpoint", e.Endpoint}
	if e.What == EndpointAdd {
		pairs = named{"upstream", e.Upstream, "address", e.Endpoint, "name", e.Name, "zone", e.Zone, "backup", e.Backup, "connections", e.Connections}
	}
	if e.What == EndpointAdd || e.What == EndpointWeight {
		pairs = append(pairs, "weight", fmt.Sprint(e.Weight))
	}
	return post[EndpointChanged](ctx, c, "/v1/endpoint/"+string(e.What), pairs...)
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
