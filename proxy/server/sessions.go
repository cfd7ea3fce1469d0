package server

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

type sessionTable struct {
	*core
	endings map[*endJob]bool // jobs under way; under the server's mu
	byHand  endedByHand      // has its own lock
}

func queryOf(q *admin.SessionQuery) (*worker.Query, error) {
	of := &worker.Query{
		Listener: q.Listener, Upstream: q.Upstream, Endpoint: q.Endpoint, Older: q.Older, Idle: q.Idle, Bytes: q.Bytes, State: worker.State(q.State), Lane: q.Engine == admin.EngineLane,
	}
	var err error
	if q.Source != "" {
		if of.Source, err = source.ParseRule(q.Source); err != nil {
			return nil, fmt.Errorf("%w: source: %w", admin.ErrInvalid, err)
		}
	}
	if q.ID != "" {
		if err := of.SetID(q.ID); err != nil {
			return nil, fmt.Errorf("%w: id: %w", admin.ErrInvalid, err)
		}
	}
	if q.Verdict != "" {
		of.Joined, of.Sample = true, true
	}
	return of, nil
}

// selected yields the sessions of a query, with their verdicts if the query asks for them.
func (s *sessionTable) selected(ctx context.Context, q *admin.SessionQuery, of *worker.Query) iter.Seq2[*worker.Session, string] {
	return func(yield func(*worker.Session, string) bool) {
		if of.Sample {
			s.cpu.Look(s.now())
		}
		for one := range s.group.Sessions(ctx, of) {
			verdict := ""
			if one.Sample != nil {
				verdict = s.verdictOf(one.Sample).Kind.String()
			}
			if q.Verdict != "" && q.Verdict != admin.AnyVerdict && q.Verdict != verdict {
				continue
			}
			if !yield(&one, verdict) {
				return
			}
		}
	}
}

// Sessions implements [admin.Balancer].
func (s *sessionTable) Sessions(ctx context.Context, q admin.SessionQuery, o admin.SessionOrder) (admin.SessionList, error) {
	of, err := queryOf(&q)
	if err != nil {
		return admin.SessionList{}, err
	}
	if err := s.named(ctx, of); err != nil {
		return admin.SessionList{}, err
	}
	list := &sessionList{table: s, query: q, of: of, top: o.Top}
	if o.By != "" {
		list.order, list.top = orders[o.By], cmp.Or(o.Top, admin.MaxTop)
		if list.order == nil {
			return admin.SessionList{}, fmt.Errorf("sort: %q: %w: write %s", o.By, admin.ErrInvalid, strings.Join(admin.SessionOrders, ", "))
		}
	}
	return admin.SessionList{Sessions: list.all(ctx), More: func() bool { return list.more }}, nil
}

type sessionList struct {
	table *sessionTable
	query admin.SessionQuery
	of    *worker.Query
	order func(a, b *admin.Session) int // nil: any order
	top   int                           // 0: all
	more  bool                          // there are more than top
}

func (l *sessionList) all(ctx context.Context) iter.Seq[admin.Session] {
	if l.order != nil {
		return l.sorted(ctx)
	}
	return func(yield func(admin.Session) bool) {
		n := 0
		for one := range l.found(ctx) {
			if l.more = l.top > 0 && n == l.top; l.more || !yield(one) {
				return
			}
			n++
		}
	}
}

func (l *sessionList) found(ctx context.Context) iter.Seq[admin.Session] {
	return func(yield func(admin.Session) bool) {
		for one, verdict := range l.table.selected(ctx, &l.query, l.of) {
			if !yield(sessionStatus(one, verdict)) {
				return
			}
		}
	}
}

// sorted yields the first sessions of the order. It holds at most twice as many in memory.
func (l *sessionList) sorted(ctx context.Context) iter.Seq[admin.Session] {
	return func(yield func(admin.Session) bool) {
		var kept []admin.Session
		first := func() {
			slices.SortStableFunc(kept, func(a, b admin.Session) int { return l.order(&a, &b) })
			if len(kept) > l.top {
				kept, l.more = kept[:l.top], true
			}
		}
		for one := range l.found(ctx) {
			if kept = append(kept, one); len(kept) >= 2*l.top {
				first()
			}
		}
		first()
		for _, one := range kept {
			if !yield(one) {
				return
			}
		}
	}
}

