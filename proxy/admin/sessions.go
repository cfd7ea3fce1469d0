package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// A Session is a client that is served, at the moment at which it was listed.
type Session struct {
	// ID names it in later requests. A client keeps its ID until it has an endpoint, and its session until it
	// ends.
	ID       string `json:"id"`
	Client   string `json:"client"`             // its source, by its PROXY header if there was one
	Listener string `json:"listener"`           // where it came in
	Upstream string `json:"upstream,omitempty"` // "" while it has no endpoint, as with Endpoint and Name
	Endpoint string `json:"endpoint,omitempty"` // its address
	Name     string `json:"name,omitempty"`     // of the endpoint
	// EndpointLocal is this machine's address of the connection to the endpoint; "": not known, or not of TCP.
	EndpointLocal string `json:"endpoint_local,omitempty"`
	// State is one of preread, dialing, waiting, responding, joined, client-ended (its end of
	// file was passed on), endpoint-ended, ending.
	State string `json:"state"`
	Loop  int    `json:"loop"`   // index of the event loop; -1: on a goroutine
	AgeUs int64  `json:"age_us"` // since the client was accepted, in microseconds
	// IdleUs is the time without a byte, or since the state has changed; nil: unknown.
	IdleUs *int64 `json:"idle_us,omitempty"`
	Bytes  Bytes  `json:"bytes"`
	// Engine is lane for one that has left user space; else splice, copy or both, by the bytes so far; "": there were
	// none.
	Engine string `json:"engine,omitempty"`
	// Adopted says that a process before this one had the session: its listener and upstream are [UnknownName], and its name is "", where the configuration has no such
	// part any more, and its bytes are those since it left user space.
	Adopted bool `json:"adopted,omitempty"`
	// Verdict is what has limited it since its beginning; "": that was not asked for.
	Verdict string `json:"verdict,omitempty"`
}

// Sessions is a list of sessions.
type Sessions struct {
	Sessions []Session `json:"sessions"`       // in the order that was asked for
	More     bool      `json:"more,omitempty"` // there are more than those
}

// A SessionList is the answer of [Balancer].Sessions.
type SessionList struct {
	Sessions iter.Seq[Session] // once
	// More reports, after that, whether there are more than those.
	More func() bool
}

// sessions handles GET /v1/sessions.
func (s *Server) sessions(ctx context.Context, a *arguments) (any, error) {
	list, err := s.cfg.Balancer.Sessions(ctx, a.query(), SessionOrder{a.sort, a.top})
	if err != nil {
		return nil, err
	}
	return sessionStream(list), nil
}

// query returns the query of a request.
func (a *arguments) query() SessionQuery {
	q := a.filters
	q.Listener, q.Upstream, q.Endpoint, q.Source = a.listener, a.upstream, a.endpoint, a.source
	return q
}

// A sessionStream is encoded as Sessions, without a list in memory. If its client reads slowly, the
// sessions are listed as slowly.
type sessionStream SessionList

// encode writes the sessions, one a line, until a write fails.
func (s sessionStream) encode(out io.Writer) {
	w := bufio.NewWriterSize(out, 32<<10)
	e := newEncoder(w, "")
	e.SetIndent("", "")
	_, err := w.WriteString("{\n  \"sessions\": [")
	n, last := 0, "]"
	for one := range s.Sessions {
		if err != nil {
			break
		}
		_, err = w.WriteString([]string{"\n    ", "    ,"}[min(n, 1)])
		err = errors.Join(err, e.Encode(&one))
		n, last = n+1, "  ]"
	}
	_, _ = w.WriteString(last)
	if s.More() {
		_, _ = w.WriteString(",\n  \"more\": true")
	}
	_, _ = w.WriteString("\n}\n")
	_ = w.Flush() // the client may have closed the connection
}

// Sessions returns the clients that are served and that q selects. Each one is in the list at most
// once: those that stay during the listing, and some of those that come or leave meanwhile.
func (c *Client) Sessions(ctx context.Context, q SessionQuery, o SessionOrder) (s Sessions, err error) {
	values := url.Values{}
	q.set(values)
	if o.By != "" {
		values.Set("sort", o.By)
	}
	if o.Top != 0 {
		values.Set("top", strconv.Itoa(o.Top))
	}
	return s, c.do(ctx, http.MethodGet, "/v1/sessions", values, &s)
}
