package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tally"
)

const lookEvery = time.Second

// A watcher logs why clients are not served. Everything is guarded by the server's mu.
type watcher struct {
	*core
	*drains
	*sockets
	*sessionLog
	host     *host
	read     func() *reader // returns a reader of the present state
	outages  *monitor.Outages
	sums     *monitor.Sums
	seen     []monitor.Upstream // used again at each look
	counters []monitor.Counter  // used again at each look
}

func (s *Server) monitor(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		s.cpu.Look(s.now())
		s.denials.expire()
		s.circles.look()
		s.watcher.observe(s.now(), false)
		s.files.Ended(time.Now(), func(paths []string, at time.Time) {
			s.log.Warn("a certificate has expired, and peers do not accept it: write a valid certificate to the file (no reload is needed)", "files", paths, "until", at)
		})
		s.lanes.Look()
		if !s.cpu.Watch(tick.C, ctx.Done()) {
			s.watcher.observe(s.now(), true)
			return
		}
	}
}

// observe looks once. last says that no look follows: everything counted so far is logged.
func (w *watcher) observe(now int64, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines.Look(now)
	if !w.closing { // while closing, no client is sent anywhere, and everything drains
		w.logDrains(now)
		w.outages.Look(now, w.conditions(), w.whyUnusable)
	}
	w.logStuck()
	w.sums.Look(now, w.watched(), w)
	if last {
		w.sums.Flush(now, w)
	}
}

func (w *watcher) conditions() []monitor.Upstream {
	list := w.seen[:0]
	for _, u := range w.upstreams {
		list = append(list, u.seen())
	}
	clear(list[len(list):cap(list)]) // so that it keeps no removed upstreams
	w.seen = list
	return list
}

// seen returns the present state of the upstream.
func (u *upstream) seen() monitor.Upstream {
	counts := u.router.Counts()
	return monitor.Upstream{
		Key: u.router, Name: u.cfg.Name, Refused: u.router.Refusals.Total(), Held: counts.Held, Fallbacks: counts.Fallbacks,
		Unserved:  u.router.FailedSessions.Total(),
		Condition: u.condition(), // read after the counts, so that the cost of an outage includes its first client
	}
}

// condition says whether the upstream can take clients: an endpoint is usable, and clients are
// not refused because all connections fail.
func (u *upstream) condition() monitor.Condition {
	set := u.snapshot.Set()
	if set == nil {
		return monitor.Unusable
	}
	switch st := set.Status(); {
	case st.UsablePrimaries+st.UsableBackups == 0, u.router.Unserved():
		return monitor.Unusable
	case !st.Room, !u.router.Unserved() && onlyFailingHaveRoom(set):
		return monitor.Full
	}
	return monitor.Usable
}

// onlyFailingHaveRoom reports whether only failing endpoints may have room: another endpoint is usable but full, and
// no other endpoint has room.
func onlyFailingHaveRoom(set *lb.Set) bool {
	full := false
	for _, m := range set.Members() {
		switch e, st := m.Endpoint, m.Endpoint.State(); {
		case e.Failing():
		case e.CanAcquire():
			return false
		case !st.Down && !st.Ejected && !st.Broken && !st.Draining && e.Limit() > 0 && st.Active >= e.Limit():
			full = true
		}
	}
	return full
}

// whyUnusable says why the endpoints of an upstream get no clients. key is a condition's key.
func (w *watcher) whyUnusable(key any) string {
	u, r, hand := w.upstreams[key.(*router.Upstream).Name()], w.read(), new(admin.Upstream)
	if u != nil && (u.source == nil || len(u.found) > 0) {
		r.removedByHand(u, hand)
	}
	if u == nil || len(u.order)+len(hand.Endpoints) == 0 {
		if u != nil && u.source != nil {
			st := u.source.Status()
			if why := cmp.Or(st.Denied, strings.TrimPrefix(textOf(st.Err), "discovery: "+st.Kind+": ")); why != "" {
				return st.Kind + " " + st.From + ": " + why
			}
			if st.Confirmed.IsZero() {
				return st.Kind + " " + st.From + " has not answered yet"
			}
		}
		return "there are none"
	}
	text := firstOf(u.order, func(m *member) string {
		e := r.endpoint(m, u.cfg)
		return e.Name + ": " + cmp.Or(e.Reason(), "usable again")
	}, "; ", "; ")
	for _, e := range hand.Endpoints[:min(len(hand.Endpoints), maxNamed)] {
		text += "; " + e.Name + ": " + e.Reason()
	}
	return strings.TrimPrefix(text, "; ")
}

