package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/page"
	"github.com/penstock/penstock/proxy/internal/scrape"
	sources "github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/proxy/systemd"
)

// A daemon is a running load balancer with everything that can change it.
type daemon struct {
	loadBalancer // nil until it is open

	daemonConfig
	env      config.Env
	self     int // process id; 0 in tests
	options  *server.Options
	log      *slog.Logger
	sockets  *systemd.Sockets  // owned
	notifier *systemd.Notifier // of systemd
	admin    *admin.Server     // owned by serve
	reloads  *trigger          // by SIGHUP
	reopens  <-chan os.Signal  // SIGUSR1; may be nil
	opened   chan struct{}     // closed once everything is open
	over     chan struct{}     // closed when serve has returned
	scrape   *scrape.Server    // owned by serve
	leaves   leaving
	measured measured

	turn        chan struct{} // holds a token while a goroutine reads the configuration and applies it
	looks       chan struct{} // holds a token while a goroutine only looks at the configuration
	keeper      *rollback.Keeper[*config.Config]
	read        *config.Config // the last configuration read, in force or not. Belongs to the holder of turn
	next        *readFile      // the file that is being applied. Belongs to the holder of turn
	adminFailed error          // why the private admin socket of the configuration failed. Belongs to the holder of turn
	refused     refusedFile
	onDisk      fileState

	stateClosed sync.Once // closeState

	// These belong to the holder of the keeper's turn: the changes of the configuration that is being applied, and in
	// words what happens to the sessions of each, if tells says that its author is told; the effects of the last
	// configuration, reload and rollback; and the file of the last reload. The caller of a reload or rollback reads its
	// effect while it holds turn, so that no other reload or rollback comes between.
	changes                    []config.Change
	tells                      bool
	fates                      []string
	effect, applied, takenBack effect
	inForce                    *readFile

	follow  chan *config.Config // configurations in force, for watch; holds the latest
	decided chan struct{}       // for watch: has a token when a change was confirmed or rolled back
}

// A daemonConfig is the part of a daemon that the command sets.
type daemonConfig struct {
	source  source
	file    bool // the source is a file, which can be read again
	watches bool
	fits    bool // fit sets options that depend on the configuration
	// drainDelay is how long the process still accepts clients before it drains.
	drainDelay time.Duration
	open       opener // nil: openBalancer
}

func newDaemon(c *daemonConfig, e *cli.Env, options *server.Options) *daemon {
	r := &daemon{
		daemonConfig: *c, env: e.Environment(), self: e.Self, options: options, log: options.Log, reopens: e.Reopens,
		opened: make(chan struct{}), over: make(chan struct{}),
		turn: make(chan struct{}, 1), looks: make(chan struct{}, 1), follow: make(chan *config.Config, 1), decided: make(chan struct{}, 1),
	}
	if r.open == nil {
		r.open = openBalancer
	}
	r.reloads = newTrigger(r.hangup)
	return r
}

func (r *daemon) end() { r.reloads.end() }

