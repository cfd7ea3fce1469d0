// Package offload serves clients that leave their loop for a while, each on a goroutine. If TLS ends or begins
// in this process, a client stays here until its session is joined, and then goes back to its loop. A client of
// PostgreSQL also comes here to cancel a query.
package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A Config is the settings of a [Server].
type Config struct {
	Limit *tlsterm.Limit // of the sessions with TLS that ends or begins in this process
	Now   func() int64   // the clock of the loops
	Log   *slog.Logger   // logs at level debug
}

// A Server serves clients off the loops that have accepted them. It is safe for concurrent use.
type Server struct{ cfg Config }

// New returns a Server.
func New(cfg *Config) *Server { return &Server{*cfg} }

// Serve serves a client with TLS that ends or begins in this process. It runs on its own goroutine until the
// session is joined. From then on the loop serves the session.
func (s *Server) Serve(h *worker.Offloaded, offloaded *router.Offloaded) {
	client, err := h.Conn()
	if err != nil {
		h.End(err)
		return
	}
	if err := s.cfg.Limit.Enter(); err != nil {
		reset(client)
		h.End(err)
		return
	}
	err = s.serveTLS(h, offloaded, client)
	if err == errRejoined {
		return
	}
	defer s.cfg.Limit.Leave()
	if err == sockopt.ErrGone {
		h.Left()
		return
	}
	h.End(err)
}

// descriptorWait is how long a client with an endpoint waits for the descriptor that it needs to go back to its
// loop.
const descriptorWait = 10 * time.Second

// errNoDescriptor is the error of a client that has waited for a descriptor in vain. It wraps syscall.EMFILE.
var errNoDescriptor = fmt.Errorf("no descriptor was free within %v for the client's session: raise the limit of open files (ulimit -n): %w", descriptorWait, syscall.EMFILE)

// errRejoined means that the client's session runs on its loop again.
var errRejoined = errors.New("the session runs on its loop")

// serveTLS serves the client, and closes its connection unless the error is errRejoined. The error is
// [sockopt.ErrGone] if the client has gone while it waited for an endpoint.
func (s *Server) serveTLS(h *worker.Offloaded, offloaded *router.Offloaded, raw net.Conn) error {
	client, protocols, err := s.spoken(h, offloaded, raw)
	if err == errCancel {
		done := make(chan error, 1)
		s.sendCancel(h.Context(), offloaded.Listener, h.Client, offloaded.Startup, func(err error) { done <- err })
		err = <-done
		client.Close()
		return err
	}
	if err != nil {
		raw.Close()
		return err
	}
	search := offloaded.NewSearch()
	defer search.Close()
	search.Begin(h.Client, s.cfg.Now())
	endpoint, answer, err := s.reachFor(h.Context(), raw, search, protocols)
	switch {
	case err != nil:
		s.refuseTLS(h, raw, client, err)
		return err
	case endpoint == nil:
		return respond(h, client, answer)
	}
	ctx, cancel := context.WithTimeoutCause(h.Context(), descriptorWait, errNoDescriptor)
	on, err := worker.TakeSockets(ctx, client, endpoint)
	cancel()
	if err != nil {
		reset(endpoint)
		reset(raw)
		return err
	}
	on.A.Moved, on.Early = len(offloaded.Startup), offloaded.Startup
	on.Search, on.Ended = search, s.cfg.Limit.Leave
	if err := h.Rejoin(on); err != nil {
		return err
	}
	return errRejoined
}

// spoken returns the client's connection after its handshake, and the protocols to offer to its endpoint.
func (s *Server) spoken(h *worker.Offloaded, offloaded *router.Offloaded, raw net.Conn) (client net.Conn, protocols []string, err error) {
	cfg := offloaded.Listener.Config()
	server := cfg.TLS
	switch {
	case cfg.Preread.Postgres != nil && !h.Client.Postgres.TLS:
		return raw, []string{postgres.Protocol}, nil
	case server == nil:
		return raw, nil, nil // a ClientHello among the bytes of the client is for the server behind the endpoint
	}
	conn, err := server.Handshake(h.Context(), raw)
	if err != nil {
		return nil, nil, err
	}
	state := offloaded.Terminated(conn)
	if state.NegotiatedProtocol != "" {
		protocols = []string{state.NegotiatedProtocol}
	}
	h.Client.Record.Hello(state.ServerName, protocols)
	if cfg.Preread.Postgres != nil {
		return conn, []string{postgres.Protocol}, s.login(h, offloaded, conn)
	}
	if cfg.Preread.Data {
		err = firstBytes(h, offloaded, conn, conn.Await, "")
	}
	return conn, protocols, err
}

