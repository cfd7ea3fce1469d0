package offload

import (
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// errCancel is the error of a client that has sent a CancelRequest after its handshake.
var errCancel = errors.New("a CancelRequest")

// login reads the startup message of a client with TLS that ends here. The error is errCancel for a
// CancelRequest. offloaded.Startup then has the bytes of the request.
func (s *Server) login(h *worker.Offloaded, offloaded *router.Offloaded, conn *tlsterm.Conn) error {
	state, said := conn.ConnectionState(), &h.Client.Postgres
	h.Client.Hello = clienthello.Info{ServerName: strings.ToLower(state.ServerName)}
	if state.NegotiatedProtocol != "" {
		h.Client.Hello.ALPN = []string{state.NegotiatedProtocol}
	}
	if !said.Asked && state.NegotiatedProtocol != postgres.Protocol {
		return fmt.Errorf("%w: its TLS handshake did not negotiate the protocol %s", postgres.ErrNotPostgres, postgres.Protocol)
	}
	var m postgres.Message
	err := firstBytes(h, offloaded, conn, func() (err error) {
		m, offloaded.Startup, err = postgres.Read(conn)
		return err
	}, "its PostgreSQL message")
	switch {
	case err != nil:
		return err
	case m.Kind == postgres.CancelRequest:
		return errCancel
	case m.Kind != postgres.Startup:
		return postgres.ErrAgain
	}
	said.Said(&m)
	h.Client.Record.Login(m.User, m.Database)
	return nil
}

// pgRefusals are the SQLSTATEs and texts with which clients of PostgreSQL are refused. They tell a client no
// more than that it is refused, and for what kind of cause. The last entry is for all other causes.
var pgRefusals = []struct {
	causes []error
	answer []byte
}{
	{[]error{limit.ErrDenied, limit.ErrDeniedNow, worker.ErrFiltered}, postgres.Refusal(postgres.NotAuthorized, "the proxy does not admit this client")},
	{[]error{router.ErrNoRoute, router.ErrLoop, match.ErrUndecided}, postgres.Refusal(postgres.Rejected, "the proxy has no route for this user, database and address")},
	{
		[]error{
			limit.ErrSourceConnections, limit.ErrSourceRate, limit.ErrSources, lb.ErrFull, router.ErrQueueFull, record.ErrQueueTimeout,
			worker.ErrFilterOverload, tlsterm.ErrSessions,
		},
		postgres.Refusal(postgres.TooManyConnections, "the proxy has too many connections for this client"),
	},
	{[]error{worker.ErrPrereadTimeout, worker.ErrPrereadEnded}, postgres.Refusal(postgres.ProtocolViolation, "the startup message of this client was not complete in time")},
	{[]error{worker.ErrPrereadMemory, postgres.ErrNotPostgres, postgres.ErrMalformed, postgres.ErrEarly, postgres.ErrAgain}, postgres.Refusal(postgres.ProtocolViolation, "the proxy cannot read the startup message of this client")},
	{[]error{worker.ErrFilterFailed}, postgres.Refusal(postgres.CannotConnectNow, "the proxy cannot decide at present whether to admit this client")},
	{nil, postgres.Refusal(postgres.CannotConnectNow, "the proxy can reach no server for this client at present")},
}

func pgRefusal(cause error) []byte {
	for _, r := range pgRefusals {
		for _, of := range r.causes {
			if errors.Is(cause, of) {
				return r.answer
			}
		}
	}
	return pgRefusals[len(pgRefusals)-1].answer
}

// Refusal returns the [worker.Service.Refusal] of a listener with or without the key postgres. A client that
// has begun like a client of PostgreSQL, without TLS, gets an ErrorResponse.
func Refusal(speaksPostgres bool) func(c *worker.Client, cause error) []byte {
	return func(c *worker.Client, cause error) []byte {
		request := c.First.Request
		if c.Postgres.TLS || !speaksPostgres && (c.First.Is(firstbytes.Postgres) != firstbytes.Yes || request == firstbytes.CancelRequest) {
			return nil
		}
		return pgRefusal(cause)
	}
}
