package offload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/fanout"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
)

const (
	// cancelTargets is the largest number of endpoints to which one CancelRequest is sent.
	cancelTargets = 256
	// cancelTimeout is how long one connection to an endpoint can take, until the endpoint has closed it.
	cancelTimeout = 2 * time.Second
	// cancelPatience is how long one request can take in all. Endpoints that have not received it by then do
	// not receive it.
	cancelPatience = 10 * time.Second
	// cancelShare bounds the clients that wait for the end of their request. At most the listener's limit of
	// connections, divided by cancelShare, may wait.
	cancelShare = 4
)

// Cancel serves a client that has sent a CancelRequest. It closes the client's connection when all endpoints
// have received the request: to libpq, the close means that the request cannot hit the next query (PQcancel).
// Until then it holds no other descriptor, and no goroutine once the client's filters have answered.
func (s *Server) Cancel(h *worker.Offloaded, l *router.Listener, request []byte) {
	if r := h.Client.Record; r != nil {
		r.TLS = false
	}
	send := func() {
		s.sendCancel(h.Context(), l, h.Client, request, func(err error) {
			h.Close()
			h.End(err)
		})
	}
	if l.Filters() { // the filters block, so they get a goroutine; their number is bounded
		go send()
		return
	}
	send()
}

// sendCancel sends a CancelRequest to each endpoint that can run the query according to the client's routes. It
// calls done when the endpoints have taken the request, or with [worker.ErrCancelOverload]. The request names a
// process and a secret. One of the endpoints has that session, and all others ignore the request.
func (s *Server) sendCancel(ctx context.Context, l *router.Listener, c *worker.Client, request []byte, done func(error)) {
	cfg := l.Config()
	counts := &cfg.State.Cancels
	counts.Requests.Add(1)
	ctx, stop := context.WithTimeout(ctx, cancelPatience)
	var targets []router.CancelTarget
	most := fanout.MaxJobs
	if limit := cfg.State.Connections.Max(); limit > 0 {
		most = max(min(most, int(limit)/cancelShare), 1)
	}
	upstreams := l.CancelUpstreams(ctx, c, request)
	var sent atomic.Bool
	counts.Queue.Add(&fanout.Job{
		Source: uint64(health.SourceOf(c.Source(), cfg.SourcePrefix)),
		Targets: func() int {
			targets = l.CancelTargets(upstreams, c, cancelTargets)
			return len(targets)
		},
		Send: func(i int) {
			to := &targets[i]
			if err := sendCancelTo(ctx, to, to.Header(l, c), request); err != nil {
				counts.Failed.Add(1)
				s.cfg.Log.Debug("a CancelRequest could not be sent", "listener", l.Name(), "endpoint_address", to.String(), "error", err)
				return
			}
			counts.Sent.Add(1)
			sent.Store(true)
		},
		Done: func(err error) {
			stop()
			if err != nil {
				err = worker.ErrCancelOverload
			} else {
				c.Record.Requested(sent.Load())
			}
			done(err)
		},
	}, most)
}

// sendCancelTo sends a CancelRequest to one endpoint, and waits until the endpoint closes the connection. It
// uses TLS if sessions with this endpoint do.
func sendCancelTo(ctx context.Context, to *router.CancelTarget, header, request []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, cancelTimeout)
	defer stop()
	conn, err := dialCancel(ctx, to)
	if err != nil {
		return err
	}
	defer func() { conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	if len(header) > 0 {
		if _, err := conn.Write(header); err != nil {
			return err
		}
	}
	if speaker := to.Snapshot.TLS; speaker != nil {
		if to.Snapshot.StartTLS {
			if err := postgres.Negotiate(conn); err != nil {
				return err
			}
		}
		secure, err := speaker.Handshake(ctx, conn, tlsterm.Peer{Host: to.Host(), ALPN: []string{postgres.Protocol}})
		if err != nil {
			return err
		}
		defer secure.Close()
		return exchangeCancel(secure, end, request)
	}
	return exchangeCancel(conn, end, request)
}

// exchangeCancel sends the request, and waits until the other side closes.
func exchangeCancel(conn net.Conn, end time.Time, request []byte) error {
	_ = conn.SetDeadline(end)
	if _, err := conn.Write(request); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for its end: %w", err)
	}
	return nil
}

func dialCancel(ctx context.Context, to *router.CancelTarget) (net.Conn, error) {
	addrs, err := to.Addresses(ctx, cancelTimeout)
	var failed []error
	for _, at := range addrs {
		d := &net.Dialer{KeepAlive: -1}
		network, address := "tcp", at.AddrPort.String()
		if at.Path != "" {
			network, address = "unix", at.Path
		} else if to.Snapshot.Source.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.Snapshot.Source, 0))
		}
		conn, err := Connect(ctx, d, network, address, func(_ string, fd int, connected bool) error { return to.Circle(at, fd, connected) })
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(append(failed, err)...)
}
