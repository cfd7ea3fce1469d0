package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/activation"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/generation"
)

// Running is a load balancer that runs, with all that changes it meanwhile.
type running struct {
	loadBalancer // nil until it has been opened

	given    string // the configuration, as it was given
	path     string // the same, absolute
	env      config.Env
	self     int // the process; 0: of a test
	watches  bool
	open     opener
	options  *proxy.Config
	log      *slog.Logger
	sockets  *activation.Sockets  // owned
	notifier *activation.Notifier // of systemd
	admin    *admin.Server        // owned by serve
	reloads  *wishes              // of SIGHUP
	opened   chan struct{}        // closed once everything is there
	over     chan struct{}        // closed when serve has returned

	turn    chan struct{} // has a token in it while somebody reads the configuration and applies it
	keeper  *generation.Keeper[*config.Config]
	changes []config.Change     // by the configuration that is being applied. Belongs to who has the turn
	read    *config.Config      // last, in force or not. Belongs to who has the turn
	follow  chan *config.Config // in force, for who watches its files; holds the latest
}

func newRunning(c *runCmd, e *env, options *proxy.Config) *running {
	r := &running{
		given: c.path, path: c.path, env: e.environment(), self: e.self, watches: c.Watch, open: c.open, options: options, log: options.Log,
		opened: make(chan struct{}), over: make(chan struct{}),
		turn: make(chan struct{}, 1), follow: make(chan *config.Config, 1),
	}
	if path, err := filepath.Abs(r.path); err == nil {
		r.path = path
	}
	if r.open == nil {
		r.open = openBalancer
	}
	r.reloads = newWishes(r.hangup, func() {})
	return r
}

// end is called when no signal comes any more.
func (r *running) end() { r.reloads.end() }

// serve reads the configuration, opens what it says, passes it on, and serves.
func (r *running) serve(ctx context.Context, opened chan<- server) error {
	defer close(r.over)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cfg, err := loadConfig(r.given, r.env)
	if err != nil {
		return err
	}
	if r.notifier, err = activation.NewNotifier(); err != nil {
		r.log.Warn("systemd is not told everything", "error", err)
	}
	r.sockets = activation.Receive()
	r.admin = admin.New(admin.Config{Balancer: r, Reloader: r, Stop: stop, Version: version(), Log: r.log, Self: r.self})
	defer r.closeAdmin()
	if err := r.openAll(ctx, cfg); err != nil {
		if ctx.Err() == nil {
			return err
		}
		r.log.Info("stopped before it listened", "error", err)
		return nil
	}
	opened <- r
	return r.serveOpen(ctx, cfg)
}

// closeAdmin ends the admin server; who is being answered has a moment.
func (r *running) closeAdmin() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_ = r.admin.Close(ctx)
	if err := r.sockets.Close(); err != nil {
		r.log.Warn("closing the sockets of systemd failed", "error", err)
	}
}

// openAll opens the admin socket and the load balancer, or nothing.
func (r *running) openAll(ctx context.Context, cfg *config.Config) error {
	move, err := r.admin.Prepare(ctx, adminBind(cfg))
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	r.loadBalancer, err = r.open(ctx, cfg, balancerOptions{Server: r.options, Sockets: r.sockets})
	if err != nil {
		return errors.Join(err, move.Abort())
	}
	r.keeper = generation.New(cfg, generation.Config[*config.Config]{
		Apply:    r.apply,
		Counter:  r.Counter,
		Counters: func() []string { return slices.Sorted(maps.Keys(r.Status().Counters)) },
		Tell:     r.tell,
	})
	if unused := r.sockets.Unused(); len(unused) > 0 {
		r.log.Warn("systemd has passed sockets that no listener names", "names", unused)
	}
	r.read = cfg
	r.follow <- cfg
	move.Commit()
	close(r.opened)
	return nil
}

// serveOpen serves what is open, and ends what belongs to it.
func (r *running) serveOpen(ctx context.Context, cfg *config.Config) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	serving, end := context.WithCancel(context.Background())
	defer end()
	beside.Go(func() {
		r.notifier.Watchdog(serving, r.Alive, func(err error) { r.log.Warn("no sign of life for systemd", "error", err) })
	})
	if r.watches {
		beside.Go(func() { r.watch(ctx) })
	}
	beside.Go(func() {
		select {
		case <-ctx.Done():
			r.leave()
		case <-serving.Done():
		}
	})
	r.logStart(cfg)
	r.notify(r.notifier.Ready(r.line()))
	err := r.loadBalancer.Serve(ctx)
	r.keeper.Close()
	return err
}

// leave begins the end of a process that drains: nothing is changed any more. It can be
// asked how far it is, until a successor wants its admin socket.
func (r *running) leave() {
	r.notify(r.notifier.Stopping(r.options.DrainTimeout + 2*lastWords))
	r.keeper.Close()
}

// logStart says under which bounds it runs, and what of its configuration is hardly meant.
func (r *running) logStart(cfg *config.Config) {
	r.log.Info("starting", "version", version(), "config", r.path, "engine", r.options.Engine.String(), "loops", r.options.Loops,
		"max_connections", r.options.MaxConnections, "rlimit_nofile", descriptors())
	logWarnings(r.log, cfg.Warnings)
	if cfg.Admin == nil {
		r.log.Info("no admin endpoint: penstock status, reload and drain cannot reach this process", "to_have_one", adminExample)
	}
}

// line says in one line how it is doing.
func (r *running) line() string {
	return fmt.Sprintf("generation %d of %s", r.keeper.Status().Current, r.path)
}

// notify tells that systemd could not be told.
func (r *running) notify(err error) {
	if err != nil {
		r.log.Warn("systemd was not told", "error", err)
	}
}