// Counters that are logged when they rise.
const (
	refusedLine   = "clients refused"
	heldLine      = "clients were held, because no endpoint could serve them"
	resortLine    = "clients were sent to endpoints as a last resort"
	answeredLine  = "clients sent to endpoints as a last resort were served" // an attribute of resortLine
	missedLine    = "attempts to connect to endpoints have failed"
	failedLine    = "sessions ended without a byte from the endpoint"
	localLine     = "connections to endpoints failed because this machine lacks a resource"
	withheldLine  = "endpoints were not ejected because of max_ejected"
	unwrittenLine = "lines of the session log were dropped" // logged by the session log itself
	pausedLine    = "accepting is paused"                   // logged by the host itself
	droppedLine   = "the accept queue overflowed, and clients had to try again"
)

// watched returns the counters that are logged when they rise, or shown by how much they rose. It includes all counters of
// a removed listener or upstream for as long as it may come back: a counter that comes back has risen from 0.
func (w *watcher) watched() []monitor.Counter {
	list := w.counters[:0]
	for name, l := range w.listeners {
		list = l.appendCounters(list, name)
	}
	if !w.closing { // afterwards the descriptors may be closed
		w.countOverflows()
	}
	for _, socket := range w.binds {
		list = append(list, monitor.Counter{Key: socket, Message: droppedLine, Kind: "listener", Name: socket.owner, Total: socket.overflows.total})
	}
	for name, l := range w.removed.listeners {
		list = l.appendCounters(list, name)
	}
	for name, u := range w.upstreams {
		list = appendCounters(appendRefusals(list, name, u.router.Refusals), name, u.router)
	}
	list = append(w.removedCounters(list), monitor.Counter{Key: w.host, Message: pausedLine, Total: w.host.paused.Load(), Unlogged: true})
	w.outliers(func(u *upstream) {
		list = append(list, monitor.Counter{Key: u.outlier, Message: withheldLine, Kind: "upstream", Name: u.cfg.Name, Total: u.outlier.Withheld.Load()})
		list = u.withheld(list)
	})
	if log := w.sessions.Load(); log != nil {
		c := log.Counts()
		list = append(list, monitor.Counter{Key: log, Message: unwrittenLine, Total: c.Full + c.Dropped, Unlogged: true})
	}
	clear(list[len(list):cap(list)]) // so that it keeps no removed parts
	w.counters = list
	return list
}

func (l *listenerCounts) appendCounters(list []monitor.Counter, name string) []monitor.Counter {
	at := arrivalsAt(l.state)
	list = append(list, refusals("listener", name, l.state.Refusals),
		monitor.Counter{Key: l.state, Message: acceptedLine, Total: at.accepted, Unlogged: true},
		monitor.Counter{Key: l.state, Message: deniedLine, Total: at.denied, Unlogged: true},
	)
	for filter, of := range l.ledgers {
		list = append(list, monitor.Counter{Key: of.Failures, Message: unansweredLine, Kind: "listener", Name: name, Filter: filter, Total: of.Failures.Total()})
	}
	return list
}

// refusals returns the counter of the refusals of a listener or an upstream.
func refusals(kind, name string, r *tally.Reasons) monitor.Counter {
	return monitor.Counter{Key: r, Message: refusedLine, Kind: kind, Name: name, Total: r.Total()}
}

// A refusedFor is the key of an upstream's refusals for one reason.
type refusedFor struct {
	by     *tally.Reasons
	reason string
}

// appendRefusals appends the counters of an upstream's refusals: of all, and by reason.
func appendRefusals(list []monitor.Counter, name string, r *tally.Reasons) []monitor.Counter {
	list = append(list, refusals("upstream", name, r))
	if r.Total() > 0 {
		for reason, n := range r.ByReason(false) {
			list = append(list, monitor.Counter{Key: refusedFor{r, reason}, Message: refusedLine, Total: n, Unlogged: true})
		}
	}
	return list
}

func appendCounters(list []monitor.Counter, name string, up *router.Upstream) []monitor.Counter {
	counts := up.Counts()
	return append(list,
		monitor.Counter{Key: up, Message: heldLine, Kind: "upstream", Name: name, Total: counts.Held},
		monitor.Counter{Key: up, Message: resortLine, Kind: "upstream", Name: name, Total: counts.LastResort},
		monitor.Counter{Key: up, Message: answeredLine, Kind: "upstream", Name: name, Total: counts.LastResortAnswered, Unlogged: true},
		monitor.Counter{Key: up.Unreached, Message: missedLine, Kind: "upstream", Name: name, Total: up.Unreached.Total()},
		monitor.Counter{Key: up.FailedSessions, Message: failedLine, Kind: "upstream", Name: name, Total: up.FailedSessions.Total()},
		monitor.Counter{Key: up.LocalFaults, Message: localLine, Kind: "upstream", Name: name, Total: up.LocalFaults.Total()},
	)
}

