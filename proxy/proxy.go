// Package proxy joins listeners to the targets of an upstream by relays: a layer
// 4 proxy without its command line.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/episode"
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

	// Loops is on how many event loops clients are served: 0 means GOMAXPROCS,
	// negative that there are none but goroutines, two for each session, which is also
	// what systems without epoll have where it is 0.
	Loops int
	// BusyPoll is how long a loop goes on asking for events before it sleeps, as in
	// [loop.Config]: up to a whole CPU for each loop. It needs loops.
	BusyPoll time.Duration
	// KeepPolicy has loops leave the scheduling policy of their threads alone, as in
	// [loop.Config].
	KeepPolicy bool

	// TurnCPU has [Loop.Overruns] counted, as in [loop.Config].
	TurnCPU bool

	// Engine says how bytes are moved.
	Engine relay.Engine
	// TailDelay, Gather and MaxPipeSize are as in [relay.Config]: 0 means a default
	// there, and a negative time that there is none of that.
	TailDelay, Gather time.Duration
	MaxPipeSize       int

	// Source is the local address to connect to targets from, as in
	// [upstream.Config]; if it is not valid the kernel chooses.
	Source netip.Addr

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
	// session. Its handler must not wait: event loops call it. Nil means nothing.
	Log *slog.Logger
}

// A Server is a proxy that listens. Make it with [Open], then call Serve.
type Server struct {
	cfg       Config
	log       *slog.Logger
	pipes     *pipe.Pool // owned; nil without splice
	relay     *relay.Relay
	upstream  *upstream.Group
	listeners []*listener.Listener
	own       []upstream.Address // where the listeners are
	local     []netip.Addr       // this machine's
	driver    driver             // owned
	after     func(time.Duration) <-chan time.Time

	full    *episode.Episode   // the limit is reached
	refused *episode.Episode   // clients are, for want of descriptors
	pauses  []*episode.Episode // of accepting
	paused  atomic.Int64       // how often accepting has

	unserved refusals

	cut    context.Context // ends when sessions are cut
	cutNow context.CancelFunc
}

// A driver accepts clients, connects them to targets and has them joined.
type driver interface {
	// serve serves until ctx ends, then those who came before, and returns when they
	// have left; or when it was cut.
	serve(ctx context.Context) error
	// cutAll ends it all at once, for a cause, and cutSome those sessions that are chosen.
	cutAll(cause error)
	cutSome(chosen func() bool, cause error)
	// active returns how many clients are being served.
	active() int64
	summary() core.Summary
	// list yields the clients that are being served, as [Server.Sessions] does.
	list(ctx context.Context) iter.Seq[core.Session]
	// close gives up what the driver has, after serve, or in place of it.
	close() error
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
	s.full = episode.New(func() { s.log.Info("below max-connections again") })
	s.refused = episode.New(func() {})
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
	if s.relay, s.pipes, err = s.cfg.OpenRelay(); err != nil {
		return err
	}
	s.local = localAddresses()
	var open func(context.Context) error
	if open, err = s.chooseDriver(); err != nil {
		return err
	}
	if err := open(ctx); err != nil {
		return err
	}
	return s.checkTargets()
}

// chooseDriver returns what opens the driver that was asked for.
func (s *Server) chooseDriver() (open func(context.Context) error, err error) {
	switch {
	case s.cfg.Loops >= 0 && haveLoops:
		return s.openLoops, nil
	case s.cfg.Loops > 0:
		return nil, fmt.Errorf("%d loops: %w: this system has no epoll", s.cfg.Loops, errors.ErrUnsupported)
	case s.cfg.BusyPoll != 0 && s.cfg.Loops < 0:
		return nil, errors.New("busy polling needs loops")
	default:
		return s.openGoroutines, nil
	}
}

func (s *Server) upstreamConfig() *upstream.Config {
	return &upstream.Config{
		ConnectTimeout: s.cfg.ConnectTimeout,
		Source:         s.cfg.Source,
		Options:        s.cfg.Socket,
		Own:            s.listensOn,
		Local:          s.isLocal,
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

// OpenRelay makes the pool of pipes, unless nothing will be spliced, and the relay that
// leases from it. Both are the caller's to close, the pool after the relay; it is nil if
// there is none.
func (c *Config) OpenRelay() (*relay.Relay, *pipe.Pool, error) {
	cfg := &relay.Config{
		Engine:           c.Engine,
		IdleTimeout:      c.IdleTimeout,
		HalfCloseTimeout: c.HalfCloseTimeout,
		TailDelay:        c.TailDelay,
		Gather:           c.Gather,
		MaxPipeSize:      c.MaxPipeSize,
	}
	if c.Engine != relay.EngineCopy {
		var err error
		cfg.Pipes, err = pipe.NewPool(nil)
		if err != nil && !errors.Is(err, pipe.ErrNotSupported) {
			return nil, nil, err
		}
	}
	r, err := relay.New(cfg)
	if err != nil && cfg.Pipes != nil {
		err = errors.Join(err, cfg.Pipes.Close())
		cfg.Pipes = nil
	}
	return r, cfg.Pipes, err
}

// tellFull tells when the limit is reached, and when it is not any more.
func (s *Server) tellFull(full bool) {
	if !full {
		s.full.End()
		return
	}
	s.full.Begin(func() {
		s.log.Warn("max-connections reached, further clients wait", "max_connections", s.cfg.MaxConnections)
	})
}

// tellPaused tells that accepting from a listener failed, and is tried again.
func (s *Server) tellPaused(listener int, cause error, active, pauses int64) {
	s.paused.Add(1)
	closed, pause := s.trim(), s.pauses[listener]
	pause.Begin(func() {
		s.log.Warn("accepting paused", "address", s.listeners[listener].Addr(), "error", cause,
			"active", active, "pauses", pauses, "pipes_closed", closed)
	})
	pause.End() // unless it fails again, which it soon would
}

// tellRefused tells of a client that no target took.
func (s *Server) tellRefused(client string, cause error) {
	if s.cut.Err() == nil {
		s.unserved.add(cause)
	}
	if core.LacksDescriptor(cause) {
		s.refused.Begin(func() { s.log.Warn("client refused for want of descriptors", "error", cause) })
		s.refused.End()
	}
	s.log.Debug("connection refused", "client", client, "error", cause)
}

// listen listens on every address.
func (s *Server) listen(ctx context.Context, config func(i int) *listener.Config) error {
	for i, addr := range s.cfg.Listen {
		l, err := listener.Listen(ctx, addr, config(i))
		if err != nil {
			return err
		}
		s.pauses = append(s.pauses, episode.New(func() { s.log.Info("accepting resumed", "address", l.Addr()) }))
		s.listeners, s.own = append(s.listeners, l), append(s.own, ownAddresses(l)...)
	}
	return nil
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
	if s.driver != nil {
		errs = append(errs, s.driver.close())
	}
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.stopEpisodes()
	if s.relay != nil {
		errs = append(errs, s.relay.Close())
	}
	if s.pipes != nil {
		errs = append(errs, s.pipes.Close())
	}
	s.cutNow()
	return errors.Join(errs...)
}

// stopEpisodes has no end of them told any more.
func (s *Server) stopEpisodes() {
	for _, e := range s.pauses {
		e.Stop()
	}
	s.full.Stop()
	s.refused.Stop()
}
