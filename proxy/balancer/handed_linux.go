package balancer

import (
	"context"
	"net"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/terminate"
	"github.com/penstock/penstock/relay"
)

// handed serves a client whose TLS ends or begins in this process: on a goroutine of its
// own until it is joined, and on two from then on.
func (s *Server) handed(h *core.Handed, of *dispatch.Handed) {
	client, err := h.Conn()
	if err != nil {
		h.End(relay.Result{}, err)
		return
	}
	if err := s.tls.Enter(); err != nil {
		refuse(client)
		h.End(relay.Result{}, err)
		return
	}
	defer s.tls.Leave()
	res, err := s.serveHanded(h, of, client)
	h.End(res, err)
}

// serveHanded serves the client, which is closed when it returns.
func (s *Server) serveHanded(h *core.Handed, of *dispatch.Handed, raw net.Conn) (relay.Result, error) {
	ctx, client := h.Context(), raw
	var protocols []string
	if server := of.Listener.Config().TLS; server != nil {
		conn, err := server.Handshake(ctx, raw)
		if err != nil {
			raw.Close()
			return relay.Result{}, err
		}
		client = conn
		state := conn.ConnectionState()
		of.Terminated(&state)
		if state.NegotiatedProtocol != "" {
			protocols = []string{state.NegotiatedProtocol}
		}
	} else if of.ALPN != nil {
		protocols = of.ALPN
	}
	search := of.NewSearch()
	defer search.Close()
	search.Begin(h.Client, s.now())
	endpoint, err := s.reach(ctx, search, protocols, client)
	if err != nil || endpoint == nil {
		if err != nil {
			refuse(raw)
		}
		return relay.Result{}, err
	}
	limits, err := search.Reached(s.now())
	if err != nil {
		endpoint.Close()
		refuse(raw)
		return relay.Result{}, err
	}
	session := s.relay.NewSession(client, endpoint)
	session.Limit(limits)
	h.Join(session, limits, endpoint.RemoteAddr().String())
	return session.Run(ctx)
}

// refuse resets a client: an orderly close would tell it that its server had nothing to
// say.
func refuse(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// reach does what a search says until there is a connection to an endpoint. It is nil,
// without an error, if the client has got its response.
func (s *Server) reach(ctx context.Context, search *dispatch.Search, protocols []string, client net.Conn) (net.Conn, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		switch step := search.Next(s.now()); step.Do {
		case core.Connect:
			conn, err := s.connect(ctx, search, &step, protocols)
			if err == nil {
				return conn, nil
			}
			search.Failed(err, s.now())
		case core.Resolve:
			search.Resolved(step.Resolver.Resolve(ctx, step.Host, step.Timeout))
		case core.Pause:
			pause(ctx, step.Timeout, nil)
		case core.Park:
			pause(ctx, step.Timeout, search.Woken())
		case core.Respond:
			return nil, respond(client, step.Bytes)
		default:
			return nil, search.Err()
		}
	}
}

// pause waits for a time, if it is not 0, or until woken.
func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	var after <-chan time.Time
	if d > 0 || woken == nil {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-after:
	case <-woken:
	case <-ctx.Done():
	}
}

// connect takes one step: connects, sends the preface, and speaks TLS if the endpoint
// wants it.
func (s *Server) connect(ctx context.Context, search *dispatch.Search, step *core.Step, protocols []string) (net.Conn, error) {
	if step.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, step.Timeout)
		defer cancel()
	}
	d := net.Dialer{KeepAlive: -1, Control: search.Options().Control}
	d.SetMultipathTCP(false)
	network, address := "tcp", step.Address.AddrPort.String()
	if step.Address.Path != "" {
		network, address = "unix", step.Address.Path
	} else if step.Source.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: step.Source.AsSlice()}
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if step.Preface {
		if _, err := conn.Write(search.Preface(nil)); err != nil {
			conn.Close()
			return nil, err
		}
	}
	speaker, host := search.TLS()
	if speaker == nil {
		return conn, nil
	}
	encrypted, err := speaker.Handshake(ctx, conn, terminate.Peer{Host: host, ALPN: protocols})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return encrypted, nil
}

// lingering is how long a client that got a response may take to close.
const lingering = 5 * time.Second

// respond sends a client bytes and closes its connection, so that they arrive: the end of
// file is sent, and the client's waited for.
func respond(client net.Conn, b []byte) error {
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(lingering))
	if _, err := client.Write(b); err != nil {
		return err
	}
	if c, ok := client.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	drain := make([]byte, 4096)
	for {
		if _, err := client.Read(drain); err != nil {
			return nil
		}
	}
}
