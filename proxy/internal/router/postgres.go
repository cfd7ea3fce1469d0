package router

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/fanout"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// endsTLS reports whether the TLS of a client ends in this process.
func (l *Listener) endsTLS(c *worker.Client) bool { return l.cfg.TLS != nil && !l.servesPlain(c) }

// servesPlain reports whether a client may speak without TLS although the listener has a certificate, like a PostgreSQL
// client that has not asked for TLS.
func (l *Listener) servesPlain(c *worker.Client) bool {
	p := l.cfg.Preread.Postgres
	return p != nil && !p.RequireTLS && !c.Postgres.TLS
}

// routesLater reports whether the client's route depends on its PostgreSQL startup message inside TLS that ends here.
func (s *Search) routesLater() bool {
	return s.listener.cfg.Preread.Postgres != nil && s.listener.endsTLS(s.client)
}

// Cancels counts the requests of a listener's PostgreSQL clients to cancel a query.
type Cancels struct {
	// Requests counts the requests, Sent the endpoints to which they were sent, and Failed the
	// endpoints for which sending failed.
	Requests, Sent, Failed atomic.Int64
	// Queue holds the requests that are being sent.
	Queue fanout.Queue

	mu    sync.Mutex
	bound map[stay]bool // where sessions of the listener began; some entries are of sessions that have ended
}

// A stay is an endpoint to which a generation of a listener has bound sessions. The sessions keep all three in memory.
type stay struct {
	by  weak.Pointer[Listener]
	way weak.Pointer[UpstreamSnapshot]
	to  weak.Pointer[Endpoint]
}

