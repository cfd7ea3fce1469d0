package server

import (
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A comparison is the answers of one mirror of a listener, compared with those that the clients get.
type comparison struct {
	*worker.Comparison
	cfg   *config.Mirror
	route string // match of the route whose mirror it is; empty: it is the listener's
}

// mirror makes the mirror of a route of the next configuration, of the default route if that is nil; nil: there is
// none.
func (s *Server) mirror(c *change, l *listener, r *config.Route) (*router.Mirror, error) {
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
		route = matchText(&r.Match)
	}
	m.Compare, err = s.comparison(l, c.listeners[l.cfg.Name].old, cfg, route)
	return m, err
}

// comparison returns how the answers of a mirror are compared. Its report is that of the same comparison in force, if
// there is one.
func (s *Server) comparison(l, old *listener, cfg *config.Mirror, route string) (*worker.Comparison, error) {
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
		k.Comparison = worker.NewComparison(plan, cfg.Compare.Framing != compare.Bytes, s.compares)
	}
	l.comparisons = append(l.comparisons, k)
	return k.Comparison, nil
}

// mirrorStatus is the status of a listener's mirrors, nil if it has none and had none. The totals are those since the
// listener began, or since the reset of its report.
func (l *listener) mirrorStatus(t worker.MirrorTotals) *admin.Mirrors {
	to := l.cfg.Mirrors()
	if len(to) == 0 {
		var ended int64
		for _, n := range t.Ended {
			ended += n
		}
		if ended == 0 && t.Running == 0 {
			return nil
		}
	}
	m := &admin.Mirrors{
		To: to, Running: t.Running, Ended: t.Ended,
		Teed: t.Teed, Copied: t.Copied, Undelivered: t.Undelivered, Answered: t.Answered, Unanswered: t.Unanswered, Silent: t.Silent,
	}
	for _, k := range l.comparisons {
		m.Comparisons = append(m.Comparisons, k.status())
	}
	return m
}
