// Package server is a load balancer that serves a configuration, and changes to another one
// while it serves.
//
// A change is prepared beside the present state: sockets are bound, certificates read, tables built, and if anything fails
// nothing has changed. Then it is brought into force at once. A listening socket that keeps its address keeps its queue,
// endpoints keep their health and statistics, and a session keeps the configuration that it began with.
//
// A [Server] is a registry of the parts of its configuration, which [Server.Apply] exchanges: apply.go prepares, swaps and
// settles. Parts with fields of their own do the work: upstreams with their endpoints (upstream.go, endpoint.go), listeners
// (listener.go) and their sockets (sockets.go), changes by hand (live.go, operator.go, deny.go), removed parts that still
// have clients (removed.go) and drains (drain.go). The loops see the host (host.go), operators see the sessions
// (sessions.go) and one sample of all counters (status.go).
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/cpuwait"
	"github.com/penstock/penstock/proxy/internal/episode"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/offload"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/proxy/systemd"
	"github.com/penstock/penstock/relay"
)

// A Server is a load balancer: a registry of the parts that a configuration names, which [Server.Apply] brings into force. Make it with
// [Open], then call Serve. Its methods may be called at any time by any goroutine, unless they say otherwise.
type Server struct {
	*core
	applying    sync.Mutex    // held during Apply, and taken before mu
	placement   placement     // owned; under mu
	changes     admin.Changes // under mu
	connectRate limit.Rate    // of the whole process

	// Parts with fields of their own.
	drains             *drains
	sockets            *sockets
	liveChanges        *liveChanges
	upstreamManager    *upstreamManager
	listenerManager    *listenerManager
	sessionLog         *sessionLog
	traceExport        *traceExport
	host               *host
	denials            *denials
	hand               *endpointChanges
	watcher            *watcher
	lanes              *lanes.Lanes
	admin.LaneSwitcher // lanes
	*sessionTable

	relay *relay.Relay // owned
	pipes *pipe.Pool   // owned; nil without splice

	cut       context.Context // ends when sessions are cut
	cutNow    context.CancelFunc
	drainEnds time.Time // when the last session is cut; zero: no drain, or no limit; under mu
}

// A core is what the parts of a server share.
type core struct {
	registry // under mu
	tasks
	clock
	options Options // not changed
	log     *slog.Logger
	lines   *monitor.Lines
	group   *worker.Group // owned; set before there are clients
	files   *tlsterm.Files
	tls     *tlsterm.Limit
	cpu     *cpuwait.Meter
}

// At most 1/tlsShare of the connections may be sessions with TLS that ends or begins in this process: each has two
// goroutines, and buffers of tens of KiB.
const tlsShare = 2

// Held clients may have at most 1/holdShare of all connections. The rest is for clients of
// other upstreams.
const holdShare = 2

// tlsHandshakes bounds the handshakes at a time: each takes up to some milliseconds of
// a CPU, and too many at a time would all time out.
const tlsHandshakes = 1024

