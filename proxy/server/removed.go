package server

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A registry holds the parts of the configuration in force, and removed parts that still have clients. The server's mu
// guards it.
type registry struct {
	cfg       *config.Config
	listeners map[string]*listener
	upstreams map[string]*upstream
	binds     binds // listening sockets
	removed   removed
	circles   *circles // it has its own lock
}

// removed holds the parts that the configuration no longer names, each as long as it has clients,
// or may get clients that were on their way. A part that comes back within this time keeps its
// counts and sessions.
type removed struct {
	sockets   []*listenSocket            // still accepted from, being closed, or with sessions
	upstreams []*removedUpstream         // the latest last
	listeners map[string]*listenerCounts // with clients
	counts    tally.UpstreamCounts       // of all upstreams that were removed and have not come back
}

// A removedUpstream is an upstream that the configuration no longer names. It stays in memory while
// there are clients from an earlier generation, because it may still refuse them.
type removedUpstream struct {
	name    string
	router  weak.Pointer[router.Upstream]
	refused *tally.Reasons
	kept    *upstream // set as long as one of its members has sessions
}

// add adds a removed upstream, and keeps its members as long as one of them has sessions.
func (r *removed) add(u *upstream) {
	for _, other := range r.upstreams {
		if other.kept != nil && !other.kept.drains() {
			other.kept = nil
		}
	}
	gone := &removedUpstream{name: u.cfg.Name, router: weak.Make(u.router), refused: u.router.Refusals}
	if u.drains() {
		r.forget(u.cfg.Name)
		gone.kept = u
	}
	r.upstreams = append(r.upstreams, gone)
	counts := u.router.Counts()
	tally.Add(&r.counts, &counts, 1)
}

// keepLeaving adds a removed member to its upstream, because the member has got a session. The upstream is in force,
// or removed too.
func (r *registry) keepLeaving(u *upstream, m *member) {
	in := r.upstreams[u.cfg.Name]
	for _, gone := range r.removed.upstreams {
		if in == nil && gone.router.Value() == u.router {
			if gone.kept == nil {
				gone.kept = u
			}
			in = gone.kept
		}
	}
	if in != nil && in.router == u.router && !slices.Contains(in.leaving, m) {
		in.leaving = append(in.leaving, m)
	}
}

func (u *upstream) drains() bool {
	u.leaving = stillThere(u.leaving)
	return len(u.leaving) > 0
}

func (r *removed) upstream(name string) *upstream {
	for _, gone := range r.upstreams {
		if gone.name == name && gone.kept != nil {
			return gone.kept
		}
	}
	return nil
}

// sessions returns the number of sessions of each removed upstream that has some, and when the last of them is reset, unless
// they go on.
func (r *removed) sessions() (n map[string]int64, until map[string]time.Time) {
	n, until = make(map[string]int64), make(map[string]time.Time)
	for _, gone := range r.upstreams {
		if gone.kept == nil {
			continue
		}
		for _, m := range gone.kept.leaving {
			if active := m.endpoint.Active(); active > 0 {
				n[gone.name] += int64(active)
				if ends := m.leave.ends(); ends.After(until[gone.name]) {
					until[gone.name] = ends
				}
			}
		}
	}
	return n, until
}

// closed returns the sessions of closed sockets that drain, by listener.
func (r *removed) closed() map[string]admin.Closed {
	found := make(map[string]admin.Closed)
	for _, p := range r.drainingSockets("") {
		if n, of := clientsOf(p.of), found[p.owner]; n > 0 {
			of.Sessions += n
			if ends := p.cut.ends(); ends.After(of.Until) {
				of.Until = ends
			}
			found[p.owner] = of
		}
	}
	return found
}

func (r *removed) forget(name string) {
	for _, gone := range r.upstreams {
		if gone.name == name {
			gone.kept = nil
		}
	}
}

func (r *removed) restore(u *upstream) {
	was := r.upstream(u.cfg.Name)
	if was == nil || was.router != u.router {
		return
	}
	r.forget(u.cfg.Name)
	u.leaving = was.leaving
	counts := u.router.Counts()
	tally.Add(&r.counts, &counts, -1)
}

func (r *removed) pass(u *upstream) {
	if was := r.upstream(u.cfg.Name); was != nil && was.drains() {
		u.router, u.stats, u.budget = was.router, was.stats, was.budget
		u.breaker, u.outlier = was.breaker, was.outlier
	}
}

// draining returns the removed members of an upstream that still have sessions. The upstream may be removed itself.
func (r *registry) draining(name string) []*member {
	if u := r.upstreams[name]; u != nil {
		return u.leaving
	}
	if u := r.removed.upstream(name); u != nil {
		return u.leaving
	}
	return nil
}

