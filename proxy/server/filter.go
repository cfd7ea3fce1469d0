package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/wasm"
	"github.com/penstock/penstock/relay"
)

// A runningFilter is a filter of a listener. It lasts until the configuration changes it.
type runningFilter struct {
	cfg *config.Filter
	of  *filter.Filter
}

func (lm *listenerManager) prepareFilters(ctx context.Context, c *change, l, old *listener) error {
	l.filters = make(map[string]runningFilter)
	for _, cfg := range l.cfg.Filters() {
		name := cfg.Title()
		if old != nil {
			if f, ok := old.filters[name]; ok && f.cfg.Same(cfg) {
				l.filters[name] = f
				continue
			}
		}
		if l.ledgers[name] == nil {
			l.ledgers[name] = filter.NewLedger()
		}
		of, err := filter.New(ctx, cfg.Wasm.Bytes, lm.filterConfig(c, l, cfg))
		if err != nil {
			return fmt.Errorf("filter %s: %w", name, err)
		}
		l.filters[name] = runningFilter{cfg, of}
		c.undo = append(c.undo, of.Close)
	}
	return nil
}

func (lm *listenerManager) filterConfig(c *change, l *listener, cfg *config.Filter) filter.Config {
	name := cfg.Title()
	onError := filter.Deny
	if cfg.OnError == "allow" {
		onError = filter.Allow
	}
	return filter.Config{
		Name: name, Config: cfg.Config, Bounds: wasm.Bounds{Memory: cfg.Memory}, Soon: true, Timeout: cfg.Timeout, OnError: onError,
		Preread: int(cfg.Preread), Instances: cmp.Or(cfg.Instances, lm.options.loops(c.cfg)), Upstreams: cfg.Upstreams,
		Counts: l.ledgers[name], Log: lm.moduleLog(l, "filter", "filter", name),
	}
}

// moduleLog returns the function with which a module of a listener logs.
func (lm *listenerManager) moduleLog(l *listener, what, kind, name string) func(level int, line string) {
	log := lm.log.With("listener", l.cfg.Name, kind, name)
	return func(level int, line string) {
		log.Log(context.Background(), filterLevels[min(level, len(filterLevels)-1)], what+": "+line)
	}
}

var filterLevels = []slog.Level{slog.LevelDebug, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelError}

func (l *listener) filter(c *change, cfg *config.Filter) *router.Filter {
	if cfg == nil {
		return nil
	}
	f := &router.Filter{
		Of: l.filters[cfg.Title()].of, Wait: l.cfg.Timeouts.Preread, Snapshots: make(map[string]*router.UpstreamSnapshot, len(cfg.Upstreams)),
	}
	for _, name := range cfg.Upstreams {
		f.Snapshots[name] = c.snapshot(name)
	}
	return f
}

// retireFilters closes the instances of filters that the next listener lacks. next may be nil.
func (l *listener) retireFilters(next *listener) {
	for name, f := range l.filters {
		if next == nil || next.filters[name].of != f.of {
			f.of.Retire()
		}
	}
}