// note records that sessions of a listener go to an endpoint.
func (c *Cancels) note(l *Listener, snap *UpstreamSnapshot, e *Endpoint) {
	v := stay{weak.Make(l), weak.Make(snap), weak.Make(e)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bound[v] {
		return
	}
	if c.bound == nil {
		c.bound = make(map[stay]bool)
	}
	maps.DeleteFunc(c.bound, func(v stay, _ bool) bool { return v.by.Value() == nil || v.way.Value() == nil || v.to.Value() == nil })
	c.bound[v] = true
}

// former calls see with the endpoints that still have sessions of the listener, but get no new ones: removed endpoints of the
// given upstreams, and all endpoints of upstreams to which the listener no longer leads.
func (l *Listener) former(of map[*Upstream]bool, see func(snap *UpstreamSnapshot, e *Endpoint)) {
	c, leads := &l.state.Cancels, l.upstreams()
	c.mu.Lock()
	defer c.mu.Unlock()
	for v := range c.bound {
		by, snap, e := v.by.Value(), v.way.Value(), v.to.Value()
		if by != nil && snap != nil && e != nil && e.Active() > 0 && (of[snap.upstream] && e.Forgotten() || !leads[snap.upstream]) {
			see(snap, e)
		}
	}
}

// upstreams returns the upstreams to which the listener may lead clients.
func (l *Listener) upstreams() map[*Upstream]bool {
	found := make(map[*Upstream]bool)
	add := func(f *Filter, snaps ...*UpstreamSnapshot) {
		if f != nil {
			snaps = slices.AppendSeq(snaps, maps.Values(f.Snapshots))
		}
		for _, snap := range snaps {
			for ; snap != nil; snap = snap.Fallback {
				found[snap.upstream] = true
			}
		}
	}
	add(l.cfg.Filter, l.cfg.Default)
	for _, r := range l.cfg.Routes {
		add(r.Filter, append(slices.Clone(r.Snapshots), r.Snapshot)...)
	}
	return found
}

// A CancelTarget is an endpoint that may run the query that a CancelRequest is about.
type CancelTarget struct {
	Endpoint *Endpoint // nil: the client's original destination
	Snapshot *UpstreamSnapshot
	listener *Listener
	client   *worker.Client
	original loop.Address
}

// toOriginal stands for the upstream of clients that go to their original destination.
var toOriginal = NewSnapshot(NewUpstream("", nil), new(SnapshotConfig))

// CancelUpstreams returns the upstreams to which the routes may have led the client of a CancelRequest. Only the request's
// connection is known, so any route by names or by user and database may belong to the client; other conditions decide as
// usual. The list ends with the first route that certainly belongs to the client. Filters are asked about the request,
// within their timeouts; a filter that wants more bytes denies it. Without filters CancelUpstreams does not wait.
func (l *Listener) CancelUpstreams(ctx context.Context, c *worker.Client, request []byte) (list []*UpstreamSnapshot) {
	of := l.clientOf(c)
	for i := match.None; ; {
		sure, snaps, filter := true, []*UpstreamSnapshot{l.cfg.Default}, l.cfg.Filter
		if i, sure = l.cfg.Table.Possible(&of, i); i != match.None {
			r := &l.cfg.Routes[i]
			filter = r.Filter
			if snaps[0] = r.Snapshot; r.Split != nil {
				snaps = r.Snapshots
			}
		} else if l.cfg.Default == nil && l.cfg.Transparent {
			snaps[0] = toOriginal
		}
		next := false
		for _, snap := range snaps {
			to, passed := filter.mayCancel(ctx, snap, l.described(c, snap, request))
			list, next = append(list, to), next || passed
		}
		if i == match.None || sure && !next {
			return list
		}
	}
}

// mayCancel returns the upstream to which a route's filter lets a CancelRequest pass, or nil, and whether the following
// routes get it too.
func (f *Filter) mayCancel(ctx context.Context, snap *UpstreamSnapshot, of filter.Connection) (to *UpstreamSnapshot, next bool) {
	if f == nil {
		return snap, false
	}
	of.First, of.Ended = of.First[:min(len(of.First), f.Of.Preread())], true
	switch a := f.answerWithin(ctx, &filter.Call{Of: of}); a.Verdict {
	case filter.Allow:
		return snap, false
	case filter.Route:
		return f.Snapshots[a.Upstream], false
	case filter.Next:
		return nil, true
	}
	return nil, false
}

// answerWithin waits for the answer to a question, for the filter's time.
func (f *Filter) answerWithin(ctx context.Context, call *filter.Call) filter.Answer {
	ctx, stop := context.WithTimeout(ctx, f.Wait)
	defer stop()
	done := make(chan struct{})
	if !f.Of.Ask(call, func() { close(done) }) {
		return filter.Answer{Verdict: f.Of.OnError()}
	}
	select {
	case <-done:
		a, _ := call.Answer()
		return a
	case <-ctx.Done():
		call.Cancel()
		f.Of.Overloaded()
		return filter.Answer{Verdict: f.Of.OnError()}
	}
}

// Filters reports whether a filter is asked about clients of the listener.
func (l *Listener) Filters() bool {
	return l.cfg.Filter != nil || slices.ContainsFunc(l.cfg.Routes, func(r Route) bool { return r.Filter != nil })
}

// CancelTargets returns at most most endpoints of some upstreams and of their fallbacks, whatever
// the verdicts on them, and a client's original destination if it is among the upstreams. Endpoints with sessions come
// first. Former endpoints with sessions are among them, unless no upstream is given.
func (l *Listener) CancelTargets(of []*UpstreamSnapshot, c *worker.Client, most int) (list []CancelTarget) {
	seen, asked := make(map[*Endpoint]bool), make(map[*Upstream]bool)
	add := func(snap *UpstreamSnapshot, e *Endpoint) {
		if !seen[e] {
			seen[e] = true
			list = append(list, CancelTarget{e, snap, l, c, loop.Address{}})
		}
	}
	for _, snap := range of {
		if snap == toOriginal {
			if at, err := l.original(c); err == nil {
				list = append(list, CancelTarget{Snapshot: snap, listener: l, client: c, original: at})
			}
			continue
		}
		for ; snap != nil; snap = snap.Fallback {
			asked[snap.upstream] = true
			set := snap.Set()
			if set == nil {
				continue
			}
			for _, m := range set.Members() {
				add(snap, m.Endpoint.Of.(*Endpoint))
			}
		}
	}
	if len(asked) > 0 { // otherwise no route or filter lets the request pass
		l.former(asked, add)
	}
	slices.SortStableFunc(list, func(a, b CancelTarget) int { return idle(a.Endpoint) - idle(b.Endpoint) })
	return list[:min(len(list), most)]
}

// idle returns 1 for an endpoint without sessions, and 0 for others and an original destination.
func idle(e *Endpoint) int {
	if e == nil || e.Active() > 0 {
		return 0
	}
	return 1
}

// Addresses returns the endpoint's addresses. It looks up a name within a timeout.
func (t *CancelTarget) Addresses(ctx context.Context, timeout time.Duration) ([]loop.Address, error) {
	e := t.Endpoint
	if e == nil {
		return []loop.Address{t.original}, nil
	}
	if len(e.fixed) > 0 {
		return e.fixed, nil
	}
	ips, err := t.listener.cfg.Resolver(ctx, e.host, timeout)
	addrs := make([]loop.Address, len(ips))
	for i, ip := range ips {
		addrs[i].AddrPort = netip.AddrPortFrom(ip.Unmap(), e.port)
	}
	return addrs, err
}

// Circle returns an error if an address leads back to the endpoint's upstream, see [worker.Search].
func (t *CancelTarget) Circle(at loop.Address, fd int, connected bool) error {
	return t.listener.circle(t.client, t.Endpoint, at, fd, connected)
}

// String returns the address of the target, for a log line.
func (t *CancelTarget) String() string {
	if t.Endpoint == nil {
		return t.original.AddrPort.String()
	}
	return t.Endpoint.Address.String()
}

// Host returns the endpoint's host, for the certificate of its TLS.
func (t *CancelTarget) Host() string { return t.Endpoint.host }

// Header returns the PROXY header of a client for the endpoint; nil: none.
func (t *CancelTarget) Header(l *Listener, c *worker.Client) []byte {
	if t.Snapshot.SendProxy == 0 {
		return nil
	}
	return proxyproto.Append(nil, t.Snapshot.SendProxy, &proxyproto.Connection{
		Source: c.Source().AddrPort(), Destination: l.destination(c), TLVs: c.Header.TLVs, Local: c.Header.Local,
	})
}
