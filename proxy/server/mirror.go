package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A comparison compares the answers of one mirror of a listener with the answers that the clients get.
type comparison struct {
	*worker.Comparison
	cfg   *config.Mirror
	route string // match of the route that has the mirror; empty: the listener has it
}

// mirror makes the mirror of a route of the next configuration, or of the default route if r is nil. It returns nil if the
// route has no mirror.
func (lm *listenerManager) mirror(c *change, l *listener, r *config.Route) (*router.Mirror, error) {
	cfg := l.cfg.MirrorOf(r)
	if cfg == nil || cfg.Percent == 0 {
		return nil, nil
	}
	share, err := lb.NewWeightedSplit(cfg.Percent, 100-cfg.Percent)
	if err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	m := &router.Mirror{Snapshot: c.snapshot(cfg.Upstream), Share: share, Patience: cfg.Patience}
	if cfg.Comparing() == nil {
		return m, nil
	}
	route := ""
	if r != nil && r.Mirror != nil {
		route = r.Match.Text()
	}
	m.Compare, err = lm.comparison(l, c.listeners[l.cfg.Name].old, cfg, route)
	return m, err
}

// comparison returns how the answers of a mirror are compared. If the same comparison is in force,
// its report goes on.
func (lm *listenerManager) comparison(l, old *listener, cfg *config.Mirror, route string) (*worker.Comparison, error) {
	for _, k := range l.comparisons {
		if k.cfg == cfg {
			return k.Comparison, nil
		}
	}
	k := &comparison{cfg: cfg, route: route}
	if old != nil {
		for _, before := range old.comparisons {
			if before.route == route && before.cfg.SameComparison(cfg) {
				k.Comparison = before.Comparison
			}
		}
	}
	if k.Comparison == nil {
		plan, err := cfg.Compare.Plan()
		if err != nil {
			return nil, fmt.Errorf("mirror: compare: %w", err)
		}
		k.Comparison = worker.NewComparison(plan, cfg.Compare.Framing != compare.Bytes, lm.compares)
	}
	l.comparisons = append(l.comparisons, k)
	return k.Comparison, nil
}

// mirrorStatus describes a listener's mirrors for a status, nil if there never were any. The totals count since the
// listener began, or since its report was reset.
func (l *listener) mirrorStatus(t worker.MirrorTotals) *admin.Mirrors {
	to := l.cfg.Mirrors()
	if len(to) == 0 {
		if sumOf(maps.Values(t.Ended)) == 0 && t.Running == 0 {
			return nil
		}
	}
	m := &admin.Mirrors{To: to, MirrorCounts: t.MirrorCounts, Ended: t.Ended}
	for _, k := range l.comparisons {
		s := k.Report().Snapshot()
		m.Comparisons = append(m.Comparisons, k.status(&s))
	}
	return m
}

// Mirrors implements [admin.Balancer].
func (s *Server) Mirrors(listener string) (admin.MirrorReports, error) {
	return s.mirrorReports(listener, false, "")
}

// ResetMirrors implements [admin.Balancer].
func (s *Server) ResetMirrors(listener, by string) (admin.MirrorReports, error) {
	return s.mirrorReports(listener, true, by)
}

func (s *Server) mirrorReports(listener string, reset bool, by string) (admin.MirrorReports, error) {
	lm := s.listenerManager
	lm.mu.Lock()
	defer lm.mu.Unlock()
	names, err := lm.comparing(listener)
	if err != nil {
		return admin.MirrorReports{}, err
	}
	var reports admin.MirrorReports
	for _, name := range names {
		l := lm.listeners[name]
		t := l.state.Mirrors.SinceReset(reset)
		m := l.mirrorStatus(t)
		if m == nil {
			continue
		}
		for i, k := range l.comparisons {
			m.Comparisons[i] = k.reported(reset)
		}
		reports.Mirrors = append(reports.Mirrors, admin.MirrorReport{Listener: name, Since: t.Since, Mirrors: *m})
		if reset && len(m.To) > 0 {
			lm.log.Info("the report on mirrors was reset", "listener", name, "upstreams", m.To, "by", by)
		}
	}
	return reports, nil
}

func (lm *listenerManager) comparing(listener string) ([]string, error) {
	if listener == "" {
		return slices.Sorted(maps.Keys(lm.listeners)), nil
	}
	if lm.listeners[listener] == nil {
		return nil, missing("listener", listener, lm.listeners)
	}
	return []string{listener}, nil
}

func (k *comparison) status(s *compare.Snapshot) admin.Comparison {
	c := admin.Comparison{
		Route: k.route, To: k.cfg.Upstream, Framing: k.cfg.Compare.Framing, Since: s.Began,
		Sessions: int64(s.Sessions), Stopped: make(map[string]int64), ComparedAnswers: answers(&s.Figures),
	}
	for reason, n := range s.Stopped {
		if n > 0 {
			c.Stopped[reason] = int64(n)
		}
	}
	if s.Refused > 0 {
		c.Stopped[admin.StoppedBudget] = int64(s.Refused)
	}
	return c
}

// reported returns the comparison's status, with the fields that only a report has.
func (k *comparison) reported(reset bool) admin.Comparison {
	r := k.Report()
	if reset {
		r = k.Reset()
	}
	s := r.Snapshot()
	c := k.status(&s)
	c.Unnamed, c.Summed, c.MaskLimited, c.ShadowUnframed = int64(s.Unnamed), int64(s.Summed), int64(s.MaskLimited), int64(s.ShadowUnframed)
	for i := range s.Names {
		c.Names = append(c.Names, admin.NamedAnswers{Name: s.Names[i].Name, ComparedAnswers: answers(&s.Names[i].Figures)})
	}
	for i := range s.Examples {
		e := &s.Examples[i]
		c.Examples = append(c.Examples, admin.Example{
			Name: e.Name, Offset: e.Offset, Exact: e.Exact, Redacted: k.cfg.Compare.Redact,
			Primary: excerpt(&e.Primary), Shadow: excerpt(&e.Shadow),
		})
	}
	return c
}

func answers(f *compare.Figures) admin.ComparedAnswers {
	return admin.ComparedAnswers{
		Compared: int64(f.Equal + f.Different), Equal: int64(f.Equal), Different: int64(f.Different), Masked: int64(f.Masked), Unsettled: int64(f.Unsettled),
		Lag: admin.ShadowLag{
			Slower: int64(f.Lag.Slower), Faster: int64(f.Lag.Faster), Alike: int64(f.Lag.Alike),
			P50Us: f.Lag.P50.Microseconds(), P90Us: f.Lag.P90.Microseconds(), P99Us: f.Lag.P99.Microseconds(),
		},
	}
}

func excerpt(e *compare.Excerpt) admin.Excerpt {
	text := strconv.QuoteToASCII(string(e.Bytes))
	return admin.Excerpt{Text: text[1 : len(text)-1], Begin: e.Begin, Length: e.Length}
}
