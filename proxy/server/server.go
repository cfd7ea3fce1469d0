package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/cpuwait"
	"github.com/penstock/penstock/proxy/internal/episode"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/traces"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A Server is a load balancer. Make it with [Open], then call Serve. Its methods may be
// called at any time by any goroutine, unless they say otherwise.
type Server struct {
	options Options
	log     *slog.Logger
	clock

	relay       *relay.Relay  // owned
	pipes       *pipe.Pool    // owned; nil without splice
	group       *worker.Group // owned
	placement   placement     // owned
	scheduler   *health.Scheduler
	checker     *health.Checker
	files       *tlsterm.Files
	tickets     *tlsterm.Tickets
	tls         *tlsterm.Limit
	compares    *compare.Budget // of all mirrors
	dnsLimit    *discovery.QueryLimiter
	inotify     discovery.Inotify // of files that change, one for all upstreams
	connectRate limit.Rate

	mu              sync.Mutex // of all changes
	cfg             *config.Config
	live            manual                           // changes by hand that are in force
	sessionLogError atomic.Pointer[logError]         // nil: there was none
	unresolved      atomic.Pointer[map[string]error] // names of endpoints without a check, that did not resolve the last time
	earlier         []earlier                        // the oldest first
	applied         lives                            // of the last Apply
	stateFileAt     config.Path                      // of the configuration that it began with
	changes         admin.Changes
	listeners       map[string]*listener
	upstreams       map[string]*upstream
	binds           binds
	parting         []*listenSocket // that are not bound any more, and may not be closed yet
	replaced        []*listenSocket // that were replaced, and are accepted from still
	closing         bool
	watches         sync.WaitGroup                // of discovery
	gone            tally.UpstreamCounts          // of upstreams that are not there any more
	retired         map[string]*upstream          // that are gone, and had sessions when that was looked at
	givenUp         []*listenSocket               // sockets that are closed or replaced, until they are deserted
	former          []former                      // upstreams that are gone, and may refuse clients still
	unnamed         map[string]*listenerCounts    // of listeners that are gone, and had clients when that was looked at
	draining        map[string][]*drainingSockets // sockets that are gone, by the key that they had
	timers          map[*time.Timer]*due
	after           func(time.Duration, func()) *time.Timer // time.AfterFunc, unless a test has the time

	laneLeft atomic.Bool // sessions that have left user space have ended for this process, and go on without it; written under mu

	endings map[*endJob]bool // that are under way; under mu
	byHand  endedByHand
	denials denials

	watcher watcher // under mu
	cpu     *cpuwait.Meter
	lines   *monitor.Lines
	drains  map[*cutJob]bool // whose sessions are named in the log; under mu

	sessions   atomic.Pointer[sessionlog.Log] // the session log, owned; nil: there was none yet
	progress   chan struct{}                  // the session log has other settings
	lane       atomic.Pointer[laneState]      // nil: no listener has asked for one yet
	laneOff    bool                           // a lane that is to come begins switched off. It needs mu
	laneWanted atomic.Bool                    // a listener of the configuration in force has lane
	adopted    adopted
	pins       pinsWatch
	traces     atomic.Pointer[traces.Exporter] // owned; nil: there were none yet

	view  atomic.Pointer[view]  // of the present state, for readers that must not wait
	rules atomic.Pointer[rules] // by which clients are judged; nil: before the first configuration

	tracked limit.Connections // of clients that no endpoint can serve

	full, outOfDescriptors *episode.Episode
	paused                 atomic.Int64
	downPending            chan struct{} // there is something in downQueue or deserted
	downQueue              downQueue
	deserted               abandonments

	cut       context.Context // ends when sessions are cut
	cutNow    context.CancelFunc
	cutting   bool      // sessions are cut for the end; under mu
	cutBefore int64     // sessions that had been cut by then, as the configuration has it; under mu
	drainEnds time.Time // when all are cut; zero: no drain, or one without a limit; under mu

	ended context.Context // when everything has
	end   context.CancelFunc
}

// tlsShare is the part of the connections that may be TLS sessions of ours: each has two
// goroutines, and buffers of tens of KiB.
const tlsShare = 2

// holdShare is the part of all connections that held clients may have, as 1/holdShare: the
// others are for clients of other upstreams.
const holdShare = 2

// tlsHandshakes bounds how many handshakes are under way at once: each costs some
// milliseconds of a CPU at most, and those that wait would only time out together.
const tlsHandshakes = 1024

