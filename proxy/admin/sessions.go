package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
)

// maxSessions is the number of sessions that are listed.
const maxSessions = 50_000

// A Session is a client that is served, at the moment at which it was listed.
type Session struct {
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
	Loop  int    `json:"loop"` // index of the event loop; -1: on a goroutine
	AgeUs int64  `json:"age_us"`
	// IdleUs is the time without a byte, or since the state has changed; nil: unknown.
	IdleUs *int64 `json:"idle_us,omitempty"`
	Bytes  Bytes  `json:"bytes"`
}

// Sessions is a list of sessions.
type Sessions struct {
	Sessions []Session `json:"sessions"`
	More     bool      `json:"more,omitempty"` // there are more than those
}

// sessions handles GET /sessions.
func (s *Server) sessions(ctx context.Context, _ *arguments) (any, error) {
	return sessionStream{s.cfg.Balancer.Sessions(ctx)}, nil
}

// A sessionStream is encoded as Sessions, without a list in memory. If its client reads slowly, the
// sessions are listed as slowly.
type sessionStream struct{ sessions iter.Seq[Session] }

// encode writes the sessions, until a write fails.
func (s sessionStream) encode(out io.Writer) {
	w := bufio.NewWriterSize(out, 32<<10)
	e := newEncoder(w, "    ")
	_, err := w.WriteString("{\n  \"sessions\": [")
	n, more, last := 0, false, "]"
	for one := range s.sessions {
		if more = n == maxSessions; more || err != nil {
			break
		}
		_, err = w.WriteString([]string{"\n    ", "    ,"}[min(n, 1)])
		err = errors.Join(err, e.Encode(&one))
		n, last = n+1, "  ]"
	}
	_, _ = w.WriteString(last)
	if more {
		_, _ = w.WriteString(",\n  \"more\": true")
	}
	_, _ = w.WriteString("\n}\n")
	_ = w.Flush() // the client may have closed the connection
}

// Sessions returns the clients that are served, up to 50,000. Each one is in the list at most
// once: those that stay during the listing, and some of those that come or leave meanwhile.
func (c *Client) Sessions(ctx context.Context) (s Sessions, err error) {
	return s, c.do(ctx, http.MethodGet, "/sessions", nil, &s)
}