// serve reads the configuration, opens the load balancer, passes it to opened, and serves.
func (r *daemon) serve(ctx context.Context, opened chan<- loadBalancer) error {
	defer close(r.over)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reclaim := giveBack()
	print, _ := fingerprint(new(config.Config), r.source.name()) // before the file is read, so that a later change shows
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
	// Each address has its own limit, so that scrapers over the network cannot exclude scrapers at the admin API.
	scraped := func() http.Handler { return metrics.NewHandler(r.measure, metrics.DefaultLimits) }
	r.scrape = scrape.New(scraped(), r.log)
	r.admin = admin.New(admin.Config{
		Balancer: r, Reloader: r, Stop: stop, Metrics: scraped(), Page: page.Handler(), Process: r.report, Version: cli.Version(), Log: r.log, Self: r.self,
		Leaving: r.leaves.get, Alive: r.alive, Opened: r.opened,
	})
	defer r.closeAdmin()
	if err := r.openAll(ctx, cfg, print); err != nil {
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

// closeAdmin closes the admin server, after a moment for requests in progress.
func (r *daemon) closeAdmin() {
	ctx, cancel := context.WithTimeout(context.Background(), finalFlush)
	defer cancel()
	_ = r.admin.Close(ctx)
	r.noteAdmin(new(config.Config))
	_ = r.scrape.Close(ctx)
	if err := r.sockets.Close(); err != nil {
		r.log.Warn("the sockets of systemd could not be closed", "error", err)
	}
}

// openAll opens the admin socket and the load balancer. closeAdmin closes the admin socket. print is the fingerprint of the
// file; if it includes others, the next status reads them again.
func (r *daemon) openAll(ctx context.Context, cfg *config.Config, print string) error {
	move, scrapes, err := r.prepare(ctx, cfg)
	if err != nil {
		return r.alreadyRuns(err)
	}
	move.Commit() // from now on it answers that the process starts
	r.loadBalancer, err = r.open(ctx, cfg, *r.options)
	if err != nil {
		if move.TakeOver == nil { // otherwise the process that ran this file drains, and has closed its listeners
			err = r.alreadyRuns(err)
		}
		return errors.Join(err, scrapes.Abort())
	}
	if move.TakeOver != nil {
		r.adminFailed = move.TakeOver(ctx)
	}
	r.logAdminFailed()
	r.keeper = rollback.New(cfg, rollback.Config[*config.Config]{
		Apply:    r.apply,
		Changes:  r.changesBetween,
		Pack:     packed,
		Counter:  r.Counter,
		Counters: func() []string { return slices.Sorted(maps.Keys(r.Status().Counters)) },
		Report:   r.logChange,
	})
	if unused := r.sockets.Unused(); len(unused) > 0 {
		r.log.Warn("systemd passed sockets that no listener uses", "names", unused)
	}
	r.read = cfg
	r.onDisk.read(cfg, print, metrics.FileSame, nil)
	r.measured.loaded(nil)
	r.follow <- cfg
	scrapes.Commit()
	r.noteAdmin(cfg)
	close(r.opened)
	return nil
}

// alreadyRuns names the other process that runs the same file, if an address is in use.
func (r *daemon) alreadyRuns(err error) error {
	if r.file && errors.Is(err, syscall.EADDRINUSE) {
		if pid, _, drains := processOf("/proc", r.source.name()); pid != 0 && !drains {
			taken, _, _ := strings.Cut(err.Error(), ": another socket has it") // it is that process's
			return fmt.Errorf("process %d already runs %s: %s", pid, r.source.name(), taken)
		}
	}
	return err
}

// serveOpen serves the open load balancer, and ends its helper goroutines.
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

func (r *daemon) logStart(cfg *config.Config) {
	r.log.Info("starting", "version", cli.Version(), "config", r.source.name(), "engine", r.options.Engine.String(), "loops", r.options.Loops,
		"max_connections", r.options.MostConnections(cfg), "rlimit_nofile", cli.Descriptors())
	if set, err := sys.Capabilities(); err == nil && os.Geteuid() == 0 && set.Has(sys.CAP_SYS_ADMIN) {
		r.log.Info("the process is root with all capabilities: run it as a dedicated user, with CAP_NET_BIND_SERVICE for ports below 1024, as packaging/systemd/penstock.service does")
	}
	logWarnings(r.log, cfg.Warnings)
	if r.admin.Addr() == "" && (cfg.Admin == nil || !r.file) {
		r.log.Info(noAdmin, "add", r.adminSetting())
	}
}

func (r *daemon) line() string {
	return fmt.Sprintf("generation %d of %s", r.keeper.Status().Current, r.source.name())
}

func (r *daemon) notify(err error) {
	if err != nil {
		r.log.Warn("systemd was not notified", "error", err)
	}
}

// reopen opens the logs again at each SIGUSR1, until ctx ends.
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

// finalFlush is how long, at the end of the program, readers get to take its output, and how long everything may take
// after a second signal.
const finalFlush = time.Second

// errStuck means that the program could not end in time.
var errStuck = fmt.Errorf("%w: it took too long to end them", server.ErrCut)

// logFlags are the flags of commands that log.
type logFlags struct {
	Log      string `enum:"text,json" default:"text" placeholder:"text|json" help:"Write the log on standard error, and the summary on standard output, in this format. (default: ${default})"`
	LogLevel string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Log messages of this level and above: debug (a line for each session), info, warn or error. (default: ${default})"`
}

// logged runs a command with its logger, and reports its error.
func (f *logFlags) logged(e *cli.Env, command func(log *slog.Logger) error) error {
	last, cancel := context.WithCancel(context.Background())
	defer cancel()
	direct := newLogger(e.Stderr, f.Log, f.LogLevel)
	out := newAsyncWriter(e.Stderr, func(n int64) {
		direct.Warn("lines of the log were dropped, because the reader of the log is slow", "lines", n)
	})
	log := newLogger(out, f.Log, f.LogLevel)
	err := command(log)
	err = f.fail(out, log, err)
	time.AfterFunc(finalFlush, cancel)
	out.close(last)
	return err
}

// fail reports the error that ends the program: as a log line if programs read the log, otherwise as text.
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

// A service runs a server and handles signals.
type service struct {
	form string // of the summary
	log  *slog.Logger
	// reload is called at each SIGHUP, and must return at once. If it is nil SIGHUP stops the program, like SIGTERM.
	reload func()
}

// run calls serve, which opens a server, passes it to opened, and serves until the server has ended. run handles
// signals even if the server, or a reader of the output, is blocked. The last line on standard output is the summary.
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

// summarize writes the summary of an opened server. It gives up at stuck, or after finalFlush if stuck is nil.
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
			s.log.Warn("the summary could not be written", "error", err)
		}
	}()
	select {
	case <-written:
	case <-stuck:
	}
}