// Open opens a configuration: it listens when this returns, and serves no client yet. The
// caller must call Serve, which closes everything. On an error nothing is left open; it is one
// line, or several joined.
func Open(ctx context.Context, cfg *config.Config, o Options) (*Server, error) {
	s := &Server{
		options: o, log: o.Log, clock: clock{time.Now()},
		listeners: make(map[string]*listener), upstreams: make(map[string]*upstream),
		binds:   make(binds),
		retired: make(map[string]*upstream), unnamed: make(map[string]*listenerCounts), draining: make(map[string][]*drainingSockets), timers: make(map[*time.Timer]*due), drains: make(map[*cutJob]bool), endings: make(map[*endJob]bool), after: time.AfterFunc,
		denials: denials{clock: time.Now},
		tickets: tlsterm.NewTickets(nil), dnsLimit: discovery.NewQueryLimiter(64), downPending: make(chan struct{}, 1),
		progress: make(chan struct{}, 1), adopted: adopted{come: make(chan struct{}, 1)},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.cpu = cpuwait.NewMeter()
	s.cpu.Look(s.now())
	s.watcher, s.lines = newWatcher(s.log), monitor.NewLines(s.log)
	s.cut, s.cutNow = context.WithCancel(context.Background())
	s.ended, s.end = context.WithCancel(context.Background())
	s.full = episode.New(func() { s.log.Info("below the limit of connections again") })
	s.outOfDescriptors = episode.New(func() {})
	s.compares = compare.NewBudget(compare.TotalBytes)
	s.tls = tlsterm.NewLimit(max(o.MaxConnections/tlsShare, 1), tlsHandshakes)
	s.files = tlsterm.NewFiles(&tlsterm.FilesConfig{Report: s.logFiles})
	s.scheduler = health.NewScheduler(&health.SchedulerConfig{Now: s.now, Report: s.logHealth, ReportEvery: logEvery})
	s.checker = health.NewChecker(s.scheduler, &health.CheckerConfig{Concurrent: max(min(4096, o.MaxConnections/8), 16)})
	if err := s.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context, cfg *config.Config) (err error) {
	if s.placement, err = confine(&cfg.Limits); err != nil {
		return err
	}
	if s.relay, s.pipes, err = s.options.openRelay(); err != nil {
		return err
	}
	s.group, err = worker.New(&worker.Config{
		Loops: s.loops(cfg), Memory: memoryOf(&cfg.Limits.Memory), BusyPoll: s.options.BusyPoll, KeepPolicy: s.options.KeepPolicy, TurnCPU: s.options.TurnCPU,
		Now: s.now, Relay: s.relay, MaxConnections: s.maxConnections(cfg), Host: (*host)(s),
	})
	if err != nil {
		return explainMemory(&cfg.Limits.Memory, err)
	}
	s.stateFileAt = cfg.StateFile
	s.restore()
	if err := s.Apply(ctx, cfg); err != nil {
		return err
	}
	s.logRestored()
	s.awaitDiscovery(ctx)
	return nil
}

// A clock is the time of everything but the loops, in nanoseconds from start on; theirs is the same one.
type clock struct{ start time.Time }

func (c clock) now() int64 { return int64(time.Since(c.start)) + 1 }

// wall is a time of the clock as people know it.
func (c clock) wall(at int64) time.Time { return c.start.Add(time.Duration(at)).Round(0) }

// maxConnections is how many clients are served at once.
func (s *Server) maxConnections(cfg *config.Config) int {
	most := s.options.MaxConnections
	if n := cfg.Limits.Connections; n > 0 && n < int64(most) {
		return int(n)
	}
	return most
}

// Serve accepts and joins clients until ctx ends; then it accepts those that had come by
// then, closes the listeners, and drains: it returns when every session has ended.
// Sessions that go on for longer than the drain timeout are cut, as by [Server.Cut]. It
// may be called once. The error is nil after a full drain; it wraps [ErrCut] if sessions
// were cut for it to end. Those of endpoints that failed, for instance, do not count.
func (s *Server) Serve(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.group.Serve() }()
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { s.drainDown(stop) })
	beside.Go(func() { s.monitor(stop) })
	beside.Go(func() { (&stallWatch{s.log, s.Alive}).run(stop) })
	beside.Go(func() { s.watchAnswers(stop) })
	beside.Go(func() { s.watchNames(stop) })
	beside.Go(func() { s.logProgress(stop) })
	beside.Go(func() { s.watchAdopted(stop) })
	var err error
	select {
	case <-ctx.Done():
		err = s.drain(served)
	case <-s.cut.Done():
		err = <-served
	case err = <-served:
	}
	cut := s.cutForTheEnd() + s.adoptedCut()
	close(stop)
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
	s.mu.Lock()
	s.closing = true
	for t := range s.timers {
		t.Stop()
	}
	s.mu.Unlock()
	s.end()
	s.watches.Wait()
	var errs []error
	if s.group != nil {
		errs = append(errs, s.group.Close())
	}
	s.closeLane()
	s.endAdoptedLines()
	if err := s.closeSessionLog(); err != nil { // which has cost no client anything
		s.log.Warn("the last lines of the session log may be missing", "error", err)
	}
	s.closeTraces()
	for _, socket := range s.binds {
		errs = append(errs, socket.listener.Close())
	}
	for _, socket := range s.replaced {
		errs = append(errs, socket.listener.Close())
	}
	s.checker.Close()
	s.scheduler.Close()
	s.lines.Flush(s.now())
	for _, l := range s.listeners {
		l.close(nil)
	}
	for _, u := range s.upstreams {
		u.close()
	}
	s.files.Close()
	s.full.Stop()
	s.outOfDescriptors.Stop()
	if s.relay != nil {
		errs = append(errs, s.relay.Close())
	}
	if s.pipes != nil {
		errs = append(errs, s.pipes.Close())
	}
	s.cutNow()
	return errors.Join(append(errs, s.placement.undo())...)
}

// Resolve implements [worker.Resolver]: endpoints that are names are looked up when they
// are dialed.
func (s *Server) Resolve(ctx context.Context, host string, timeout time.Duration) ([]netip.Addr, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return sockopt.Resolve(ctx, host)
}
