package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/server"
)

type runCmd struct {
	configFlag
	Watch bool `help:"Read the configuration again whenever the file, or a file that it includes, changes."`

	serverFlags
	logFlags

	open opener `kong:"-"` // nil: openBalancer
}

// Run serves the configuration until a signal stops it.
func (c *runCmd) Run(e *cli.Env) error {
	return c.logged(e, func(log *slog.Logger) error {
		if err := c.given("run"); err != nil {
			return err
		}
		file := newFileSource(c.path, e.Environment())
		return c.logFlags.serve(e, "run", log, &c.serverFlags, &daemonConfig{source: file, file: true, watches: c.Watch, open: c.open})
	})
}

// loadConfig reads a configuration. The error is an [*admin.ConfigError].
func loadConfig(path string, env config.Env) (*config.Config, error) {
	cfg, problems := config.Load(path, env)
	if err := badConfig(path, problems); err != nil {
		return nil, err
	}
	return cfg, nil
}

// knownConfig is [loadConfig] without loading WebAssembly modules, see [config.LoadKnown].
func knownConfig(path string, env config.Env) (*config.Config, []*config.Unknown, error) {
	cfg, unknown, problems := config.LoadKnown(path, env)
	if err := badConfig(path, problems); err != nil {
		return nil, unknown, err
	}
	return cfg, unknown, nil
}

// A badFile is an [*admin.ConfigError] with its problems.
type badFile struct {
	*admin.ConfigError
	found []config.Problem
}

// Unwrap returns the error that callers of the admin API get.
func (b *badFile) Unwrap() error { return b.ConfigError }

// badConfig makes a [*badFile] from the problems of a configuration, or returns nil without any.
func badConfig(path string, problems []config.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	bad := &badFile{&admin.ConfigError{Path: path}, problems}
	var text strings.Builder
	for _, p := range problems {
		bad.Problems = append(bad.Problems, p.Error())
		fmt.Fprintln(&text, p.String())
	}
	bad.Text = text.String()
	return bad
}

// maxLogged is how many problems of a configuration are logged.
const maxLogged = 20

func logProblems(log *slog.Logger, bad *badFile) {
	logEach(log.Error, bad.found, "configuration problem", "there are more problems, see penstock check")
}

func logWarnings(log *slog.Logger, warnings []config.Problem) {
	logEach(log.Warn, warnings, "configuration warning", "there are more warnings, see penstock check")
}

// logEach logs a line for each of the first problems, and a line with the number of the others.
func logEach(log func(msg string, args ...any), list []config.Problem, msg, others string) {
	for _, p := range list[:min(len(list), maxLogged)] {
		args := []any{"file", p.Pos.File}
		if p.Pos.Line > 0 {
			args = append(args, "line", p.Pos.Line)
		}
		log(msg, append(args, "cause", p.Message+when(p.Fix != "", ": "+p.Fix))...)
	}
	if more := len(list) - maxLogged; more > 0 {
		log(others, "more", more)
	}
}

// present returns the token that a file has now: a rollback brings no revoked token back. If the file cannot be read, it is the
// token of the configuration.
func present(s config.Secret) string {
	path, ok := strings.CutPrefix(s.Source, "file:")
	if !ok {
		return s.Value
	}
	text, err := file.Read(strings.ReplaceAll(path, "$$", "$"), 64<<10)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return s.Value
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
}

// adminAccess returns the admin address of a configuration, and the rules for its clients. The address is "" if there
// is none, or if it is private.
func adminAccess(cfg *config.Config) (a admin.Access) {
	c := cfg.Admin
	if c == nil {
		return a
	}
	a = admin.Access{Group: c.Group, ReadToken: present(c.ReadToken), ChangeToken: present(c.ChangeToken)}
	if !c.Bind.Auto() {
		a.Bind = c.Bind.String()
	}
	if c.TLS != nil {
		a.Cert, a.Key, a.ClientCA = string(c.TLS.Cert), string(c.TLS.Key), string(c.TLS.ClientCA)
	}
	return a
}