// firstBytes calls read, which reads the first bytes of a client with TLS that ends here, or a whole message.
// The error is [worker.TooLate] if the bytes come too late, and [sockopt.ErrGone] if the client has gone. If
// the client's context has ended, the error is the cause of that.
func firstBytes(h *worker.Offloaded, offloaded *router.Offloaded, conn *tlsterm.Conn, read func() error, message string) error {
	within := offloaded.Listener.Config().TLS.Timeout()
	_ = conn.SetReadDeadline(time.Now().Add(within))
	stop := context.AfterFunc(h.Context(), func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	err := read()
	if !stop() {
		return context.Cause(h.Context())
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		got := 0
		if message != "" {
			got = -1
		}
		return worker.TooLate(worker.ErrPrereadTimeout, within, got, message)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return sockopt.ErrGone
	}
	return err
}

// refuseTLS ends the connection of a client that gets no endpoint. A client of PostgreSQL that has sent its
// startup message gets an answer with the reason, through TLS if TLS ends here.
func (s *Server) refuseTLS(h *worker.Offloaded, raw, client net.Conn, cause error) {
	if h.Client.Postgres.User == "" || h.Context().Err() != nil || cause == sockopt.ErrGone {
		reset(raw)
		return
	}
	defer context.AfterFunc(h.Context(), func() { raw.Close() })()
	_ = respond(h, client, pgRefusal(cause))
}

// reset resets a connection, and the connection beneath it, so that the peer does not take this for an orderly
// end.
func reset(c net.Conn) {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	if t, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// reachFor is reach for as long as the client is there. A client that was reset gives up its place at once,
// whatever it is waiting for. reachFor reads nothing from the client.
func (s *Server) reachFor(ctx context.Context, client net.Conn, search *router.Search, protocols []string) (endpoint net.Conn, answer []byte, err error) {
	watched, stop := sockopt.Watch(ctx, client, time.Time{})
	endpoint, answer, err = s.reach(watched, search, protocols)
	stop()
	if context.Cause(watched) == sockopt.ErrGone {
		if endpoint != nil {
			reset(endpoint)
		}
		return nil, nil, sockopt.ErrGone
	}
	return endpoint, answer, err
}

// reach performs the steps of a search until there is a connection to an endpoint, or an answer for the client
// instead. The end of ctx does not count as a failure of an endpoint.
func (s *Server) reach(ctx context.Context, search *router.Search, protocols []string) (endpoint net.Conn, answer []byte, err error) {
	r := search.Record()
	for ctx.Err() == nil {
		r.Resume(s.cfg.Now())
		switch step := search.Next(s.cfg.Now()); step.Action {
		case worker.Connect:
			r.Connect(step.Address.AddrPort, step.Address.Path, s.cfg.Now())
			var conn net.Conn
			err := s.abandonable(ctx, search, step.Recheck, func(ctx context.Context) (err error) {
				conn, err = s.connect(ctx, search, &step, protocols)
				return err
			})
			switch {
			case err == nil && search.Overruled() && ctx.Err() == nil:
				reset(conn) // the search goes on with another endpoint
			case err == nil:
				return conn, nil, nil
			case ctx.Err() == nil:
				search.Failed(err, s.cfg.Now())
			}
		case worker.Resolve:
			var ips []netip.Addr
			err := s.abandonable(ctx, search, step.Recheck, func(ctx context.Context) (err error) {
				ips, err = step.Resolver(ctx, step.Host, step.Timeout)
				return err
			})
			if ctx.Err() == nil {
				search.Resolved(ips, err)
			}
		case worker.Pause:
			r.Pause(s.cfg.Now())
			pause(ctx, step.Timeout, nil)
		case worker.Park:
			r.Wait(s.cfg.Now())
			pause(ctx, step.Timeout, search.Woken())
		case worker.Respond:
			return nil, step.Bytes, nil
		default:
			return nil, nil, search.Err()
		}
	}
	return nil, nil, context.Cause(ctx)
}

// abandonable runs a step of a search. It cancels the step when the search gives the step up.
func (s *Server) abandonable(ctx context.Context, search *router.Search, every time.Duration, run func(context.Context) error) error {
	if every <= 0 {
		return run(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // held while the search is asked; it is not asked after run has returned
	over := false
	var timer *time.Timer
	mu.Lock() // the function reads timer
	timer = time.AfterFunc(every, func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case over:
		case search.Abandon(s.cfg.Now()):
			cancel(record.ErrAbandoned)
		default:
			timer.Reset(every)
		}
	})
	mu.Unlock()
	err := run(ctx)
	mu.Lock()
	over = true
	mu.Unlock()
	timer.Stop()
	if err != nil && context.Cause(ctx) == record.ErrAbandoned {
		return record.ErrAbandoned
	}
	return err
}

// pause waits until woken, or until d has passed. If woken is not nil, a d of 0 sets no limit.
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

// connect performs one step: it connects, sends the PROXY header, and speaks TLS if the endpoint wants TLS.
func (s *Server) connect(ctx context.Context, search *router.Search, step *worker.Step, protocols []string) (net.Conn, error) {
	if step.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, step.Timeout)
		defer cancel()
	}
	d := &net.Dialer{KeepAlive: -1, Control: func(network, address string, c syscall.RawConn) error {
		return errors.Join(step.Congestion.Control(network, c), search.Options().Control(network, address, c))
	}}
	d.SetMultipathTCP(false)
	network, address := "tcp", step.Address.AddrPort.String()
	if step.Address.Path != "" {
		network, address = "unix", step.Address.Path
	} else if step.Source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(step.Source, 0))
	}
	conn, err := Connect(ctx, d, network, address, func(_ string, fd int, connected bool) error { return search.Circle(fd, connected) })
	if err != nil {
		return nil, err
	}
	if step.ProxyHeader {
		if err := send(ctx, conn, search.ProxyHeader(nil)); err != nil {
			reset(conn)
			return nil, err
		}
	}
	endpoint, err := s.secure(ctx, search, conn, protocols)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := send(ctx, endpoint, search.Startup()); err != nil {
		reset(endpoint)
		return nil, err
	}
	return endpoint, nil
}

