package offload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/fanout"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

const (
	// cancelTargets is the number of endpoints that one CancelRequest is sent to, at most.
	cancelTargets = 256
	// cancelTimeout is how long one of these connections may take, until the endpoint has closed it.
	cancelTimeout = 2 * time.Second
	// cancelPatience is how long a request may take in all. Endpoints that have not received it by that time do
	// not receive it.
	cancelPatience = 10 * time.Second
	// cancelShare of a listener's limit of connections is how many clients may wait for the end of their request, at most.
	cancelShare = 4
)

// Cancel serves a client that has sent a CancelRequest. Its connection is closed when all endpoints have received the
// request, because for libpq (PQcancel) the close means that the request cannot hit the next query. Meanwhile it holds
// no other descriptor and, once its filters have answered, no goroutine.
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
	if l.Filters() { // which are waited for, a bounded number at a time
		go send()
		return
	}
	send()
}

// sendCancel has a CancelRequest sent to each endpoint that may have the query by the routes of its client, and calls done when they have taken it, or with
// [worker.ErrCancelOverload]. It names a process and a secret; so a server that has no such session ignores it, and one of them has it.
func (s *Server) sendCancel(ctx context.Context, l *router.Listener, c *worker.Client, request []byte, done func(error)) {
	cfg := l.Config()
	counts := cfg.State.Cancels()
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
				s.cfg.Log.Debug("a CancelRequest was not sent", "listener", l.Name(), "endpoint_address", to.String(), "error", err)
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

// sendCancelTo sends a CancelRequest to one endpoint, over TLS if its sessions have that, and waits until it closes.
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

// dialCancel connects to one of the endpoint's addresses.
func dialCancel(ctx context.Context, to *router.CancelTarget) (net.Conn, error) {
	addrs, err := to.Addresses(ctx, cancelTimeout)
	var failed []error
	for _, at := range addrs {
		d := &net.Dialer{KeepAlive: -1}
		network, address := "tcp", at.AddrPort.String()
		if at.Path != "" {
			network, address = "unix", at.Path
		} else if to.Snapshot.Source.IsValid() {
			d.LocalAddr = &net.TCPAddr{IP: to.Snapshot.Source.AsSlice()}
		}
		conn, err := sockopt.Dial(ctx, d, network, address)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(append(failed, err)...)
}