var orders = map[string]func(a, b *admin.Session) int{
	"age": largest(func(s *admin.Session) int64 { return s.AgeUs }),
	"idle": largest(func(s *admin.Session) int64 {
		if s.IdleUs == nil { // unknown
			return -1
		}
		return *s.IdleUs
	}),
	"bytes":    largest(func(s *admin.Session) int64 { return s.Bytes.ClientToEndpoint.All() + s.Bytes.EndpointToClient.All() }),
	"in":       largest(func(s *admin.Session) int64 { return s.Bytes.ClientToEndpoint.All() }),
	"out":      largest(func(s *admin.Session) int64 { return s.Bytes.EndpointToClient.All() }),
	"client":   byText(func(s *admin.Session) string { return s.Client }),
	"listener": byText(func(s *admin.Session) string { return s.Listener }),
	"upstream": byText(func(s *admin.Session) string { return s.Upstream }),
	"endpoint": byText(func(s *admin.Session) string { return cmp.Or(s.Name, s.Endpoint) }),
	"state":    byText(func(s *admin.Session) string { return s.State }),
	"verdict":  byText(func(s *admin.Session) string { return s.Verdict }),
}

func largest(of func(*admin.Session) int64) func(a, b *admin.Session) int {
	return func(a, b *admin.Session) int { return cmp.Compare(of(b), of(a)) }
}

func byText(of func(*admin.Session) string) func(a, b *admin.Session) int {
	return func(a, b *admin.Session) int { return cmp.Compare(of(a), of(b)) }
}

func sessionStatus(session *worker.Session, verdict string) admin.Session {
	s := admin.Session{
		ID: session.ID.String(), Client: session.Client, Listener: session.Listener, Upstream: session.Upstream, Endpoint: session.Endpoint, EndpointLocal: session.EndpointLocal, Name: session.EndpointName,
		State: string(session.State), Loop: session.Loop, AgeUs: session.Age.Microseconds(), Verdict: verdict, Adopted: session.Adopted,
		Bytes: session.Bytes,
	}
	spliced, copied := session.ClientToEndpoint.Spliced+session.EndpointToClient.Spliced, session.ClientToEndpoint.Copied+session.EndpointToClient.Copied
	switch {
	case session.Lane:
		s.Engine = admin.EngineLane
	case spliced > 0 && copied > 0:
		s.Engine = "both"
	case spliced > 0:
		s.Engine = "splice"
	case copied > 0:
		s.Engine = "copy"
	}
	if !session.Record.IsZero() {
		s.LogID = session.Record.String()
	}
	if session.Idle >= 0 {
		us := session.Idle.Microseconds()
		s.IdleUs = &us
	}
	return s
}

// knows returns an error if no session can have the requested name. A name that a reload has removed may still have
// sessions, so knows is called only if no session was found.
func (s *sessionTable) knows(q *admin.WhyQuery) error {
	if q.Session != "" {
		return missingf("session %q has ended, or has no endpoint yet: GET /v1/sessions lists the sessions", q.Session)
	}
	return s.knowsNames(q.Listener, q.Upstream, q.Endpoint)
}

// waiting counts clients without an endpoint: clients that wait for an endpoint of an upstream, or clients of a listener or a source.
func (s *sessionTable) waiting(ctx context.Context, q *admin.WhyQuery) (n int64) {
	switch {
	case q.Session != "" || q.Endpoint != "":
		return 0
	case q.Upstream != "":
		s.mu.Lock()
		defer s.mu.Unlock()
		if u := s.upstreams[q.Upstream]; u != nil {
			return int64(u.router.Waiting())
		}
		return 0
	}
	of := whyQuery(q)
	of.Joined, of.Sample, of.Brief = false, false, true
	for one := range s.group.Sessions(ctx, of) {
		if !one.State.HasEndpoint() {
			n++
		}
	}
	return n
}

// named returns the error of [sessionTable.knowsNames], unless there is a client with these names, from before a reload.
func (s *sessionTable) named(ctx context.Context, q *worker.Query) error {
	err := s.knowsNames(q.Listener, q.Upstream, q.Endpoint)
	if err == nil {
		return nil
	}
	for range s.group.Sessions(ctx, &worker.Query{Listener: q.Listener, Upstream: q.Upstream, Endpoint: q.Endpoint, Brief: true}) {
		return nil
	}
	return err
}

// knowsNames returns an error for a name that the configuration does not have. An empty name and
// [admin.UnknownName] are no errors.
func (s *sessionTable) knowsNames(listener, upstream, endpoint string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if listener == admin.UnknownName {
		listener = ""
	}
	if upstream == admin.UnknownName {
		upstream = ""
	}
	switch {
	case upstream != "" && s.upstreams[upstream] == nil:
		return missing("upstream", upstream, s.upstreams)
	case listener != "" && s.listeners[listener] == nil:
		return missing("listener", listener, s.listeners)
	case endpoint != "":
		return s.knowsEndpoint(endpoint, upstream)
	}
	return nil
}

