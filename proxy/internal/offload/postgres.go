package offload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/postgres"
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

// startTLS asks the endpoint of a connection for TLS, by the protocol of PostgreSQL. It gives up when ctx ends.
func startTLS(ctx context.Context, conn net.Conn) error {
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(tlsterm.DefaultTimeout)
	}
	_ = conn.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := postgres.Negotiate(conn)
	if stop() {
		_ = conn.SetDeadline(time.Time{})
	}
	return err
}