// Open opens a configuration: when Open returns, it listens, but serves no client yet. The caller must call Serve,
// which closes everything. On an error nothing is left open. The error has one line, or joins several errors of one
// line each.
func Open(ctx context.Context, cfg *config.Config, o Options) (*Server, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{core: &core{
		registry: registry{
			listeners: make(map[string]*listener), upstreams: make(map[string]*upstream), binds: make(binds),
			removed: removed{listeners: make(map[string]*listenerCounts)},
		},
		clock: newClock(time.Now), options: o, log: log, lines: monitor.NewLines(log), files: tlsterm.NewFiles(&tlsterm.FilesConfig{Report: logFiles(log)}),
		tls: tlsterm.NewLimit(max(o.MaxConnections/tlsShare, 1), tlsHandshakes), cpu: cpuwait.NewMeter(),
	}}
	s.circles = &circles{now: s.now}
	s.circles.look()
	s.tasks.begin()
	s.cut, s.cutNow = context.WithCancel(context.Background())
	s.cpu.Look(s.now())
	s.makeParts()
	if err := s.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// makeParts makes the parts that last as long as the server. The loops are not there yet.
func (s *Server) makeParts() {
	o := &s.options
	s.drains = &drains{core: s.core, jobs: make(map[*cutJob]bool)}
	s.sockets = &sockets{
		core: s.core, drains: s.drains, passed: cmp.Or(o.Sockets, new(systemd.Sockets)), overflow: namespaceCount{read: sys.ListenOverflows},
		deserted: newBacklog[*listenSocket](),
	}
	s.liveChanges = &liveChanges{core: s.core, store: o.State}
	s.denials = &denials{core: s.core, changes: s.liveChanges, clock: time.Now}
	s.upstreamManager = &upstreamManager{
		core: s.core, drains: s.drains, liveChanges: s.liveChanges, dnsLimit: discovery.NewQueryLimiter(64), down: newBacklog[*router.Endpoint](),
		late: newBacklog[lateSession](),
	}
	s.upstreamManager.scheduler = health.NewScheduler(&health.SchedulerConfig{Now: s.now, Report: s.upstreamManager.logHealth, ReportEvery: logEvery})
	s.upstreamManager.checker = health.NewChecker(s.upstreamManager.scheduler, &health.CheckerConfig{Concurrent: max(min(4096, o.MaxConnections/8), 16)})
	s.hand = &endpointChanges{core: s.core, liveChanges: s.liveChanges, manager: s.upstreamManager}
	s.listenerManager = &listenerManager{
		core: s.core, sockets: s.sockets, tickets: tlsterm.NewTickets(nil), compares: compare.NewBudget(compare.TotalBytes), denials: &s.denials.rules, rate: &s.connectRate,
	}
	s.sessionLog = &sessionLog{core: s.core, progress: make(chan struct{}, 1)}
	s.traceExport = &traceExport{core: s.core}
	s.host = &host{
		core: s.core, sockets: s.sockets, sessionLog: s.sessionLog, traceExport: s.traceExport, refusals: router.NewRefusals(),
		full: episode.New(func() { s.log.Info("the number of connections is below the limit again") }), outOfDescriptors: episode.New(func() {}),
	}
	s.watcher = &watcher{
		core: s.core, drains: s.drains, sockets: s.sockets, sessionLog: s.sessionLog, host: s.host,
		outages: monitor.NewOutages(s.log), sums: monitor.NewSums(s.log), read: func() *reader { return s.reader(new(router.Running), true) },
	}
	s.lanes = &lanes.Lanes{Log: s.log, Mu: &s.mu, Places: s.places, Go: s.goTracked, Closing: func() bool { return s.closing }, Ended: s.ended}
	s.LaneSwitcher, s.upstreamManager.lanes = s.lanes, s.lanes
	s.sessionTable = &sessionTable{core: s.core, endings: make(map[*endJob]bool)}
}

func (s *Server) open(ctx context.Context, cfg *config.Config) (err error) {
	if s.placement, err = confine(&cfg.Limits); err != nil {
		return err
	}
	if s.relay, s.pipes, err = s.options.openRelay(); err != nil {
		return err
	}
	s.host.pipes = s.pipes
	off := offload.New(&offload.Config{Limit: s.tls, Now: s.now, Log: s.log})
	s.listenerManager.offloaded, s.listenerManager.cancel = off.Serve, off.Cancel
	s.group, err = worker.New(&worker.Config{
		Loops: s.options.loops(cfg), Memory: memoryOf(&cfg.Limits.Memory), BusyPoll: s.options.BusyPoll, KeepPolicy: s.options.KeepPolicy, TurnCPU: s.options.TurnCPU,
		Now: s.now, Relay: s.relay, MaxConnections: s.options.MostConnections(cfg), Host: s.host,
	})
	if err != nil {
		return explainMemory(&cfg.Limits.Memory, err)
	}
	s.lanes.Group = s.group
	s.placement.stateFile = cfg.StateFile
	s.liveChanges.restore()
	if o := s.options.State; o != nil {
		s.denials.restore(o.Denials())
	}
	if err := s.Apply(ctx, cfg); err != nil {
		return err
	}
	s.liveChanges.logRestored()
	await(ctx, s.upstreamManager.allAnswered) // later answers take effect when they come
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes.Discovered()
	return nil
}

// A clock gives the time in nanoseconds since the start. Loops have a clock of their own, which shows the same time.
type clock struct {
	start time.Time
	day   *record.Wall
}

func newClock(today func() time.Time) clock {
	c := clock{start: time.Now()}
	c.day = record.NewWall(c.now, today)
	return c
}

func (c clock) now() int64 { return int64(time.Since(c.start)) + 1 }

// wall converts a time of the clock to calendar time.
func (c clock) wall(at int64) time.Time { return c.day.Of(at) }

// Serve accepts and joins clients until ctx ends. Then it accepts the clients that are already queued, closes the
// listeners, and drains. It returns when every session has ended. Sessions that go on for longer than the drain
// timeout are cut, as by [Server.Cut]. Serve may be called once. Its error is nil after a full drain, and wraps
// [ErrCut] if sessions were cut because the process ends. Sessions that were cut for another reason, such as a failed
// endpoint, do not count.
func (s *Server) Serve(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.group.Serve() }()
	watch, stop := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { s.upstreamManager.drainDown(watch) })
	beside.Go(func() { s.upstreamManager.drainLate(watch) })
	beside.Go(func() { s.sockets.deserted.each(watch, s.sockets.forgetDeserted) })
	beside.Go(func() { s.monitor(watch) })
	beside.Go(func() { watchStalls(watch, s.log, s.Alive) })
	beside.Go(func() { s.upstreamManager.watchAnswers(watch) })
	beside.Go(func() { s.upstreamManager.watchNames(watch) })
	beside.Go(func() { s.sessionLog.logProgress(watch) })
	var err error
	select {
	case <-ctx.Done():
		err = s.drain(served)
	case <-s.cut.Done():
		err = <-served
	case err = <-served:
	}
	cut := s.group.Summary().Canceled
	stop()
	beside.Wait()
	err = errors.Join(err, s.close())
	if cut > 0 {
		return errors.Join(fmt.Errorf("%w: %d", ErrCut, cut), err)
	}
	return err
}

