package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/page"
	"github.com/penstock/penstock/proxy/internal/scrape"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/proxy/systemd"
)

// A daemon is a running load balancer, with everything that changes it meanwhile.
type daemon struct {
	loadBalancer // nil until it has been opened

	daemonConfig
	env      config.Env
	self     int // process id; 0: of a test
	options  *server.Options
	log      *slog.Logger
	sockets  *systemd.Sockets  // owned
	notifier *systemd.Notifier // of systemd
	admin    *admin.Server     // owned by serve
	reloads  *trigger          // by SIGHUP
	reopens  <-chan os.Signal  // SIGUSR1; nil: there is none
	opened   chan struct{}     // closed once everything is open
	over     chan struct{}     // closed when serve has returned
	scrape   *scrape.Server    // owned by serve
	leaves   leaving
	measured measured

	turn    chan struct{} // holds a token while a goroutine reads the configuration and applies it
	keeper  *rollback.Keeper[*config.Config]
	read    *config.Config // the last one read, in force or not. Belongs to the holder of turn
	next    *readFile      // the one that is being applied. Belongs to the holder of turn
	refused refusedFile
	onDisk  fileState

	// These belong to the holder of the keeper's turn: the changes by the configuration that is being applied, the
	// effect of the last one, those of the last reload and the last rollback, and the file of the last reload. Of a
	// reload or a rollback by a command, its caller reads them while it holds turn: no other of its kind comes
	// between.
	changes                    []config.Change
	effect, applied, takenBack effect
	inForce                    *readFile

	follow chan *config.Config // in force, for watch; holds the latest
}

// A daemonConfig is the part of a daemon that its command sets.
type daemonConfig struct {
	source  source
	file    bool // the source is a file, which can be read again
	watches bool
	fits    bool // the options depend on the configuration, see fit
	// drainDelay is how long the process still accepts when it is about to drain.
	drainDelay time.Duration
	// adminExample is the setting that gives the process an admin endpoint.
	adminExample string
	open         opener // nil: openBalancer
}

func newDaemon(c *daemonConfig, e *cli.Env, options *server.Options) *daemon {
	r := &daemon{
		daemonConfig: *c, env: e.Environment(), self: e.Self, options: options, log: options.Log, reopens: e.Reopens,
		opened: make(chan struct{}), over: make(chan struct{}),
		turn: make(chan struct{}, 1), follow: make(chan *config.Config, 1),
	}
	if r.open == nil {
		r.open = openBalancer
	}
	r.reloads = newTrigger(r.hangup)
	return r
}

// end stops reloads by signals: no more are delivered.
func (r *daemon) end() { r.reloads.end() }

// serve reads the configuration, opens it, passes the daemon on, and serves.
func (r *daemon) serve(ctx context.Context, opened chan<- loadBalancer) error {
	defer close(r.over)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reclaim := giveBack()
	cfg, err := r.source.load()
	if err != nil {
		return err
	}
	if r.fits {
		defer fit(r.env, &cfg.Limits, r.options)()
	}
	if r.notifier, err = systemd.NewNotifier(); err != nil {
		r.log.Warn("some systemd notifications are disabled", "error", err)
	}
	r.openState(cfg)
	defer r.closeState()
	r.sockets = systemd.Receive()
	r.options.Sockets = r.sockets
	// Each address has places of its own, so that scrapers over the network keep none at the admin API out.
	scraped := func() http.Handler { return metrics.NewHandler(r.measure, metrics.DefaultLimits) }
	r.scrape = scrape.New(scraped(), r.log)
	r.admin = admin.New(admin.Config{
		Balancer: r, Reloader: r, Stop: stop, Metrics: scraped(), Page: page.Handler(), Process: r.report, Version: cli.Version(), Log: r.log, Self: r.self,
		Leaving: r.leaves.get, Alive: r.alive, Opened: r.opened,
	})
	defer r.closeAdmin()
	if err := r.openAll(ctx, cfg); err != nil {
		if ctx.Err() == nil {
			return err
		}
		r.log.Info("stopped before it listened", "error", err)
		return nil
	}
	opened <- r
	reclaim()
	return r.serveOpen(ctx, cfg)
}

// closeAdmin closes the admin server; requests in progress have a moment to finish.
func (r *daemon) closeAdmin() {
	ctx, cancel := context.WithTimeout(context.Background(), finalFlush)
	defer cancel()
	_ = r.admin.Close(ctx)
	r.noteAdmin(new(config.Config))
	_ = r.scrape.Close(ctx)
	r.measured.comparing.Wait()
	if err := r.sockets.Close(); err != nil {
		r.log.Warn("closing the sockets of systemd failed", "error", err)
	}
}

