package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/generation"
)

// hangup reads the configuration again because of a signal.
func (r *running) hangup() {
	select {
	case <-r.opened:
		_, _, _ = r.load(context.Background(), generation.Options{By: "SIGHUP"}, false) // it is logged
	case <-r.over:
	}
}

// take waits for its turn to read the configuration and apply it: what was read first is
// applied first.
func (r *running) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another reload is under way: %w", context.Cause(ctx))
	case <-r.over:
		return generation.ErrClosed
	}
}

// Reload reads the configuration again, and applies it, also if it says what it said.
func (r *running) Reload(ctx context.Context, o generation.Options) (done admin.Reloaded, err error) {
	now, to, err := r.load(ctx, o, false)
	if err != nil {
		return done, err
	}
	return admin.Reloaded{Generation: now.Generation, Changes: lines(config.Diff(now.Before, to)), Pending: now.Pending}, nil
}

// installed is what has become of a configuration.
type installed = generation.Installed[*config.Config]

// load reads the configuration and applies it, and returns what has become of it, and what was
// read. It does nothing if asked to where the configuration says what it said when it was read
// last. (That may have been rolled back since, and was not for nothing.)
func (r *running) load(ctx context.Context, o generation.Options, unlessSame bool) (now installed, to *config.Config, err error) {
	if err := r.take(ctx); err != nil {
		return now, nil, err
	}
	defer func() { <-r.turn }()
	r.notify(r.notifier.Reloading())
	defer func() { r.notify(r.notifier.Ready(r.lineAfter(err))) }()
	defer func() { r.logRefused(o.By, err) }()
	defer widen(r.env)()
	if to, err = loadConfig(r.path, r.env); err != nil {
		return now, nil, err
	}
	if unlessSame && len(config.Diff(r.read, to)) == 0 {
		return now, nil, nil
	}
	r.read = to
	logWarnings(r.log, to.Warnings)
	before, _ := r.keeper.Current()
	r.changes = config.Diff(before, to)
	now, err = r.keeper.Apply(ctx, to, o)
	return now, to, err
}

// logRefused logs why a reload was refused.
func (r *running) logRefused(by string, err error) {
	var bad *admin.ConfigError
	switch {
	case err == nil, errors.Is(err, generation.ErrClosed):
		return
	case errors.As(err, &bad):
		logProblems(r.log, bad)
		err = errors.New("the configuration has problems")
	}
	r.log.Error("reload refused, nothing was changed", "by", by, "error", err)
}

// apply brings a configuration into force, with the place where it is administered.
func (r *running) apply(ctx context.Context, cfg *config.Config) error {
	move, err := r.admin.Prepare(ctx, adminBind(cfg))
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	if err := r.loadBalancer.Apply(ctx, cfg); err != nil {
		return errors.Join(err, move.Abort())
	}
	move.Commit()
	select { // those that nobody has looked at are old
	case <-r.follow:
	default:
	}
	r.follow <- cfg
	return nil
}

// Confirm has the reload that waits for it stay.
func (r *running) Confirm(ctx context.Context, number int, by string) (int, error) {
	return r.keeper.Confirm(ctx, number, by)
}

// Rollback returns to the generation before.
func (r *running) Rollback(ctx context.Context, by string) (int, error) {
	return r.keeper.Rollback(ctx, by)
}

// Generations tells which ones there are.
func (r *running) Generations() generation.Status { return r.keeper.Status() }

// tell logs what has become of a generation.
func (r *running) tell(c generation.Change) {
	attrs := []any{"generation", c.Now}
	if c.By != "" {
		attrs = append(attrs, "by", c.By)
	}
	if c.Event != generation.Applied { // which is told with the end of the reload
		defer func() { r.notify(r.notifier.Status(fmt.Sprintf("generation %d of %s", c.Now, r.path))) }()
	}
	switch c.Event {
	case generation.Applied:
		if p := c.Pending; p != nil {
			attrs = append(attrs, "confirm_until", p.Until, "rollback_if", p.RollbackIf)
		}
		r.log.Info("configuration in force", append(attrs, "changes", summary(r.changes))...)
	case generation.Confirmed:
		r.log.Info("configuration confirmed", attrs...)
	case generation.TakenBack:
		r.log.Warn("configuration rolled back", append(attrs, "from", c.Generation, "why", c.Why)...)
	case generation.RollbackFailed:
		r.log.Error("rollback failed", append(attrs, "why", c.Why, "error", c.Err)...)
	}
}