// Alive returns when every loop has given a sign of life, or with an error when ctx ends.
func (s *Server) Alive(ctx context.Context) error { return s.group.Settle(ctx) }

// close closes everything that is open, in the order of dependencies.
func (s *Server) close() error {
	s.tasks.stop()
	var errs []error
	if s.group != nil {
		errs = append(errs, s.group.Close())
	}
	s.lanes.Close()
	if err := s.sessionLog.closeSessionLog(); err != nil { // no client has noticed
		s.log.Warn("the last lines of the session log may be missing", "error", err)
	}
	s.traceExport.closeTraces()
	for _, socket := range s.binds {
		errs = append(errs, socket.listener.Close())
	}
	for _, socket := range s.removed.replaced() {
		errs = append(errs, socket.listener.Close())
	}
	s.upstreamManager.checker.Close()
	s.upstreamManager.scheduler.Close()
	s.lines.Flush(s.now())
	for _, l := range s.listeners {
		l.close(nil)
	}
	for _, u := range s.upstreams {
		u.close()
	}
	s.files.Close()
	s.host.full.Stop()
	s.host.outOfDescriptors.Stop()
	if s.relay != nil {
		errs = append(errs, s.relay.Close())
	}
	if s.pipes != nil {
		errs = append(errs, s.pipes.Close())
	}
	s.cutNow()
	return errors.Join(append(errs, s.placement.undo())...)
}

// resolve looks up an endpoint that is a name, when it is dialed.
func resolve(ctx context.Context, host string, timeout time.Duration) ([]netip.Addr, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return sockopt.ResolveOrLast(ctx, host)
}

// ErrCut is wrapped by the error of [Server.Serve] if sessions were cut.
var ErrCut = errors.New("sessions were reset before their end")

// Options are the settings of a [Server] that are not in its configuration: they come from the command line and the
// environment.
type Options struct {
	// MaxConnections is the largest number of connections served at once, for which the descriptors suffice. At that
	// number accepting pauses. It must be at least 1.
	MaxConnections int

	// Loops is the number of event loops that serve clients: 0 means the number in the first configuration, or GOMAXPROCS.
	Loops int
	// BusyPoll is the time for which a loop goes on asking for events before it sleeps, as in
	// [loop.Config]: up to a whole CPU for each loop.
	BusyPoll time.Duration
	// KeepPolicy means that loops leave the scheduling policy of their threads alone, as in
	// [loop.Config].
	KeepPolicy bool
	// TurnCPU means that the overruns of loops are counted, as in [loop.Config].
	TurnCPU bool

	// Engine is the engine that moves bytes.
	Engine relay.Engine
	// TailDelay, Gather and MaxPipeSize are as in [relay.Config]: 0 means its default, and a negative
	// time switches the feature off.
	TailDelay, Gather time.Duration
	MaxPipeSize       int

	// Version is the version of the program, for traces; empty: unknown.
	Version string

	// DrainTimeout is the time that sessions may take once Serve's context has ended. Then the rest
	// are cut. 0 means no limit.
	DrainTimeout time.Duration

	// Log gets messages for operators, and at level debug a line for each session. Its handler
	// must not wait: event loops call it. Nil means no log.
	Log *slog.Logger

	// State keeps changes by hand over a restart; nil: they end with the process. The caller closes it
	// when the process begins to drain, or at the end.
	State *state.Store

	// Sockets are the sockets that systemd has passed to the process; nil: none. The caller closes
	// them after the end.
	Sockets *systemd.Sockets
}

// openRelay makes the pool of pipes, unless nothing will be spliced (then it is nil), and the relay that leases from it.
// The caller owns both, and closes the pool after the relay.
func (o *Options) openRelay() (*relay.Relay, *pipe.Pool, error) {
	cfg := &relay.Config{Engine: o.Engine, TailDelay: o.TailDelay, Gather: o.Gather, MaxPipeSize: o.MaxPipeSize, LegsAfter: verdict.Least}
	if o.Engine != relay.EngineCopy {
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