// summary counts changes: 1 listener changed, 2 endpoints added, 1 removed.
func summary(changes []config.Change) string {
	counts := map[config.Kind]map[config.Action]int{}
	for _, c := range changes {
		if counts[c.Kind] == nil {
			counts[c.Kind] = map[config.Action]int{}
		}
		counts[c.Kind][c.Action]++
	}
	var parts []string
	for _, kind := range config.Kinds() {
		name := true // the name of the kind is not written yet
		for _, action := range [...]config.Action{config.Added, config.Removed, config.Changed} {
			n := counts[kind][action]
			switch {
			case n == 0:
				continue
			case kind.Single():
				parts = append(parts, fmt.Sprintf("%s %s", kind, action))
			case name:
				parts = append(parts, fmt.Sprintf("%s %s", count(n, string(kind)), action))
			default:
				parts = append(parts, fmt.Sprintf("%d %s", n, action))
			}
			name = false
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func (r *daemon) report() *doctor.Report {
	s := r.Status()
	running := runningOf(&s)
	running.Affordable = int64(r.options.MaxConnections)
	report := doctor.ExamineProcess(running)
	if c, there := checkRunningLane(s.Lane); there {
		report.Checks = append(report.Checks, c)
	}
	return report
}

func runningOf(s *admin.Status) *doctor.Running {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	r := &doctor.Running{
		Sessions: s.Connections.Active, MaxSessions: s.Connections.Most, AcceptPauses: s.AcceptPauses,
		Spliced:   s.Bytes.ClientToEndpoint.Spliced + s.Bytes.EndpointToClient.Spliced,
		Copied:    s.Bytes.ClientToEndpoint.Copied + s.Bytes.EndpointToClient.Copied,
		Fallbacks: s.Fallbacks, LocalFaults: make(map[string]int64),
		Pipes: doctor.RunningPipes{
			Leased: s.Pipes.Leased, Idle: s.Pipes.Idle, Degraded: s.Pipes.Degraded, Refused: s.Pipes.Refused, Denied: s.Pipes.Denied,
			BudgetPages: s.Pipes.BudgetPages, LinePages: s.Pipes.LinePages, UsedPages: s.Pipes.UsedPages,
		},
		ArenaSize: s.Arena.Budget, ArenaHuge: s.Arena.Huge, ArenaFallback: s.Arena.Fallback, ArenaRefused: s.Arena.HeapResidues,
	}
	for _, l := range s.Loops {
		r.Loops = append(r.Loops, doctor.RunningLoop{LagP99: us(l.LagP99Us), LagMax: us(l.LagMaxUs), TimerLateP99: us(l.TimerLateP99Us), Turns: l.Turns, LongTurns: l.LongTurns})
	}
	for i := range s.Listeners {
		for _, q := range s.Listeners[i].Queues {
			r.Queues = append(r.Queues, doctor.RunningQueue{
				Listener: s.Listeners[i].Name, Address: q.Address, Length: q.Length, Most: q.Most, Dropped: q.Dropped, Known: q.Known, DroppedKnown: q.DroppedKnown,
			})
		}
	}
	for i := range s.Upstreams {
		for cause, n := range s.Upstreams[i].LocalFaults {
			r.LocalFaults[cause] += n
		}
	}
	return r
}

// lineAfter is line after a reload. It reports a refused reload until the next one, because systemd considers the
// process reloaded either way.
func (r *daemon) lineAfter(err error) string {
	if err == nil || errors.Is(err, rollback.ErrClosed) {
		return r.line()
	}
	return fmt.Sprintf("%s is in force; the reload at %s was refused: %v", r.line(), time.Now().Format("15:04:05"), err)
}

// watch reloads the configuration when one of its files changes, until ctx ends. It also tries when a pending change
// is decided, because that change may have held up a reload. A reload may change the set of files.
func (r *daemon) watch(ctx context.Context) {
	var now *config.Config
	var stop func()
	for {
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
			return
		case <-r.decided:
			r.changed()
		case next := <-r.follow:
			if now != nil && slices.Equal(now.Files, next.Files) && slices.Equal(now.Globs, next.Globs) {
				continue
			}
			if stop != nil {
				stop()
			}
			now, stop = next, r.watchFiles(next)
		}
	}
}

// watchFiles watches the files of a configuration. stop ends the watch, and waits until it has ended.
func (r *daemon) watchFiles(cfg *config.Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	files := discovery.NewWatch(discovery.WatchConfig{Paths: cfg.Files, Globs: cfg.Globs})
	var watching sync.WaitGroup
	watching.Go(func() {
		r.changed() // they may have changed since they were read
		files.Run(ctx, r.changed)
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// changed reloads the configuration because its files have changed. The reload may replace the watch that called
// changed; changed goes on then.
func (r *daemon) changed() {
	_, _ = r.load(context.Background(), rollback.Options{By: "watch"}, true, nil) // load logs the error
}

// serverFlags are the flags of commands that serve, apart from the flags for their configuration.
type serverFlags struct {
	engineFlags

	DrainDelay   cli.Timeout `default:"0s" placeholder:"TIME" help:"After SIGTERM or SIGINT accept clients for this long, then drain. GET /readyz fails meanwhile, so balancers in front notice. A second signal ends the process immediately. (default: ${default})"`
	DrainTimeout cli.Timeout `default:"30s" placeholder:"TIME" help:"Let sessions continue for this long after SIGTERM or SIGINT. The remaining sessions are reset over the last tenth of this time. A second signal resets them immediately. 0 means no limit. (default: ${default})"`
}

// options returns the server's options. fit sets the others.
func (f *serverFlags) options() (*server.Options, error) {
	o := &server.Options{DrainTimeout: f.DrainTimeout.Duration()}
	if err := f.engineFlags.config(o); err != nil {
		return nil, err
	}
	return o, nil
}

// serve runs a daemon until a signal stops it.
func (f *logFlags) serve(e *cli.Env, command string, log *slog.Logger, flags *serverFlags, c *daemonConfig) error {
	options, err := flags.options()
	if err != nil {
		return cli.Usagef("%s: %w (see: penstock %[1]s --help)", command, err)
	}
	defer tune(e)()
	options.Log, options.Version = log, cli.Version()
	c.fits, c.drainDelay = true, max(flags.DrainDelay.Duration(), 0)
	r := newDaemon(c, e, options)
	defer r.end()
	s := &service{form: f.Log, log: log}
	if c.file {
		s.reload = r.reloads.fire
	}
	return s.run(e, r.serve)
}

// A trigger calls a function in its own goroutine, since the function may block on a slow reader. Requests in between
// are merged.
type trigger struct {
	wanted chan struct{} // holds at most one request
}

func newTrigger(grant func()) *trigger {
	w := &trigger{wanted: make(chan struct{}, 1)}
	go func() {
		for range w.wanted {
			grant()
		}
	}()
	return w
}

// fire makes a request, unless one is waiting already.
func (w *trigger) fire() {
	select {
	case w.wanted <- struct{}{}:
	default:
	}
}

// end accepts no more requests. A waiting request is still served.
func (w *trigger) end() {
	close(w.wanted)
}

// A loadBalancer is the server of a daemon.
type loadBalancer interface {
	admin.Balancer
	// Summary returns the counters and resources until now.
	Summary() admin.Summary
	// Metrics fills in a sample, as [server.Server.Metrics] does.
	Metrics(m *metrics.Sample)
	// Cut ends Serve at once, and all sessions.
	Cut()
	// Serve accepts clients until ctx ends, drains, and closes everything, as
	// [server.Server.Serve] does.
	Serve(ctx context.Context) error
	// Apply puts a configuration into force: all of it, or nothing and an error.
	Apply(ctx context.Context, cfg *config.Config) error
	// Awaiting returns the keys of a configuration that would wait for a restart, as [server.Server.Awaiting] does.
	Awaiting(next *config.Config) []string
	// LiveUnder returns the changes by hand, each with the reason why a configuration would end it.
	LiveUnder(cfg *config.Config) []admin.LiveChange
	// DrainingUnder returns, by listener, the sessions that drain and would still drain under a configuration, as
	// [server.Server.DrainingUnder] does.
	DrainingUnder(cfg *config.Config) map[string]server.Draining
	// AppliedLive returns the changes by hand that the last Apply has ended, and restored.
	AppliedLive() (ended, restored []admin.LiveChange)
	// ReopenLogs opens log files again that were moved away.
	ReopenLogs()
	// Counter returns a counter of the status. It never decreases.
	Counter(name string) (value int64, known bool)
	// Alive returns when every loop has responded, or an error when ctx ends.
	Alive(ctx context.Context) error
}

// An opener is openBalancer, or a test's substitute.
type opener func(context.Context, *config.Config, server.Options) (loadBalancer, error)

// openBalancer opens the load balancer. It listens when openBalancer returns, but serves no client until the caller
// calls Serve. After an error nothing is left open.
func openBalancer(ctx context.Context, cfg *config.Config, o server.Options) (loadBalancer, error) {
	b, err := server.Open(ctx, cfg, o)
	if err != nil {
		return nil, err // a nil pointer would make a non-nil interface
	}
	return b, nil
}