// filterStatus describes a listener's filters for a status. If every is set, it includes reasons that did not occur.
// recent returns the failures of a filter in about the last minute; nil: they are not needed.
func (l *listener) filterStatus(every bool, recent func(any) int64) (list []admin.Filter) {
	for name, f := range l.filters {
		n, times := f.of.Counts, f.of.Counts.Times()
		calls, took := n.Calls()
		st := admin.Filter{
			Name: name, File: string(f.cfg.Wasm.Path), Upstreams: f.cfg.Upstreams, Engine: f.of.Engine(), Calls: calls, TimeUs: took.Microseconds(),
			Tagged: n.Tagged.Load(), Logged: n.Logged.Load(), Unlogged: n.Unlogged.Load(),
			Answers: n.Verdicts.ByReason(every), Failures: n.Failures.ByReason(every), Times: times[:],
		}
		st.Waiting, st.Running, st.Idle = f.of.Sizes()
		if recent != nil {
			st.FailedLastMinute = recent(n.Failures)
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b admin.Filter) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// unansweredLine is the log line about filters that do not answer.
const unansweredLine = "a filter has not answered about clients"

func (l *listener) rewrite(cfg *config.Rewrite) *router.Rewrite {
	if !cfg.Active() {
		return nil
	}
	r := &router.Rewrite{Side: relay.SideA, Module: l.moduleOf(cfg), Hold: cfg.Hold}
	if cfg.Direction == config.Down {
		r.Side = relay.SideB
	}
	return r
}

// rewriteStatus describes a listener's rewritten sessions for a status, nil if there never were any. If every is set,
// it includes reasons that did not occur.
func (l *listener) rewriteStatus(every bool) *admin.Rewrites {
	n := l.state.Rewrites
	calls, took := n.Calls()
	every = every && len(l.modules) > 0
	r := &admin.Rewrites{
		Sessions: l.state.Rewritten.Load(), Bytes: n.In.Load(), BytesOut: n.Out.Load(),
		Calls: calls, TimeUs: took.Microseconds(), Logged: n.Logged.Load(), Unlogged: n.Unlogged.Load(),
		Reset: n.Failures.ByReason(every), Passed: n.Passed.ByReason(every),
	}
	if r.Sessions == 0 && !l.cfg.Rewrites() {
		return nil
	}
	for _, m := range l.modules {
		r.Modules = append(r.Modules, admin.RewriteModule{
			File: string(m.cfg.Wasm.Path), Direction: m.cfg.Direction, Engine: m.of.Engine(), Instances: int64(m.of.Streams()),
		})
	}
	return r
}

type runningModule struct {
	cfg *config.Rewrite
	of  *filter.Rewriter
}

func (lm *listenerManager) prepareModules(ctx context.Context, c *change, l, old *listener) error {
	for _, cfg := range l.cfg.Modules() {
		if old != nil {
			if of := old.moduleOf(cfg); of != nil {
				l.modules = append(l.modules, runningModule{cfg, of})
				continue
			}
		}
		of, err := filter.NewRewriter(ctx, cfg.Wasm.Bytes, lm.moduleConfig(c, l, cfg))
		if err != nil {
			return fmt.Errorf("rewrite: module %s: %w", cfg.Title(), err)
		}
		l.modules = append(l.modules, runningModule{cfg, of})
		c.undo = append(c.undo, of.Close)
	}
	return nil
}

// moduleConfig configures a module. It runs on half as many goroutines as there are loops, so that
// a module that computes all the time leaves the other half of Go's processors to the loops.
func (lm *listenerManager) moduleConfig(c *change, l *listener, cfg *config.Rewrite) filter.RewriterConfig {
	return filter.RewriterConfig{
		Config: filter.Config{
			Name: cfg.Title(), Config: cfg.Config, Bounds: wasm.Bounds{Memory: cfg.Memory}, Soon: true, Timeout: cfg.Timeout, Instances: cfg.Instances,
			Counts: l.state.Rewrites, Log: lm.moduleLog(l, "rewrite", "module", cfg.Title()),
		},
		FromServer: cfg.Direction == config.Down, Pass: cfg.OnError == "pass", Buffer: int(cfg.Buffer), Spare: cfg.Spare, Workers: max(1, lm.options.loops(c.cfg)/2),
	}
}

func (l *listener) moduleOf(cfg *config.Rewrite) *filter.Rewriter {
	for _, m := range l.modules {
		if m.cfg.SameModule(cfg) {
			return m.of
		}
	}
	return nil
}

// retireModules closes unused instances of the modules that the next listener lacks. next may be nil.
func (l *listener) retireModules(next *listener) {
	for _, m := range l.modules {
		if next == nil || next.moduleOf(m.cfg) != m.of {
			m.of.Retire()
		}
	}
}