// openAll opens the admin socket, which closeAdmin closes, and the load balancer.
func (r *daemon) openAll(ctx context.Context, cfg *config.Config) error {
	move, err := r.prepareAdmin(ctx, cfg)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	scrapes, err := r.scrape.Prepare(ctx, scrapeConfig(cfg.Metrics))
	if err != nil {
		return errors.Join(fmt.Errorf("metrics: %w", err), move.Abort())
	}
	move.Commit() // it answers that the process starts
	r.loadBalancer, err = r.open(ctx, cfg, *r.options)
	if err != nil {
		return errors.Join(err, scrapes.Abort())
	}
	r.keeper = rollback.New(cfg, rollback.Config[*config.Config]{
		Apply:    r.apply,
		Changes:  r.changesBetween,
		Pack:     packed,
		Counter:  r.Counter,
		Counters: func() []string { return slices.Sorted(maps.Keys(r.Status().Counters)) },
		Report:   r.logChange,
	})
	if unused := r.sockets.Unused(); len(unused) > 0 {
		r.log.Warn("systemd has passed sockets that no listener names", "names", unused)
	}
	r.read = cfg
	r.onDisk.read(fingerprint(cfg, r.source.name()), nil)
	r.measured.loaded(nil)
	r.follow <- cfg
	scrapes.Commit()
	r.noteAdmin(cfg)
	close(r.opened)
	return nil
}

// serveOpen serves the open load balancer, and ends its helpers.
func (r *daemon) serveOpen(ctx context.Context, cfg *config.Config) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	serving, end := context.WithCancel(context.Background())
	defer end()
	beside.Go(func() {
		r.notifier.Watchdog(serving, r.Alive, func(err error) { r.log.Warn("systemd watchdog notification failed", "error", err) })
	})
	if r.watches {
		beside.Go(func() { r.watch(ctx) })
	}
	beside.Go(func() { r.reopen(serving) })
	beside.Go(func() { r.admin.Watch(serving) })
	drains, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	beside.Go(func() {
		select {
		case <-ctx.Done():
			r.leave(serving)
			drain()
		case <-serving.Done():
		}
	})
	r.logStart(cfg)
	r.notify(r.notifier.Ready(r.line()))
	err := r.loadBalancer.Serve(drains)
	r.keeper.Close()
	return err
}

// logStart logs the limits, and the warnings of the configuration.
func (r *daemon) logStart(cfg *config.Config) {
	r.log.Info("starting", "version", cli.Version(), "config", r.source.name(), "engine", r.options.Engine.String(), "loops", r.options.Loops,
		"max_connections", r.options.MaxConnections, "rlimit_nofile", cli.Descriptors())
	if set, err := sys.Capabilities(); err == nil && os.Geteuid() == 0 && set.Has(sys.CAP_SYS_ADMIN) {
		r.log.Info("the process is root with all capabilities: run it as a user of its own, with CAP_NET_BIND_SERVICE for ports below 1024, as packaging/systemd/penstock.service does")
	}
	logWarnings(r.log, cfg.Warnings)
	if r.admin.Addr() == "" && (cfg.Admin == nil || !r.file) {
		r.log.Info("no admin endpoint: penstock status, reload and drain cannot reach this process", "to_have_one", r.adminExample)
	}
}

// line returns the state in one line.
func (r *daemon) line() string {
	return fmt.Sprintf("generation %d of %s", r.keeper.Status().Current, r.source.name())
}

// notify logs the error of a notification to systemd.
func (r *daemon) notify(err error) {
	if err != nil {
		r.log.Warn("systemd was not notified", "error", err)
	}
}

// reopen has logs opened again at each SIGUSR1, until ctx ends.
func (r *daemon) reopen(ctx context.Context) {
	for {
		select {
		case <-r.reopens:
			r.ReopenLogs()
		case <-ctx.Done():
			return
		}
	}
}

// finalFlush is the time, at the end of the program, for readers of its output, and for
// everything after a second signal.
const finalFlush = time.Second

// errStuck is the error of a program that could not end in time.
var errStuck = fmt.Errorf("%w: it took too long to end them", server.ErrCut)

// logFlags are the flags of commands that log.
type logFlags struct {
	Log      string `enum:"text,json" default:"text" placeholder:"text|json" help:"Form of the log on standard error, and of the summary on standard output. (default: ${default})"`
	LogLevel string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Least level to log: debug (a line for each session), info, warn or error. (default: ${default})"`
}

// logged runs a command with its logger, and reports its error.
func (f *logFlags) logged(e *cli.Env, command func(log *slog.Logger) error) error {
	last, cancel := context.WithCancel(context.Background())
	defer cancel()
	direct := newLogger(e.Stderr, f.Log, f.LogLevel)
	out := newAsyncWriter(e.Stderr, func(n int64) {
		direct.Warn("lines of the log dropped, its reader is slow", "lines", n)
	})
	log := newLogger(out, f.Log, f.LogLevel)
	err := command(log)
	err = f.fail(out, log, err)
	time.AfterFunc(finalFlush, cancel)
	out.close(last)
	return err
}