// maxSpooled is how many lines are queued for a slow reader.
const maxSpooled = 4096

// An asyncWriter never blocks: its own goroutine writes the lines. If the queue is full it drops further lines,
// counts them and reports the number. So a log reader that stalls costs lines, not connections. It is safe for
// concurrent use.
type asyncWriter struct {
	w       io.Writer
	report  func(dropped int64) // writes to w
	lines   chan []byte
	dropped atomic.Int64
	closed  chan struct{}
	written chan struct{} // closed when the goroutine ends
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

// close writes the queue, as long as ctx allows. Call it once; later lines are lost.
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

// pass writes a line. If that fails the line is lost: there is nowhere to report it.
func (s *asyncWriter) pass(line []byte) {
	_, _ = s.w.Write(line)
	if n := s.dropped.Swap(0); n > 0 {
		s.report(n)
	}
}

// openState opens the file of changes by hand. The process starts even if this fails.
func (r *daemon) openState(cfg *config.Config) {
	path := cfg.StatePath(r.env)
	if path == "" {
		return
	}
	st := state.Open(path)
	r.options.State = st
	if err := cmp.Or(st.Corrupt(), st.Err()); err != nil {
		r.log.Error("the file of changes by hand cannot be used", "file", path, "error", err)
	}
}

// closeState leaves the file of changes by hand to a successor. A second call waits for the first.
func (r *daemon) closeState() {
	r.stateClosed.Do(func() {
		if r.options.State == nil {
			return
		}
		if err := r.options.State.Close(); err != nil {
			r.log.Error("the next restart will lose changes by hand", "error", err)
		}
	})
}

// writeLive writes changes by hand below a title, each with its fate. Without changes it writes nothing.
func writeLive(w io.Writer, title string, list []admin.LiveChange, fate func(ends string) string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, title+":")
	for i := range list {
		c := &list[i]
		fmt.Fprintf(w, "  %s\n    %s\n", display.Text(c.What), display.Text(fmt.Sprintf("by %s at %s%s", c.By, c.Since.Local().Format(time.DateTime), fate(c.Ends))))
	}
}

// planned says what a reload would do to a change by hand.
func planned(ends string) string {
	if ends == "" {
		return "; stays"
	}
	return "; ends: " + ends
}

// because says why a change by hand has ended.
func because(ends string) string {
	return when(ends != "", ": "+ends)
}

