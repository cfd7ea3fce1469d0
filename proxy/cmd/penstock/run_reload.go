package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/rollback"
)

// hangup reloads the configuration on SIGHUP.
func (r *daemon) hangup() {
	select {
	case <-r.opened:
		_, _ = r.load(context.Background(), rollback.Options{By: "SIGHUP"}, false, nil) // load logs it
	case <-r.over:
	}
}

// take waits for the turn to read the configuration and apply it: configurations are applied
// in the order in which they are read.
func (r *daemon) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another reload is under way: %w", context.Cause(ctx))
	case <-r.over:
		return rollback.ErrClosed
	}
}

// Reload reads the configuration again, and applies it even if it is unchanged.
func (r *daemon) Reload(ctx context.Context, o rollback.Options) (done admin.Reloaded, err error) {
	done.Ended = []admin.LiveChange{}
	now, err := r.load(ctx, o, false, &done)
	if err != nil {
		return done, err
	}
	done.Generation, done.Changes, done.Pending = now.Generation, now.Changes, now.Pending
	return done, nil
}

// An effect is a configuration that was applied, and the changes by hand that it has ended and restored.
type effect struct {
	cfg             *config.Config
	ended, restored []admin.LiveChange
}

// load reads the configuration and applies it. If unlessSame is set and the configuration equals the last one
// read, load does nothing. (That one may have been rolled back since, for a reason.) The changes by hand
// that it has ended are stored in done, unless that is nil.
func (r *daemon) load(ctx context.Context, o rollback.Options, unlessSame bool, done *admin.Reloaded) (now rollback.Installed, err error) {
	if err := r.take(ctx); err != nil {
		return now, err
	}
	defer func() { <-r.turn }()
	r.notify(r.notifier.Reloading())
	defer func() { r.notify(r.notifier.Ready(r.lineAfter(err))) }()
	defer giveBack()()
	tried := true
	defer func() {
		r.logRefused(o.By, err)
		if !errors.Is(err, rollback.ErrOptions) && !errors.Is(err, rollback.ErrClosed) {
			r.onDisk.reloaded(o.By, err)
		}
		if tried {
			r.measured.reloaded(err)
		}
	}()
	defer widen(r.env)()
	inForce, _ := r.keeper.Current()
	print := fingerprint(inForce, r.source.name())
	to, err := r.source.load()
	r.onDisk.read(print, err)
	if err != nil {
		return now, err
	}
	if unlessSame && len(config.Diff(r.read, to)) == 0 {
		tried = false
		return now, nil
	}
	r.read = to
	r.next = &readFile{cfg: to, print: fingerprint(to, r.source.name())}
	logWarnings(r.log, to.Warnings)
	if now, err = r.keeper.Apply(ctx, to, o); err == nil && done != nil {
		done.Ended = r.applied.ended
	}
	return now, err
}

// muchGarbage is how much more memory the heap may hold after a large file was read than before.
const muchGarbage = 32 << 20

// giveBack has the memory given back to the kernel that is used only until the function is called, if that is much.
func giveBack() func() {
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapSys - m.HeapReleased
	}
	before := held()
	return func() {
		if held() > before+muchGarbage {
			debug.FreeOSMemory()
		}
	}
}

// packed holds a configuration that is not in force as text, a tenth of its size in memory or less, for the keeper.
func packed(cfg *config.Config) func() (*config.Config, error) {
	if kept := cfg.Keep(); kept != nil {
		return kept.Load
	}
	return func() (*config.Config, error) { return cfg, nil }
}

// changesBetween returns the changes from one configuration to another as lines, for the keeper, which calls it in
// its turn.
func (r *daemon) changesBetween(from, to *config.Config) []string {
	r.changes = changesTo(from, to, r.Awaiting(to))
	return lines(r.changes)
}

// logRefused logs the reason for which a reload was refused.
func (r *daemon) logRefused(actor string, err error) {
	var bad *badFile
	switch {
	case err == nil, errors.Is(err, rollback.ErrClosed):
		return
	case errors.As(err, &bad):
		logProblems(r.log, bad)
		err = errors.New("the configuration has problems")
	}
	r.log.Error("reload refused, nothing was changed", "by", actor, "error", err)
}

