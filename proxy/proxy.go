// Package proxy joins listeners to the targets of an upstream by relays: a layer
// 4 proxy without its command line.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
	"github.com/penstock/penstock/relay"
)

// ErrCut is wrapped by the error of [Server.Serve] if sessions were cut.
var ErrCut = errors.New("sessions were cut before their end")

// Config sets up a [Server]. All timeouts are off when 0.
type Config struct {
	// Listen are the addresses to listen on, To the targets to connect to. Both
	// need one at least.
	Listen, To []socket.Address

	// MaxConnections is how many connections are served at once; at that number
	// accepting pauses. It must be at least 1.
	MaxConnections int

	// Engine says how bytes are moved.
	Engine relay.Engine

	// ConnectTimeout bounds the attempt to reach one target.
	ConnectTimeout time.Duration
	// IdleTimeout ends a session in which no byte moved for so long;
	// HalfCloseTimeout replaces it once one side has sent its end of file.
	IdleTimeout, HalfCloseTimeout time.Duration
	// DrainTimeout is how long sessions may go on once Serve was told to stop;
	// those that have not ended by then are cut.
	DrainTimeout time.Duration

	// Socket are the options of the sockets on both sides. 0 means a default
	// there, and negative is off.
	Socket socket.Options

	// Log gets what an operator should know, and at level debug a line for each
	// session. Nil means nothing.
	Log *slog.Logger
}

// A Server is a proxy that listens. Make it with [Open], then call Serve.
type Server struct {
	cfg       Config
	log       *slog.Logger
	pipes     *pipe.Pool // owned; nil without splice
	relay     *relay.Relay
	upstream  *upstream.Group
	limit     *listener.Limit
	listeners []*listener.Listener
	local     []netip.Addr // this machine's
	spares    spares
	dial      func(context.Context) (net.Conn, error) // upstream's
	after     func(time.Duration) <-chan time.Time

	full    episode    // the limit is reached
	refused episode    // clients are, for want of descriptors
	pauses  []*episode // of accepting

	sessions sessions
	cut      context.Context // ends when sessions are cut
	cutNow   context.CancelFunc
}

// Open makes a Server that listens on every address of cfg; connections wait in
// the kernel's queues until Serve. Nobody dials a target yet. The caller must
// call Serve, which closes what Open has opened; on an error nothing is left
// open. The error is one line, and wraps the cause: [socket.ErrAddress],
// syscall.EADDRINUSE, ...
func Open(ctx context.Context, cfg *Config) (*Server, error) {
	s := &Server{cfg: *cfg, log: cfg.Log, after: time.After}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.cut, s.cutNow = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) error {
	if len(s.cfg.Listen) == 0 {
		return fmt.Errorf("%w: there is none to listen on", socket.ErrAddress)
	}
	var err error
	if s.upstream, err = upstream.New(s.cfg.To, s.upstreamConfig()); err != nil {
		return err
	}
	s.dial = s.upstream.Dial
	if err := s.openRelay(); err != nil {
		return err
	}
	s.openLimit()
	for _, addr := range s.cfg.Listen {
		l, err := s.listen(ctx, addr)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	s.local = localAddresses()
	return s.checkTargets()
}

func (s *Server) upstreamConfig() *upstream.Config {
	return &upstream.Config{
		ConnectTimeout: s.cfg.ConnectTimeout,
		Options:        s.cfg.Socket,
		Own:            s.listensOn,
		OnDown: func(target string, cause error) {
			s.log.Warn(downMessage(cause), "target", target, "error", cause)
		},
		OnUp: func(target string) { s.log.Info("target up", "target", target) },
	}
}

// downMessage says whose fault it is that a target was not reached.
func downMessage(cause error) string {
	if errors.Is(cause, upstream.ErrPortsExhausted) {
		return "target not reached, local ports are exhausted"
	}
	return "target down"
}

// openRelay makes the pool of pipes, unless nothing will be spliced, and the
// relay that leases from it.
func (s *Server) openRelay() error {
	cfg := &relay.Config{
		Engine:           s.cfg.Engine,
		IdleTimeout:      s.cfg.IdleTimeout,
		HalfCloseTimeout: s.cfg.HalfCloseTimeout,
	}
	var err error
	if s.cfg.Engine != relay.EngineCopy {
		s.pipes, err = pipe.NewPool(nil)
		if err != nil && !errors.Is(err, pipe.ErrNotSupported) {
			return err
		}
		cfg.Pipes = s.pipes
	}
	s.relay, err = relay.New(cfg)
	return err
}

// openLimit makes the limit, which tells when it is reached.
func (s *Server) openLimit() {
	s.full.over = func() { s.log.Info("below max-connections again") }
	s.refused.over = func() {}
	s.limit = listener.NewLimit(s.cfg.MaxConnections)
	s.limit.Tell(func(full bool) {
		if !full {
			s.full.end()
			return
		}
		s.full.begin(func() {
			s.log.Warn("max-connections reached, further clients wait", "max_connections", s.limit.Max())
		})
	})
}

func (s *Server) listen(ctx context.Context, addr socket.Address) (*listener.Listener, error) {
	var l *listener.Listener
	pause := &episode{over: func() { s.log.Info("accepting resumed", "address", l.Addr()) }}
	s.pauses = append(s.pauses, pause)
	cfg := &listener.Config{
		Limit:   s.limit,
		Options: s.cfg.Socket,
		Reserve: s.spares.reserve,
		OnPause: func(cause error) {
			s.spares.trim()
			closed := s.trim()
			pause.begin(func() {
				s.log.Warn("accepting paused", "address", l.Addr(), "error", cause,
					"active", s.limit.Active(), "pauses", l.Pauses(), "pipes_closed", closed)
			})
			pause.end() // unless it fails again, which it soon would
		},
	}
	var err error
	l, err = listener.Listen(ctx, addr, cfg)
	return l, err
}

// trim gives the descriptors of idle pipes back, and returns how many pipes that
// were.
func (s *Server) trim() int {
	if s.pipes == nil {
		return 0
	}
	return s.pipes.Trim()
}

// Addresses returns where the server listens, with the ports that the kernel
// chose.
func (s *Server) Addresses() []string {
	addrs := make([]string, len(s.listeners))
	for i, l := range s.listeners {
		addrs[i] = l.Addr()
	}
	return addrs
}

// close closes what is open, in the order in which it depends on each other.
func (s *Server) close() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.spares.close()
	for _, e := range append(s.pauses, &s.full, &s.refused) {
		e.close()
	}
	if s.relay != nil {
		errs = append(errs, s.relay.Close())
	}
	if s.pipes != nil {
		errs = append(errs, s.pipes.Close())
	}
	s.cutNow()
	return errors.Join(errs...)
}