// newLogger returns a logger that writes one line per record, in the form "text" or "json". The level is a level of
// slog in lower case.
func newLogger(w io.Writer, form, level string) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: readable}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err == nil {
		options.Level = l
	}
	w = display.NewWriter(w)
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// readable escapes bytes that are not UTF-8 as \xff, as everywhere: a line of JSON would lose them.
func readable(_ []string, a slog.Attr) slog.Attr {
	text := ""
	if a.Value.Kind() == slog.KindString {
		text = a.Value.String()
	} else if err, ok := a.Value.Any().(error); ok {
		text = err.Error()
	}
	if !utf8.ValidString(text) {
		a.Value = slog.StringValue(display.Text(text))
	}
	return a
}

// writeSummary writes a summary in one line: as JSON, or as text without the counters of the engine and of loops.
func writeSummary(w io.Writer, form string, s admin.Summary) error {
	if form == "json" {
		return json.NewEncoder(w).Encode(s)
	}
	there, back := s.Bytes.ClientToEndpoint, s.Bytes.EndpointToClient
	_, err := fmt.Fprintf(w, "%s accepted, %d refused%s; client to endpoint: %s spliced, %d copied; endpoint to client: %s spliced, %d copied%s; %s %s; fallbacks to copying: %s\n",
		plural(s.Connections.Accepted, "connection", "connections"), s.Connections.Refused, byReason(s.RefusedBy),
		bytesText(there.Spliced), there.Copied, bytesText(back.Spliced), back.Copied, laneBytes(&s), bytesText(s.Lost), cmp.Or(when(s.Lost > 0, undelivered), "not delivered"), listed(s.Fallbacks))
	return err
}

func bytesText(n int64) string { return plural(n, "byte", "bytes") }

// laneBytes returns the bytes of sessions that had left user space, if there were any.
func laneBytes(s *admin.Summary) string {
	there, back := s.Bytes.ClientToEndpoint.Lane, s.Bytes.EndpointToClient.Lane
	if there+back == 0 {
		return ""
	}
	return fmt.Sprintf("; in the lane: %s to endpoints, %d to clients", bytesText(there), back)
}

func listed(m map[string]int64) string { return cmp.Or(display.Counts(m), "none") }

// measured holds the counters of reloads. The zero value is ready to use.
type measured struct {
	mu sync.Mutex
	metrics.Config
}

func (m *measured) loaded(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.LastOK = err == nil; m.LastOK {
		m.LastSuccess = time.Now()
	}
}

// reloaded counts a reload, unless it came too late.
func (m *measured) reloaded(err error) {
	if errors.Is(err, rollback.ErrClosed) {
		return
	}
	m.loaded(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.Refused++
		return
	}
	m.Reloads++
}

func (m *measured) takenBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.RolledBack++
}

func (r *daemon) measure(sample *metrics.Sample) {
	r.loadBalancer.Metrics(sample)
	sample.Process.Version = cli.Version()
	r.measured.mu.Lock()
	sample.Config = r.measured.Config
	r.measured.mu.Unlock()
	of, c := r.keeper.Status(), &sample.Config
	c.Generation, c.Unconfirmed = of.Current, of.Pending != nil
	if r.file {
		c.File = r.onDisk.state()
	}
}

// fingerprint describes a configuration's files, and the files that match its patterns now, by the metadata that
// changes with a file. Files with equal fingerprints need not be compared. It soon fails if a file system does not
// answer.
func fingerprint(cfg *config.Config, path string) (string, error) {
	files := append([]string{path}, cfg.Files...)
	for _, glob := range cfg.Globs {
		found, err := file.Glob(glob) // the pattern was checked before
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	var print strings.Builder
	for _, name := range slices.Compact(files) {
		info, err := file.Stat(name)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return "", err
		case err != nil:
			fmt.Fprintf(&print, "%s: %v\n", name, err)
		default:
			fmt.Fprintf(&print, "%s %d %d %v\n", name, info.Size(), info.ModTime().UnixNano(), info.Mode())
		}
	}
	return print.String(), nil
}

// scrapeConfig returns the address of the metrics, or nil.
func scrapeConfig(m *config.Metrics) *scrape.Config {
	if m == nil {
		return nil
	}
	c := &scrape.Config{Address: m.Bind.Address, Allow: sources.NewSet(m.Allow), Token: present(m.Token)}
	if m.TLS != nil {
		c.Cert, c.Key = string(m.TLS.Cert), string(m.TLS.Key)
	}
	return c
}