func (u *upstream) withheld(list []monitor.Counter) []monitor.Counter {
	if u.outlier.Withheld.Load() == 0 {
		return list
	}
	for _, m := range u.order {
		if m.monitor == nil {
			continue
		}
		if n, _ := m.monitor.Withholdings(); n > 0 {
			list = append(list, monitor.Counter{Key: m.monitor, Message: withheldLine, Total: n, Unlogged: true})
		}
	}
	return list
}

// Reasons implements [monitor.Explanation].
func (w *watcher) Reasons(c *monitor.Counter) map[string]int64 {
	switch of := c.Key.(type) {
	case *health.OutlierDetector:
		times := make(map[string]int64)
		for _, m := range w.judgedBy(of) {
			if n, _ := m.monitor.Withholdings(); n > 0 {
				times[m.spec.Identity()] = n
			}
		}
		return times
	case *tally.Reasons:
		return of.ByReason(false)
	case *router.Upstream:
		if c.Message == resortLine {
			return map[string]int64{answered: of.Counts().LastResortAnswered}
		}
	}
	return nil
}

// answered is the reason under which resortLine counts clients that a last resort has served.
const answered = "answered"

// Attrs implements [monitor.Explanation].
func (w *watcher) Attrs(c *monitor.Counter, increase map[string]int64) []any {
	switch c.Message {
	case resortLine:
		return []any{"answered", increase[answered]}
	case withheldLine:
		return []any{"cause", w.whyWithheld(c.Key.(*health.OutlierDetector), increase)}
	}
	return nil
}

func (w *watcher) judgedBy(o *health.OutlierDetector) (list []*member) {
	w.outliers(func(u *upstream) {
		if u.outlier == o {
			list = slices.DeleteFunc(slices.Clone(u.order), func(m *member) bool { return m.monitor == nil })
		}
	})
	return list
}

// whyWithheld names the endpoints that were not ejected, with counts and reasons, the most
// frequent first.
func (w *watcher) whyWithheld(o *health.OutlierDetector, times map[string]int64) string {
	list := slices.DeleteFunc(w.judgedBy(o), func(m *member) bool { return times[m.spec.Identity()] <= 0 })
	slices.SortStableFunc(list, func(a, b *member) int { return cmp.Compare(times[b.spec.Identity()], times[a.spec.Identity()]) })
	return firstOf(list, func(m *member) string {
		_, why := m.monitor.Withholdings()
		return fmt.Sprintf("%s: %d, the last: %s", m.spec.Identity(), times[m.spec.Identity()], why)
	}, "; ", "; ")
}

// manyFailed is the number of failed sessions, or failed connects, at which the line becomes a
// warning: some sessions fail because of their clients, and a restarting endpoint refuses some
// clients, which get another endpoint.
const manyFailed = 5

// Level implements [monitor.Explanation]: clients refused by the listener's rules, or declined by endpoints, are no
// fault, and a client served by a last resort has lost nothing.
func (*watcher) Level(c *monitor.Counter, increase map[string]int64) slog.Level {
	if c.Message == resortLine {
		return slog.LevelInfo
	}
	if c.Message == failedLine || c.Message == missedLine {
		if sumOf(maps.Values(increase)) < manyFailed {
			return slog.LevelInfo
		}
	}
	if c.Message == refusedLine && !slices.ContainsFunc(slices.Collect(maps.Keys(increase)), router.Fault) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

const stalledAfter = time.Second

// watchStalls logs when an event loop hangs: then its clients get nothing, and requests to the admin interface that
// need all loops wait. alive returns when every loop has turned. watchStalls returns when ctx ends.
func watchStalls(ctx context.Context, log *slog.Logger, alive func(ctx context.Context) error) {
	tick := time.NewTicker(stalledAfter)
	defer tick.Stop()
	turned := make(chan error, 1)
	for {
		began, late := time.Now(), time.NewTimer(stalledAfter)
		go func() { turned <- alive(ctx) }()
		select {
		case err := <-turned:
			if late.Stop(); err != nil {
				return
			}
		case <-late.C:
			log.Warn("an event loop has stalled: its sessions move no bytes", "duration", stalledAfter)
			if <-turned != nil { // at the latest when ctx ends
				return
			}
			log.Info("the event loop runs again", "duration", time.Since(began).Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
