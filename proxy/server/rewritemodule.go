package server

import (
	"context"
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A runningModule is a module that rewrites sessions of a listener. It lasts for as long as it is the same.
type runningModule struct {
	cfg *config.Rewrite
	of  *filter.Rewriter
}

// prepareModules makes the modules that a listener has not had before.
func (s *Server) prepareModules(ctx context.Context, c *change, l, old *listener) error {
	for _, cfg := range l.cfg.Modules() {
		if old != nil {
			if of := old.moduleOf(cfg); of != nil {
				l.modules = append(l.modules, runningModule{cfg, of})
				continue
			}
		}
		of, err := filter.NewRewriter(ctx, cfg.Wasm.Bytes, s.moduleConfig(c, l, cfg))
		if err != nil {
			return fmt.Errorf("rewrite: module %s: %w", cfg.Title(), err)
		}
		l.modules = append(l.modules, runningModule{cfg, of})
		c.undo = append(c.undo, of.Close)
	}
	return nil
}

// moduleConfig is that of a module. It runs on half as many goroutines as there are loops, so that one that computes all the time leaves
// the loops the others of Go's processors.
func (s *Server) moduleConfig(c *change, l *listener, cfg *config.Rewrite) filter.RewriterConfig {
	log := s.log.With("listener", l.cfg.Name, "module", cfg.Title())
	return filter.RewriterConfig{
		Name: cfg.Title(), Config: cfg.Config, Bounds: wasm.Bounds{Memory: cfg.Memory}, Soon: true, FromServer: cfg.Direction == config.Down,
		Timeout: cfg.Timeout, Pass: cfg.OnError == "pass", Buffer: int(cfg.Buffer), Streams: cfg.Instances, Workers: max(1, s.loops(c.cfg)/2),
		Counts: &l.state.Rewrites().Modules,
		Log: func(level int, line string) {
			log.Log(context.Background(), filterLevels[min(level, len(filterLevels)-1)], "rewrite: "+line)
		},
	}
}

// moduleOf returns the module of a rewrite; nil: the listener has none that is the same.
func (l *listener) moduleOf(cfg *config.Rewrite) *filter.Rewriter {
	for _, m := range l.modules {
		if m.cfg.SameModule(cfg) {
			return m.of
		}
	}
	return nil
}

// retireModules closes the instances that no session has, of the modules that the next listener does not have, nil for no next one.
func (l *listener) retireModules(next *listener) {
	for _, m := range l.modules {
		if next == nil || next.moduleOf(m.cfg) != m.of {
			m.of.Retire()
		}
	}
}

// moduleStatus adds the figures of modules to the status of rewritten sessions.
func (l *listener) moduleStatus(r *admin.Rewrites, t *filter.StreamTotals, every bool) {
	r.Calls, r.TimeUs, r.Logged, r.Unlogged = t.Calls, t.Time.Microseconds(), t.Logged, t.Unlogged
	r.Reset, r.Passed = make(map[string]int64), make(map[string]int64)
	every = every && len(l.modules) > 0
	for i := range t.Reset {
		why := filter.Failure(i)
		if why == filter.FailedEncrypted {
			continue // which masks have as well
		}
		if t.Reset[i] > 0 || every {
			r.Reset[why.String()] = t.Reset[i]
		}
		if t.Passed[i] > 0 || every && why.Passes() {
			r.Passed[why.String()] = t.Passed[i]
		}
	}
	for _, m := range l.modules {
		r.Modules = append(r.Modules, admin.RewriteModule{
			File: string(m.cfg.Wasm.Path), Direction: m.cfg.Direction, Engine: m.of.Engine(), Instances: int64(m.of.Streams()),
		})
	}
}