// apply puts a configuration into force, together with its addresses for the admin API and for metrics.
func (r *daemon) apply(ctx context.Context, cfg *config.Config) error {
	move, err := r.prepareAdmin(ctx, cfg)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	scrapes, err := r.scrape.Prepare(ctx, scrapeConfig(cfg.Metrics))
	if err != nil {
		return errors.Join(fmt.Errorf("metrics: %w", err), move.Abort())
	}
	if err := r.loadBalancer.Apply(ctx, cfg); err != nil {
		return errors.Join(err, move.Abort(), scrapes.Abort())
	}
	r.effect.cfg = cfg
	r.effect.ended, r.effect.restored = r.AppliedLive()
	move.Commit()
	scrapes.Commit()
	r.noteAdmin(cfg)
	select { // drop one that watch has not received: it is outdated
	case <-r.follow:
	default:
	}
	r.follow <- cfg
	return nil
}

// prepareAdmin prepares the admin address of a configuration. Without a private one, where that is meant, the
// process serves its clients all the same.
func (r *daemon) prepareAdmin(ctx context.Context, cfg *config.Config) (*admin.Move, error) {
	access := adminAccess(cfg)
	if cfg.Admin == nil || !cfg.Admin.Bind.Auto() || !r.file {
		return r.admin.Prepare(ctx, access)
	}
	bind, err := privateAddress(r.env, r.source.name())
	if access.Bind = bind; access.Group == "" {
		access.Bind += privateMode
	}
	if err == nil {
		var move *admin.Move
		if move, err = r.admin.Prepare(ctx, access); err == nil {
			return move, nil
		}
	}
	r.log.Warn("no admin endpoint: penstock status, reload and drain cannot reach this process", "error", err, "to_have_one", adminFor(r.source.name()))
	return r.admin.Prepare(ctx, admin.Access{})
}

// noteAdmin notes where the process listens, unless that is a private socket, which is found by its name.
func (r *daemon) noteAdmin(cfg *config.Config) {
	if !r.file {
		return
	}
	at := r.admin.Addr()
	if cfg.Admin == nil || cfg.Admin.Bind.Auto() {
		at = ""
	}
	if err := writeNote(r.env, r.source.name(), at); err != nil {
		r.log.Debug("the address of the admin endpoint is not noted", "error", err)
	}
}

// Confirm makes the pending reload permanent.
func (r *daemon) Confirm(ctx context.Context, number int, actor string) (int, error) {
	return r.keeper.Confirm(ctx, number, actor)
}

// Generations returns the present and the pending generation.
func (r *daemon) Generations() rollback.Status { return r.keeper.Status() }

// logChange logs a change of generation.
func (r *daemon) logChange(c rollback.Change) {
	attrs := []any{"generation", c.Now}
	if c.By != "" {
		attrs = append(attrs, "by", c.By)
	}
	if c.Event != rollback.Applied && c.Event != rollback.Unchanged { // these are reported at the end of the reload
		defer func() { r.notify(r.notifier.Status(fmt.Sprintf("generation %d of %s", c.Now, r.source.name()))) }()
	}
	switch c.Event {
	case rollback.Applied:
		if p := c.Pending; p != nil {
			attrs = append(attrs, "confirm_until", p.Until, "rollback_if", p.RollbackIf)
		}
		r.noteRead(&c)
		r.log.Info("configuration in force", append(attrs, "changes", summary(r.changes))...)
	case rollback.Unchanged:
		r.noteRead(&c)
		r.log.Info("the configuration is unchanged", attrs...)
	case rollback.Confirmed:
		r.log.Info("configuration confirmed", attrs...)
	case rollback.TakenBack:
		r.measured.takenBack()
		r.takenBack = r.effect
		r.refused.set(r.source.name(), r.inForce, &c, r.effect.cfg)
		r.log.Warn("configuration rolled back", append(attrs, "from", c.Generation, "cause", c.Why)...)
	case rollback.RollbackFailed:
		r.log.Error("rollback failed", append(attrs, "cause", c.Why, "error", c.Err)...)
	}
}

// noteRead notes that what was read last is in force.
func (r *daemon) noteRead(c *rollback.Change) {
	r.applied, r.inForce = r.effect, r.next
	r.inForce.generation = c.Generation
	r.onDisk.read(r.inForce.print, nil)
	r.refused.forget()
}