func (r *registry) isBack(gone *removedUpstream) bool {
	u := r.upstreams[gone.name]
	return u != nil && u.router == gone.router.Value()
}

// waitingForRemoved counts the clients that came before an upstream was removed and still wait for it.
func (r *registry) waitingForRemoved() map[string]int64 {
	var clients map[string]int64
	for _, gone := range r.removed.upstreams {
		up := gone.router.Value()
		if up == nil || up.Waiting() == 0 || r.isBack(gone) {
			continue
		}
		if clients == nil {
			clients = make(map[string]int64)
		}
		clients[gone.name] += int64(up.Waiting())
	}
	return clients
}

// removedCounters appends the counters of removed upstreams. It forgets upstreams that are in force again. Upstreams
// that are no longer in memory it forgets once it has appended their last refusals.
func (r *registry) removedCounters(list []monitor.Counter) []monitor.Counter {
	r.removed.upstreams = slices.DeleteFunc(r.removed.upstreams, func(gone *removedUpstream) bool {
		if r.isBack(gone) {
			return true
		}
		up, n := gone.router.Value(), len(list)
		if list = appendRefusals(list, gone.name, gone.refused); up != nil {
			list = appendCounters(list, gone.name, up)
		}
		list = append(list[:n], slices.DeleteFunc(list[n:], func(c monitor.Counter) bool { return c.Total == 0 })...)
		return up == nil
	})
	return list
}

// outliers calls see with each upstream that judges its endpoints, including removed upstreams with
// sessions.
func (r *registry) outliers(see func(u *upstream)) {
	for _, u := range r.upstreams {
		if u.outlier != nil {
			see(u)
		}
	}
	for _, gone := range r.removed.upstreams {
		if u := gone.kept; u != nil && u.outlier != nil {
			see(u)
		}
	}
}

// replaced returns the replaced sockets that are still accepted from, the oldest first.
func (r *removed) replaced() (list []*listenSocket) {
	for _, socket := range r.sockets {
		if socket.replaced {
			list = append(list, socket)
		}
	}
	return list
}

// sweep forgets the sockets that are closed and have no sessions.
func (r *removed) sweep() {
	r.sockets = slices.DeleteFunc(r.sockets, func(o *listenSocket) bool { return o.deserted.Load() && (o.gone() || !o.parting && !o.replaced) })
}