// knowsEndpoint looks for a name or an address of an endpoint, of one upstream or of all. The caller holds mu.
func (s *sessionTable) knowsEndpoint(name, upstream string) error {
	all := make(map[string]*member)
	for of, u := range s.upstreams {
		if upstream != "" && upstream != of {
			continue
		}
		for id, m := range u.members {
			if id == name || m.spec.Address == name {
				return nil
			}
			all[id] = m
		}
	}
	return missing("endpoint", name, all)
}

const (
	// maxSources is the largest number of sources from which a list is chosen.
	maxSources = 1 << 18
	// rateWindow and refusalWindow are how long arrivals and refusals count.
	rateWindow, refusalWindow = 10 * time.Second, time.Minute
)

// Sources implements [admin.Balancer]. Connections are counted from the list of clients; new connections, refusals
// and bytes come from the rings of the loops. So a connection costs only a place in such a ring.
func (s *sessionTable) Sources(ctx context.Context, q admin.SourceQuery) (admin.Sources, error) {
	t := &sourceTable{v4: cmp.Or(q.Prefix4, 32), v6: cmp.Or(q.Prefix6, 64), counts: make(map[source.Rule]*admin.Source)}
	for one := range s.group.Sessions(ctx, &worker.Query{Brief: true}) {
		if of := t.of(one.Source, false); of != nil {
			of.Connections++
			of.Bytes += one.ClientToEndpoint.All() + one.EndpointToClient.All()
		}
	}
	for a := range s.group.Arrivals(ctx, rateWindow, false) {
		if of := t.of(a.Source, a.Unix); of != nil {
			of.PerSecond += a.Share
		}
	}
	for a := range s.group.Arrivals(ctx, refusalWindow, true) {
		if of := t.of(a.Source, a.Unix); of != nil {
			of.Refused++
		}
	}
	return t.top(cmp.Or(q.By, admin.SourceOrders[0]), cmp.Or(q.Top, admin.DefaultTop)), ctx.Err()
}

// A sourceTable adds up clients by source.
type sourceTable struct {
	v4, v6 int // bits
	counts map[source.Rule]*admin.Source
	beyond int64
}

// of returns the counts of a client's source, or nil if the table is full.
func (t *sourceTable) of(from source.Source, unix bool) *admin.Source {
	var rule source.Rule // the zero Rule counts unknown sources
	if peer, ok := from.Credentials(); ok {
		rule = source.UnixUser(peer.UID)
	} else if at := from.AddrPort().Addr(); at.IsValid() {
		bits := t.v6
		if at.Is4() {
			bits = t.v4
		}
		rule = source.Prefix(netip.PrefixFrom(at.WithZone(""), bits))
	} else if unix {
		rule = source.UnixClients()
	}
	of := t.counts[rule]
	if of == nil {
		if len(t.counts) >= maxSources {
			t.beyond++
			return nil
		}
		of = new(admin.Source)
		t.counts[rule] = of
	}
	return of
}

// top returns the first sources by connections, rate, refusals or bytes.
func (t *sourceTable) top(by string, most int) admin.Sources {
	sum := admin.Sources{Sources: make([]admin.Source, 0, len(t.counts)), Known: len(t.counts), Beyond: t.beyond}
	for rule, of := range t.counts {
		of.Source, of.PerSecond = rule.Text(), math.Round(of.PerSecond*100)/100
		sum.Sources = append(sum.Sources, *of)
	}
	number := map[string]func(*admin.Source) float64{
		"connections": func(s *admin.Source) float64 { return float64(s.Connections) },
		"rate":        func(s *admin.Source) float64 { return s.PerSecond },
		"refusals":    func(s *admin.Source) float64 { return float64(s.Refused) },
		"bytes":       func(s *admin.Source) float64 { return float64(s.Bytes) },
	}[by]
	slices.SortFunc(sum.Sources, func(a, b admin.Source) int {
		return cmp.Or(cmp.Compare(number(&b), number(&a)), cmp.Compare(b.Connections, a.Connections), cmp.Compare(a.Source, b.Source))
	})
	sum.Sources = slices.Clone(sum.Sources[:min(len(sum.Sources), most)])
	return sum
}
