package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// A SourceQuery selects and sorts sources.
type SourceQuery struct {
	By  string // one of SourceOrders; empty: the first
	Top int    // the length of the list, up to MaxTop; 0: DefaultTop
	// Prefix4 and Prefix6 are the bits of an address that make one source; 0: 32 and 64.
	Prefix4, Prefix6 int
}

// SourceOrders are the orders, the largest number first.
var SourceOrders = []string{"connections", "rate", "refusals", "bytes"}

// DefaultTop is how many sources are listed.
const DefaultTop = 20

// A Source is the clients of an address, a prefix, or a user of unix sockets.
type Source struct {
	Source      string  `json:"source"`      // an address, a prefix or a user, as a query takes it
	Connections int64   `json:"connections"` // now
	PerSecond   float64 `json:"per_second"`  // new connections, of the last ten seconds
	Refused     int64   `json:"refused"`     // clients, of the last minute
	Bytes       int64   `json:"bytes"`       // of the connections that there are
}

// Sources is a list of sources.
type Sources struct {
	Sources []Source `json:"sources"` // the largest number first
	Known   int      `json:"known"`   // the number of sources that this list was chosen from
	// Beyond counts connections, arrivals and refusals of sources for which there was no room.
	Beyond int64 `json:"beyond,omitempty"`
}

// sources handles GET /v1/sources.
func (s *Server) sources(ctx context.Context, a *arguments) (any, error) {
	q := SourceQuery{a.orderOfSources, a.top, a.prefix4, a.prefix6}
	if q.Prefix4 > 32 || q.Prefix6 > 128 {
		return nil, fmt.Errorf("%w: prefixes have at most 32 and 128 bits", ErrInvalid)
	}
	return s.cfg.Balancer.Sources(ctx, q)
}

// Sources returns the sources with the most of something.
func (c *Client) Sources(ctx context.Context, q SourceQuery) (s Sources, err error) {
	values := url.Values{}
	if q.By != "" {
		values.Set("by", q.By)
	}
	for name, n := range map[string]int{"top": q.Top, "prefix": q.Prefix4, "prefix6": q.Prefix6} {
		if n != 0 {
			values.Set(name, strconv.Itoa(n))
		}
	}
	return s, c.do(ctx, http.MethodGet, "/v1/sources", values, &s)
}