// drainingSockets returns the draining sockets of a key, or of all keys if key is empty.
func (r *removed) drainingSockets(key string) (list []*drainingSockets) {
	for _, socket := range r.sockets {
		if p := socket.draining; p != nil && !p.forgotten && (key == "" || p.key == key) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// A socket that is given up is kept as long as it has sessions, and its sessions as long as their
// upstreams allow. Its state is freed with its last session, or at once if it has none, so a
// process that is reloaded often does not grow.

// A drainingSockets holds closed sockets with sessions that still have time to drain.
type drainingSockets struct {
	key, owner string
	cause      error  // why the sessions end
	bind       string // address of the latest socket
	of         []*worker.Listening
	left       int // number of sockets that have sessions, or may get some
	cut        *cutJob
	forgotten  bool        // the sessions belong to another socket, or none is left; under the server's mu
	over       atomic.Bool // all sessions are cut
	n          int         // sessions cut since the last log line; under cut's turn
}

// endSessions cuts the sessions of a socket that is gone, and of the sockets that it took over from, when the drain
// time of their upstreams is over. If closed is set, no socket takes their place: clients that have no session by
// then are refused.
func (s *sockets) endSessions(key string, socket *listenSocket, closed bool, cause error) {
	p := &drainingSockets{key: key, owner: socket.owner, cause: cause, bind: socket.listener.Addr(), of: socket.sockets()}
	if p.left = len(p.of); p.left == 0 {
		return
	}
	of := p.of
	cut := func(chosen func() bool, last bool) {
		p.over.Store(last)
		if last && closed {
			refuseLate(of, cause)
			s.mu.Lock()
			if p.forgotten { // another socket has taken their place meanwhile
				refuseLate(of, nil)
			}
			s.mu.Unlock()
		}
		p.n += s.group.CutMatching(func(l *worker.Listening, _ worker.Binding) bool { return slices.Contains(of, l) && chosen() }, cause)
		if last {
			s.logDrainingSockets(p)
		}
	}
	p.cut = s.cutAfter(max(s.drainTime(socket.cfg), 0), cut, p.waits)
	for _, l := range p.of {
		l.Of.(*listenSocket).draining = p
	}
}

func (p *drainingSockets) waits() *monitor.Line {
	sessions := clientsOf(p.of)
	if sessions == 0 {
		return nil
	}
	return &monitor.Line{Listener: p.owner, Name: p.bind, Count: sessions, Attrs: []any{"listener", p.owner, "address", p.bind}}
}

func (s *sockets) logDrainingSockets(p *drainingSockets) {
	if p.n > 0 {
		s.log.Info("sessions were reset", "listener", p.owner, "sessions", p.n, "cause", p.cause)
		p.n = 0
	}
}

// sockets returns this socket and the sockets that it has taken over, except sockets that have
// no sessions and cannot get any. Afterwards the socket has taken over none.
func (socket *listenSocket) sockets() []*worker.Listening {
	of := append(socket.before, socket.listening)
	socket.before = nil
	return slices.DeleteFunc(of, func(l *worker.Listening) bool { return l.Of.(*listenSocket).deserted.Load() })
}

func (socket *listenSocket) takeOver(listenings []*worker.Listening) {
	for _, l := range listenings {
		if from := l.Of.(*listenSocket); !from.deserted.Load() {
			from.draining, from.successor = nil, socket
			socket.before = append(socket.before, l)
		}
	}
}

// rejoin gives a socket that listens at an address the sessions of earlier sockets of the same
// listener at this address; these sessions are no longer cut.
func (s *sockets) rejoin(key string, socket *listenSocket) {
	for _, p := range s.removed.drainingSockets(key) {
		if p.owner == socket.owner {
			s.forgetParted(p)
			if !p.over.Load() {
				socket.takeOver(p.of)
				continue
			}
			refuseLate(p.of, nil)
		}
	}
}

func refuseLate(of []*worker.Listening, cause error) {
	for _, l := range of {
		l.RefuseLate(cause)
	}
}

// forgetParted forgets draining sockets, so that their sessions are not cut.
func (s *sockets) forgetParted(p *drainingSockets) {
	s.callOff(p.cut)
	p.forgotten = true
}

func (s *sockets) forgetDeserted(list []*listenSocket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	replaced := false
	for _, socket := range list {
		if p := socket.draining; p != nil {
			if p.left--; p.left == 0 {
				s.forgetParted(p)
				s.goTracked(func() {
					p.cut.turn.Lock()
					defer p.cut.turn.Unlock()
					s.logDrainingSockets(p)
				})
			}
		}
		if h := socket.successor; h != nil {
			replaced = true
			h.before = slices.DeleteFunc(h.before, func(l *worker.Listening) bool { return l == socket.listening })
		}
		socket.draining, socket.successor = nil, nil
	}
	s.removed.sweep()
	if replaced {
		s.refreshView()
	}
}

// drainTime returns how long the sessions of a listener may go on without it.
func (s *sockets) drainTime(cfg *config.Listener) time.Duration {
	return cfg.DrainTime(func(name string) *config.Upstream {
		if u := s.upstreams[name]; u != nil {
			return u.cfg
		}
		return nil
	})
}

// A Draining counts sessions that drain because their listener no longer listens at their address.
type Draining struct {
	Sessions int64
	Within   time.Duration // until the last of them is reset
}

// DrainingUnder returns, by listener, the sessions that drain because their listener has left their
// address or was drained, and that would go on draining under a configuration. A listener that
// would listen there again gets its sessions back.
func (s *Server) DrainingUnder(cfg *config.Config) map[string]Draining {
	s.mu.Lock()
	defer s.mu.Unlock()
	back, found := rejoined(cfg, s.liveChanges.livesUnder(cfg).set), make(map[string]Draining)
	for _, p := range s.removed.drainingSockets("") {
		if back(p.owner, p.key) {
			continue
		}
		of := found[p.owner]
		of.Sessions += clientsOf(p.of)
		of.Within = max(of.Within, time.Until(p.cut.ends()))
		found[p.owner] = of
	}
	return found
}

// rejoined returns a function that reports whether a listener of a configuration listens at an address, by its key.
func rejoined(cfg *config.Config, by manual) func(listener, key string) bool {
	type place struct{ listener, key string }
	at := make(map[place]bool)
	for _, l := range cfg.Listeners {
		if by.drained(l.Name) {
			continue
		}
		for _, b := range l.Bind {
			if b.Systemd != "" {
				at[place{l.Name, passedKey(b.Systemd, "")}] = true
			} else {
				at[place{l.Name, l.BindKey(b)}] = true
			}
		}
	}
	return func(listener, key string) bool {
		if i := strings.LastIndexByte(key, ':'); i >= 0 && at[place{listener, key[:i+1]}] {
			return true
		}
		return at[place{listener, key}]
	}
}