// send sends the first bytes that an endpoint gets, which it may take slowly or not at all.
func send(ctx context.Context, endpoint net.Conn, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return within(ctx, endpoint, func() error {
		_, err := endpoint.Write(b)
		return err
	})
}

// within does a step with an endpoint. It gives up when ctx ends, and leaves no deadline on a connection to go on with.
func within(ctx context.Context, endpoint net.Conn, do func() error) error {
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(tlsterm.DefaultTimeout)
	}
	_ = endpoint.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { _ = endpoint.SetDeadline(time.Unix(1, 0)) })
	err := do()
	switch {
	case stop():
		_ = endpoint.SetDeadline(time.Time{})
	case err == nil:
		err = context.Cause(ctx)
	}
	return err
}

// Connect is [sockopt.Dial] unless circle, which is asked as [worker.Search] is, returns an error for all addresses.
func Connect(ctx context.Context, d *net.Dialer, network, address string, circle func(at string, fd int, connected bool) error) (net.Conn, error) {
	var back error
	ask := func(at string, raw syscall.RawConn, connected bool) error {
		err := raw.Control(func(fd uintptr) { back = circle(at, int(fd), connected) })
		return cmp.Or(back, err)
	}
	if network == "unix" { // its socket may be made too late, on another goroutine
		back = circle(address, -1, false)
	} else {
		set := d.Control
		d.Control = func(network, address string, raw syscall.RawConn) error {
			if set != nil {
				if err := set(network, address, raw); err != nil {
					return err
				}
			}
			return ask(address, raw, false)
		}
	}
	if back != nil {
		return nil, back
	}
	conn, err := sockopt.Dial(ctx, d, network, address)
	if err != nil {
		return nil, cmp.Or(back, err)
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = ask(conn.RemoteAddr().String(), raw, true)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// secure starts TLS with an endpoint if its upstream has TLS. After an error the caller closes conn.
func (s *Server) secure(ctx context.Context, search *router.Search, conn net.Conn, protocols []string) (net.Conn, error) {
	speaker, host := search.TLS()
	if speaker == nil {
		return conn, nil
	}
	if search.StartsTLS() {
		if err := within(ctx, conn, func() error { return postgres.Negotiate(conn) }); err != nil {
			return nil, err
		}
	}
	encrypted, err := speaker.Handshake(ctx, conn, tlsterm.Peer{Host: host, ALPN: protocols})
	if err != nil {
		return nil, err
	}
	return encrypted, nil
}

// lingering is how long a client that got a response can take to close.
const lingering = 5 * time.Second

// respond sends bytes to a client of h and closes its connection. So that the bytes arrive, it first sends the end
// of file and waits for the client's.
func respond(h *worker.Offloaded, client net.Conn, b []byte) error {
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(lingering))
	n, err := client.Write(b)
	if h.Sent = int64(n); err != nil {
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
