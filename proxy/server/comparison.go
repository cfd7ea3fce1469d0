package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/compare"
)

// Mirrors implements [admin.Balancer].
func (s *Server) Mirrors(listener string) (admin.MirrorReports, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.comparing(listener)
	if err != nil {
		return admin.MirrorReports{}, err
	}
	var reports admin.MirrorReports
	for _, name := range names {
		l := s.listeners[name]
		t := l.state.Mirrors().SinceReset()
		m := l.mirrorStatus(t)
		if m == nil {
			continue
		}
		for i, k := range l.comparisons {
			k.report(&m.Comparisons[i])
		}
		reports.Mirrors = append(reports.Mirrors, admin.MirrorReport{Listener: name, Since: t.Since, Mirrors: *m})
	}
	return reports, nil
}

// ResetMirrors implements [admin.Balancer].
func (s *Server) ResetMirrors(listener, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.comparing(listener)
	if err != nil {
		return err
	}
	for _, name := range names {
		l := s.listeners[name]
		l.state.Mirrors().Reset()
		for _, k := range l.comparisons {
			k.Reset()
		}
		if to := l.cfg.Mirrors(); len(to) > 0 {
			s.log.Info("report of mirrors reset", "listener", name, "upstreams", to, "by", by)
		}
	}
	return nil
}

// comparing returns the names of listeners: all, or the one that is named.
func (s *Server) comparing(listener string) ([]string, error) {
	if listener == "" {
		return slices.Sorted(maps.Keys(s.listeners)), nil
	}
	if s.listeners[listener] == nil {
		return nil, fmt.Errorf("%w: there is no listener %s", admin.ErrNotFound, listener)
	}
	return []string{listener}, nil
}

// status returns the totals of a comparison.
func (k *comparison) status() admin.Comparison {
	s := k.Report().Snapshot()
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

// report adds the rest to the totals.
func (k *comparison) report(c *admin.Comparison) {
	s := k.Report().Snapshot()
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
