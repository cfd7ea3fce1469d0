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
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// A runningFilter is a filter of a listener. It lasts for as long as it is the same.
type runningFilter struct {
	cfg *config.Filter
	of  *filter.Filter
}

// prepareFilters makes the filters that a listener has not had before.
func (s *Server) prepareFilters(ctx context.Context, c *change, l, old *listener) error {
	l.filters = make(map[string]runningFilter)
	for _, cfg := range l.cfg.Filters() {
		name := cfg.Title()
		if old != nil {
			if f, ok := old.filters[name]; ok && f.cfg.Same(cfg) {
				l.filters[name] = f
				continue
			}
		}
		of, err := filter.New(ctx, cfg.Wasm.Bytes, s.filterConfig(c, l, cfg))
		if err != nil {
			return fmt.Errorf("filter %s: %w", name, err)
		}
		l.filters[name] = runningFilter{cfg, of}
		c.undo = append(c.undo, of.Close)
	}
	return nil
}

func (s *Server) filterConfig(c *change, l *listener, cfg *config.Filter) filter.Config {
	name := cfg.Title()
	onError := filter.Deny
	if cfg.OnError == "allow" {
		onError = filter.Allow
	}
	log := s.log.With("listener", l.cfg.Name, "filter", name)
	return filter.Config{
		Name: name, Config: cfg.Config, Bounds: wasm.Bounds{Memory: cfg.Memory}, Soon: true, Timeout: cfg.Timeout, OnError: onError,
		Preread: int(cfg.Preread), Instances: cmp.Or(cfg.Instances, s.loops(c.cfg)), Upstreams: cfg.Upstreams,
		Counts: l.ledger(name),
		Log: func(level int, line string) {
			log.Log(context.Background(), filterLevels[min(level, len(filterLevels)-1)], "filter: "+line)
		},
	}
}

// filterLevels are the levels of proxy_log.
var filterLevels = []slog.Level{slog.LevelDebug, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelError}

// ledger returns the counts of a filter, which last as long as the listener's.
func (l *listenerCounts) ledger(name string) *filter.Ledger {
	if l.ledgers[name] == nil {
		l.ledgers[name] = new(filter.Ledger)
	}
	return l.ledgers[name]
}

// filter makes a filter of a route of the next configuration; nil: there is none.
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

// retireFilters closes the instances of the filters that the next listener does not have, nil for no next one.
func (l *listener) retireFilters(next *listener) {
	for name, f := range l.filters {
		if next == nil || next.filters[name].of != f.of {
			f.of.Retire()
		}
	}
}

// filterStatus is the status of a listener's filters. every has reasons that did not occur as well.
// recent returns the failures of a filter in about the last minute; nil: they are not asked for.
func (l *listener) filterStatus(every bool, recent func(*filter.Ledger) int64) (list []admin.Filter) {
	for name, f := range l.filters {
		n := f.of.Counts()
		st := admin.Filter{
			Name: name, File: string(f.cfg.Wasm.Path), Engine: f.of.Engine(), Calls: n.Calls, TimeUs: n.Time.Microseconds(),
			Tagged: n.Tagged, Logged: n.Logged, Unlogged: n.Unlogged, Waiting: n.Waiting, Running: n.Running, Idle: n.Idle,
			Answers: make(map[string]int64), Times: n.Times[:],
		}
		if recent != nil {
			st.FailedLastMinute = recent(l.ledgers[name])
		}
		for v, k := range n.Verdicts {
			if k > 0 || every {
				st.Answers[filter.Verdict(v).String()] = k
			}
		}
		st.Failures = failuresOf(l.ledgers[name], every)
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b admin.Filter) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// failuresOf is the failures of a filter by reason. every has those that did not occur as well.
func failuresOf(of *filter.Ledger, every bool) map[string]int64 {
	list := make(map[string]int64)
	for v, n := range of.Failures() {
		if n > 0 || every {
			list[filter.Failure(v).String()] = n
		}
	}
	return list
}

// unansweredLine is the line on filters that do not answer.
const unansweredLine = "a filter has not answered about clients"

// unanswered appends the counters of a listener's filters that have not answered.
func (l *listener) unanswered(list []monitor.Counter) []monitor.Counter {
	for name, of := range l.ledgers {
		total := int64(0)
		for _, n := range of.Failures() {
			total += n
		}
		list = append(list, monitor.Counter{Key: of, Message: unansweredLine, Kind: "listener", Name: l.cfg.Name, Filter: name, Total: total})
	}
	return list
}
