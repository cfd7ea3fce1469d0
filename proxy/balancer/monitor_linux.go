package balancer

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/proxy/monitor"
)

// lookEvery is how often it is looked whether clients get what they came for.
const lookEvery = time.Second

// A watcher logs what keeps clients from being served. Everything is guarded by the
// server's mu.
type watcher struct {
	outages   *monitor.Outages
	sums      *monitor.Sums
	upstreams []monitor.Upstream // used again at each look
	counters  []monitor.Counter  // likewise
}

func newWatcher(log *slog.Logger) watcher {
	return watcher{outages: monitor.NewOutages(log), sums: monitor.NewSums(log)}
}

// monitor looks until stop, and then logs what is left to be told.
func (s *Server) monitor(stop <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		s.observe(s.now(), false)
		select {
		case <-stop:
			s.observe(s.now(), true)
			return
		case <-tick.C:
		}
	}
}

// observe looks once; last says that everything that was counted is to be logged now.
func (s *Server) observe(now int64, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines.Look(now)
	w := &s.watcher
	if !s.closing { // from then on nobody is sent anywhere, and all drains
		s.tellDrains(now)
		w.outages.Look(now, s.conditions(), s.whyUnusable)
	}
	w.sums.Look(now, s.watched(), (*explanation)(s))
	if last {
		w.sums.Tell(now, (*explanation)(s))
	}
}

// conditions says which upstreams can take clients.
func (s *Server) conditions() []monitor.Upstream {
	list := s.watcher.upstreams[:0]
	for name, u := range s.upstreams {
		list = append(list, monitor.Upstream{
			Key: u.up, Name: name, Condition: u.condition(), Refused: u.up.Refusals().Total(), Held: u.up.Held(), Fallbacks: u.up.Fallbacks(),
		})
	}
	clear(list[len(list):cap(list)]) // or it would keep what is gone
	s.watcher.upstreams = list
	return list
}

// condition says whether the upstream can take clients: an endpoint is usable, and clients are
// not refused because none can be connected to.
func (u *upstream) condition() monitor.Condition {
	set := u.view.Set()
	if set == nil {
		return monitor.Unusable
	}
	switch st := set.Status(); {
	case st.UsablePrimaries+st.UsableBackups == 0, u.up.Unserved():
		return monitor.Unusable
	case !st.Room:
		return monitor.Full
	}
	return monitor.Usable
}

// mostExplained is of how many endpoints of an upstream a line says why they get no clients.
const mostExplained = 10