// fail reports the error with which the program ends: as a log line if programs read the log,
// otherwise as text.
func (f *logFlags) fail(out io.Writer, log *slog.Logger, err error) error {
	if err == nil {
		return nil
	}
	bad, _ := errors.AsType[*badFile](err)
	switch {
	case f.Log == "json" && bad != nil:
		logProblems(log, bad)
	case f.Log == "json":
		log.Error(err.Error())
	case bad != nil:
		_, _ = io.WriteString(out, bad.Text)
	default:
		(&cli.Env{Stderr: out}).PrintError(err)
	}
	if errors.As(err, new(cli.UsageError)) {
		return cli.ExitCode(cli.ExitUsage)
	}
	return cli.ExitCode(cli.ExitError)
}

// A service is a running server that handles signals meanwhile.
type service struct {
	form string // of the summary
	log  *slog.Logger
	// reload is called for each SIGHUP, and must return at once. If it is nil SIGHUP stops the
	// program, as SIGTERM does.
	reload func()
}

// run calls serve, which opens a server, passes it on, and serves until it has ended.
// Meanwhile run handles signals, even if the server, or a reader of the output, is blocked. The
// last line on standard output is the summary.
func (s *service) run(e *cli.Env, serve func(ctx context.Context, opened chan<- loadBalancer) error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	opened, ended := make(chan loadBalancer), make(chan error, 1)
	go func() { ended <- serve(ctx, opened) }()
	var reloads <-chan os.Signal
	if s.reload != nil && e.Reloads != nil {
		reloads = e.Reloads()
	}
	var running loadBalancer
	var stuck <-chan time.Time
	for {
		select {
		case running = <-opened:
		case err := <-ended:
			s.summarize(e.Stdout, running, stuck)
			return err
		case <-reloads:
			s.reload()
		case <-e.Stops:
			if ctx.Err() == nil {
				stop()
			} else if stuck == nil {
				stuck = time.After(finalFlush)
				if running != nil {
					go running.Cut()
				}
			}
		case <-stuck:
			return errStuck
		}
	}
}

// summarize writes the summary of a server that was opened: until stuck, or for finalFlush if
// that is nil.
func (s *service) summarize(w io.Writer, balancer loadBalancer, stuck <-chan time.Time) {
	if balancer == nil {
		return
	}
	if stuck == nil {
		stuck = time.After(finalFlush)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := writeSummary(w, s.form, balancer.Summary()); err != nil {
			s.log.Warn("summary not written", "error", err)
		}
	}()
	select {
	case <-written:
	case <-stuck:
	}
}

// maxSpooled is the number of lines that are queued for a slow reader.
const maxSpooled = 4096

// An asyncWriter is a writer that never blocks: a goroutine of its own writes the lines. If
// the queue is full, further lines are dropped and counted, and the count is reported. So a
// log reader that stalls costs lines, and not connections. It is safe for concurrent use.
type asyncWriter struct {
	w       io.Writer
	report  func(dropped int64) // writes to w
	lines   chan []byte
	dropped atomic.Int64
	closed  chan struct{}
	written chan struct{} // closed when the goroutine has ended
}

func newAsyncWriter(w io.Writer, report func(dropped int64)) *asyncWriter {
	s := &asyncWriter{
		w: w, report: report, lines: make(chan []byte, maxSpooled),
		closed: make(chan struct{}), written: make(chan struct{}),
	}
	go s.run()
	return s
}

// Write takes one line. It never fails.
func (s *asyncWriter) Write(line []byte) (int, error) {
	select {
	case s.lines <- bytes.Clone(line):
	default:
		s.dropped.Add(1)
	}
	return len(line), nil
}

// close writes the queue, for as long as ctx allows. It is called once; later lines are lost.
func (s *asyncWriter) close(ctx context.Context) {
	close(s.closed)
	select {
	case <-s.written:
	case <-ctx.Done():
	}
}

func (s *asyncWriter) run() {
	defer close(s.written)
	for {
		select {
		case line := <-s.lines:
			s.pass(line)
		case <-s.closed:
			for len(s.lines) > 0 {
				s.pass(<-s.lines)
			}
			return
		}
	}
}

// pass writes a line. If that fails the line is lost, since there is no place to report it.
func (s *asyncWriter) pass(line []byte) {
	_, _ = s.w.Write(line)
	if n := s.dropped.Swap(0); n > 0 {
		s.report(n)
	}
}