// whyUnusable says why the endpoints of an upstream get no clients. Its key is that of
// conditions.
func (s *Server) whyUnusable(key any) string {
	u := s.upstreams[key.(*dispatch.Upstream).Name()]
	if u == nil || len(u.order) == 0 {
		return "there are none"
	}
	var parts []string
	for _, m := range u.order[:min(len(u.order), mostExplained)] {
		e := s.endpointStatus(m, new(dispatch.Running))
		why := e.Reason()
		if why == "" {
			why = "usable by now"
		}
		parts = append(parts, e.Name+": "+why)
	}
	if more := len(u.order) - mostExplained; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// The lines on counters that rise.
const (
	refusedLine  = "clients refused"
	heldLine     = "clients held, no endpoint could serve them"
	resortLine   = "connections made as a last resort"
	answeredLine = "answers to connections made as a last resort" // which is part of the line before
	missedLine   = "connections to endpoints could not be made"
	failedLine   = "sessions ended without a byte of their endpoint"
	localLine    = "connections to endpoints failed for want of something on this machine"
	withheldLine = "ejections held back by max_ejected"
	droppedLine  = "accept queue overflowed, clients had to try again"
)

// watched returns the counters whose rise is logged. Those of upstreams that are gone are
// among them for as long as these may come back, or refuse clients.
func (s *Server) watched() []monitor.Counter {
	list := s.watcher.counters[:0]
	for name, l := range s.listeners {
		list = append(list, doorRefusals(name, l.door))
	}
	for _, b := range s.binds {
		if !s.closing { // or its descriptor may be closed already
			list = append(list, monitor.Counter{Key: b, Message: droppedLine, Kind: "listener", Name: b.owner, Total: b.dropped()})
		}
	}
	for name, l := range s.unnamed {
		list = append(list, doorRefusals(name, l.door))
	}
	for name, u := range s.upstreams {
		list = appendCounters(append(list, refusalsOf(name, u.up.Refusals())), name, u.up)
	}
	list = s.formerCounters(list)
	for _, upstreams := range []map[string]*upstream{s.upstreams, s.departed} {
		for name, u := range upstreams {
			if u.outlier != nil {
				list = append(list, monitor.Counter{Key: u.outlier, Message: withheldLine, Kind: "upstream", Name: name, Total: u.outlier.Held()})
				list = u.withheld(list)
			}
		}
	}
	clear(list[len(list):cap(list)]) // or it would keep what is gone
	s.watcher.counters = list
	return list
}

// doorRefusals is the counter of a listener's refusals.
func doorRefusals(name string, d *dispatch.Door) monitor.Counter {
	return monitor.Counter{Key: d, Message: refusedLine, Kind: "listener", Name: name, Total: d.Refusals()}
}

// refusalsOf is the counter of an upstream's refusals. It does not keep the upstream in memory.
func refusalsOf(name string, r *dispatch.Refusals) monitor.Counter {
	return monitor.Counter{Key: r, Message: refusedLine, Kind: "upstream", Name: name, Total: r.Total()}
}

// appendCounters appends the other counters of an upstream.
func appendCounters(list []monitor.Counter, name string, up *dispatch.Upstream) []monitor.Counter {
	return append(list,
		monitor.Counter{Key: up, Message: heldLine, Kind: "upstream", Name: name, Total: up.Held()},
		monitor.Counter{Key: up, Message: resortLine, Kind: "upstream", Name: name, Total: up.LastResorts()},
		monitor.Counter{Key: up, Message: answeredLine, Kind: "upstream", Name: name, Total: up.LastResortsAnswered(), Unlogged: true},
		monitor.Counter{Key: up, Message: missedLine, Kind: "upstream", Name: name, Total: up.Unreached()},
		monitor.Counter{Key: up, Message: failedLine, Kind: "upstream", Name: name, Total: up.FailedSessionsTotal()},
		monitor.Counter{Key: up, Message: localLine, Kind: "upstream", Name: name, Total: up.LocalFaults()},
	)
}

// A former is an upstream that the configuration does not name any more. Clients that came under
// a generation that did may be refused by it still: as long as there are any it is in memory.
type former struct {
	name    string
	up      weak.Pointer[dispatch.Upstream]
	refused *dispatch.Refusals
}

// formerCounters appends the counters of former upstreams. It forgets those that are in force
// again, and those that are not in memory any more, when it has appended their last refusals.
func (s *Server) formerCounters(list []monitor.Counter) []monitor.Counter {
	s.former = slices.DeleteFunc(s.former, func(f former) bool {
		up := f.up.Value()
		if u := s.upstreams[f.name]; u != nil && u.up == up {
			return true
		}
		n := len(list)
		if list = append(list, refusalsOf(f.name, f.refused)); up != nil {
			list = appendCounters(list, f.name, up)
		}
		list = append(list[:n], slices.DeleteFunc(list[n:], func(c monitor.Counter) bool { return c.Total == 0 })...)
		return up == nil
	})
	return list
}

// withheld appends those endpoints' of an upstream that would have been ejected.
func (u *upstream) withheld(list []monitor.Counter) []monitor.Counter {
	if u.outlier.Held() == 0 {
		return list
	}
	for _, m := range u.order {
		if m.judge == nil {
			continue
		}
		if n, _ := m.judge.HeldBack(); n > 0 {
			list = append(list, monitor.Counter{Key: m.judge, Message: withheldLine, Total: n, Unlogged: true})
		}
	}
	return list
}

// An explanation is a Server that is asked for what is behind a counter.
type explanation Server

// Reasons implements [monitor.Explanation].
func (e *explanation) Reasons(c *monitor.Counter) map[string]int64 {
	switch of := c.Key.(type) {
	case *dispatch.Door:
		return of.Counts().Refused
	case *health.Outlier:
		times := make(map[string]int64)
		for _, m := range e.judgedBy(of) {
			if n, _ := m.judge.HeldBack(); n > 0 {
				times[m.spec.Identity()] = n
			}
		}
		return times
	case *dispatch.Refusals:
		return of.ByReason()
	case *dispatch.Upstream:
		switch c.Message {
		case resortLine:
			return map[string]int64{answered: of.LastResortsAnswered()}
		case localLine:
			return of.LocalCauses()
		case missedLine:
			return of.UnreachedReasons()
		case failedLine:
			return of.FailedSessions()
		}
	}
	return nil
}

// answered is of how many connections of a last resort the clients were served.
const answered = "answered"

// Attrs implements [monitor.Explanation].
func (e *explanation) Attrs(c *monitor.Counter, increase map[string]int64) []any {
	switch c.Message {
	case resortLine:
		return []any{answered, increase[answered]}
	case withheldLine:
		return []any{"endpoints", e.whyWithheld(c.Key.(*health.Outlier), increase)}
	}
	return nil
}

// judgedBy returns the endpoints that an Outlier judges.
func (e *explanation) judgedBy(o *health.Outlier) (list []*member) {
	for _, upstreams := range []map[string]*upstream{e.upstreams, e.departed} {
		for _, u := range upstreams {
			if u.outlier == o {
				return slices.DeleteFunc(slices.Clone(u.order), func(m *member) bool { return m.judge == nil })
			}
		}
	}
	return nil
}

// whyWithheld says which endpoints were not ejected, how often, and for what, those first for
// which that was most often.
func (e *explanation) whyWithheld(o *health.Outlier, times map[string]int64) string {
	list := slices.DeleteFunc(e.judgedBy(o), func(m *member) bool { return times[m.spec.Identity()] <= 0 })
	slices.SortStableFunc(list, func(a, b *member) int { return cmp.Compare(times[b.spec.Identity()], times[a.spec.Identity()]) })
	var parts []string
	for _, m := range list[:min(len(list), mostExplained)] {
		_, why := m.judge.HeldBack()
		parts = append(parts, fmt.Sprintf("%s: %d, the last: %s", m.spec.Identity(), times[m.spec.Identity()], why))
	}
	if more := len(list) - mostExplained; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// manyFailed is from how many failed sessions, or connections that could not be made, on that is a
// warning: some sessions fail by their clients' doing, and an endpoint that restarts refuses some
// clients, who get another one.
const manyFailed = 5

// Level implements [monitor.Explanation]: that clients are refused by the listener's rules is
// no fault, and whom a last resort serves has lost nothing.
func (*explanation) Level(c *monitor.Counter, increase map[string]int64) slog.Level {
	if c.Message == resortLine {
		return slog.LevelInfo
	}
	if c.Message == failedLine || c.Message == missedLine {
		sum := int64(0)
		for _, n := range increase {
			sum += n
		}
		if sum < manyFailed {
			return slog.LevelInfo
		}
	}
	if _, ok := c.Key.(*dispatch.Door); ok && !slices.ContainsFunc(slices.Collect(maps.Keys(increase)), dispatch.Fault) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// servedFor is for how long clients of an upstream without a usable endpoint are known to be
// served after one was.
const servedFor = time.Minute

// missed says of an upstream's status what clients and verdicts have missed lately.
func (s *Server) missed(u *upstream, st *admin.Upstream) {
	now, sums := s.now(), s.watcher.sums
	st.LastMinute = admin.LastMinute{
		Refused: sums.Recent(now, u.up.Refusals(), refusedLine), Held: sums.Recent(now, u.up, heldLine),
		LastResort: sums.Recent(now, u.up, resortLine), LastResortAnswered: sums.Recent(now, u.up, answeredLine), EjectionsWithheld: sums.Recent(now, u.outlier, withheldLine),
		LocalFaults: sums.Recent(now, u.up, localLine),
	}
	condition := u.condition()
	if condition == monitor.Usable {
		return
	}
	o, known := s.watcher.outages.Of(u.up)
	if !known || o.Condition < condition { // it was not looked at since
		o = monitor.Outage{Since: now}
	}
	st.Outage = &admin.UpstreamOutage{
		Since: s.wall(o.Since), Full: condition == monitor.Full, Served: u.up.ServedSince(now - int64(servedFor)), Refused: o.Refused, Held: o.Held, Fallbacks: o.Fallbacks,
	}
}
