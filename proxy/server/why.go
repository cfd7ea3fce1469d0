package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

const (
	// maxWhy is of how many sessions the first look is kept.
	maxWhy = 10_000
	// maxWhyListed is how many are listed.
	maxWhyListed = 100
)

// Why implements [admin.Balancer].
func (s *sessionTable) Why(ctx context.Context, q admin.WhyQuery) (admin.Why, error) {
	selected := whyQuery(&q)
	before := make(map[worker.ID]*verdict.Sample)
	began := s.now()
	if q.For > 0 {
		s.cpu.Look(began)
		for one := range s.group.Sessions(ctx, selected) {
			before[one.ID] = one.Sample
			if len(before) == maxWhy {
				break
			}
		}
		if len(before) == 0 {
			if err := s.knows(&q); err != nil {
				return admin.Why{}, err // now, and not after that time
			}
		}
		timer := time.NewTimer(q.For)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	s.cpu.Look(s.now())
	sum := &whySum{why: admin.Why{WindowUs: q.For.Microseconds(), Verdicts: make(map[string]int64)}, by: make(whyGroups)}
	for one := range s.group.Sessions(ctx, selected) {
		if sum.why.Count == maxWhy {
			sum.why.More = true
			break
		}
		sample := *one.Sample
		if first := before[one.ID]; first != nil {
			sample = sample.Since(first)
		}
		sum.add(&one, s.verdictOf(&sample), &sample)
	}
	if sum.why.Count == 0 {
		if err := s.knows(&q); err != nil {
			return admin.Why{}, err
		}
		return s.nobodyJoined(ctx, &q, sum), ctx.Err()
	}
	return sum.result(), ctx.Err()
}

// whyQuery returns the query of the sessions that are asked for, with their samples. A session is given by its
// client, or by its ID.
func whyQuery(q *admin.WhyQuery) *worker.Query {
	selected := &worker.Query{Listener: q.Listener, Upstream: q.Upstream, Endpoint: q.Endpoint, Joined: true, Sample: true}
	if q.Source.IsValid() {
		selected.Source = source.Prefix(q.Source)
	}
	if q.Session == "" {
		return selected
	}
	if id, err := worker.ParseID(q.Session); err == nil {
		selected.ID = id
	} else {
		selected.Accepts = func(one *worker.Session) bool { return one.Client == q.Session }
	}
	return selected
}

// A whySum adds up sessions.
type whySum struct {
	why   admin.Why
	times [verdict.Kinds]float64
	by    whyGroups
	rows  []whyRow
}

type whyRow struct {
	busy float64 // time that was not idle
	admin.SessionWhy
}

func (w *whySum) add(one *worker.Session, v verdict.Verdict, sample *verdict.Sample) {
	w.why.Count++
	w.why.Verdicts[v.Kind.String()]++
	seconds := sample.Duration.Seconds()
	if v.Young {
		seconds = 0 // they say nothing of the others
	}
	for k, share := range v.Shares {
		w.times[k] += share * seconds
	}
	w.by.add(one, &v, seconds)
	why := v.Why()
	if one.Adopted {
		w.why.Adopted++
		why = "adopted, of its time in the lane: " + why
	}
	w.rows = append(w.rows, whyRow{
		busy: (1 - v.Shares[verdict.Idle]) * seconds,
		SessionWhy: admin.SessionWhy{
			Client: one.Client, Listener: one.Listener, Upstream: one.Upstream, Endpoint: one.Endpoint, Name: one.EndpointName,
			AgeUs: one.Age.Microseconds(), Adopted: one.Adopted, Verdict: v.Kind.String(), Why: why, Shares: sharesOf(&v.Shares), Waits: waitsOf(sample),
			ClientLeg: legStatus(&sample.A.Leg), EndpointLeg: legStatus(&sample.B.Leg),
		},
	})
	if len(w.rows) >= 2*maxWhyListed {
		w.keepBusiest()
	}
}

// keepBusiest keeps those that are listed.
func (w *whySum) keepBusiest() {
	slices.SortStableFunc(w.rows, func(a, b whyRow) int { return cmp.Compare(b.busy, a.busy) })
	w.rows = w.rows[:min(len(w.rows), maxWhyListed)]
}

func (w *whySum) result() admin.Why {
	w.keepBusiest()
	w.why.Sessions = make([]admin.SessionWhy, 0, len(w.rows))
	for i := range w.rows {
		w.why.Sessions = append(w.why.Sessions, w.rows[i].SessionWhy)
	}
	kind, total := verdict.Unknown, 0.0
	for k, t := range w.times {
		if total += t; t > w.times[kind] && verdict.Kind(k) != verdict.Idle {
			kind = verdict.Kind(k)
		}
	}
	if idle := w.times[verdict.Idle]; idle > w.times[kind] && w.times[kind] < leastShare*total {
		kind = verdict.Idle // and nothing else is worth a look
	}
	w.by.report(&w.why, kind, w.times[kind])
	w.why.Verdict, w.why.Advice = kind.String(), kind.Advice()
	if total > 0 {
		for k := range w.times {
			w.times[k] /= total
		}
	} else if w.why.Count > 0 {
		w.times[verdict.Unknown], w.why.Advice = 1, verdict.TooYoung
	}
	w.why.Shares = sharesOf(&w.times)
	return w.why
}

// leastShare is the share of the time from which on a verdict comes before idle.
const leastShare = 0.1

// sharesOf returns those of at least a thousandth, by name.
func sharesOf(of *[verdict.Kinds]float64) map[string]float64 {
	shares := make(map[string]float64)
	for k, share := range of {
		if share >= 0.001 {
			shares[verdict.Kind(k).String()] = thousandths(share)
		}
	}
	return shares
}

// thousandths rounds a share.
func thousandths(share float64) float64 { return float64(int(share*1000+0.5)) / 1000 }

func waitsOf(s *verdict.Sample) admin.WaitsUs {
	w := &s.Waits
	return admin.WaitsUs{
		ForClient: w.ForA.Microseconds(), ForEndpoint: w.ForB.Microseconds(), PausesClient: w.PausesA, PausesEndpoint: w.PausesB, ToClient: w.ToA.Microseconds(), ToEndpoint: w.ToB.Microseconds(),
		Bandwidth: w.Bandwidth.Microseconds(), Loop: w.Loop.Microseconds(), CPU: max(s.Starved, 0).Microseconds(), CPUUnknown: s.Starved < 0,
	}
}

// legStatus returns nil if it is unknown.
func legStatus(l *relay.Leg) *admin.Leg {
	if !l.Known {
		return nil
	}
	return &admin.Leg{
		BusyUs: l.Busy.Microseconds(), PeerWindowUs: l.PeerWindow.Microseconds(), SendBufferUs: l.SendBuffer.Microseconds(),
		RTTUs: l.RTT.Microseconds(), MinRTTUs: l.MinRTT.Microseconds(), ReceiverRTTUs: l.ReceiverRTT.Microseconds(),
		DeliveryRate: l.DeliveryRate, AppLimited: l.AppLimited, Sent: l.Sent, Received: l.Received, NotSent: l.NotSent,
		PacketsOut: l.SegmentsSent, PacketsIn: l.SegmentsReceived, Retransmitted: l.Retransmitted, OutOfOrder: l.OutOfOrder,
	}
}

// maxWhyEndpoints is how many endpoints are listed.
const maxWhyEndpoints = 100

// A whyGroup adds up the sessions of an endpoint, or of an upstream.
type whyGroup struct {
	upstream, endpoint, name string
	sessions                 int64
	verdicts                 [verdict.Kinds]int64
	times                    [verdict.Kinds]float64 // in seconds
}

func (g *whyGroup) add(v *verdict.Verdict, seconds float64) {
	g.sessions++
	g.verdicts[v.Kind]++
	for k, share := range v.Shares {
		g.times[k] += share * seconds
	}
}

// whyGroups are the groups of sessions, by upstream and address of the endpoint; that of an upstream has no address.
type whyGroups map[[2]string]*whyGroup

func (w whyGroups) add(one *worker.Session, v *verdict.Verdict, seconds float64) {
	for _, of := range [...]whyGroup{{upstream: one.Upstream, endpoint: one.Endpoint, name: one.EndpointName}, {upstream: one.Upstream}} {
		key := [2]string{of.upstream, of.endpoint}
		g := w[key]
		if g == nil {
			g = &of
			w[key] = g
		}
		g.add(v, seconds)
	}
}

// list returns the endpoints, or the upstreams, of which the most time has the verdict first.
func (w whyGroups) list(kind verdict.Kind, endpoints bool) (list []*whyGroup) {
	for _, g := range w {
		if endpoints && g.endpoint != "" || !endpoints && g.endpoint == "" && g.upstream != "" {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *whyGroup) int {
		return cmp.Or(cmp.Compare(b.times[kind], a.times[kind]), cmp.Compare(a.upstream, b.upstream), cmp.Compare(a.endpoint, b.endpoint))
	})
	return list
}

// status describes a group, of a verdict that has a time in all groups.
func (g *whyGroup) status(kind verdict.Kind, all float64) admin.EndpointWhy {
	own := g.times
	total := 0.0
	for _, t := range own {
		total += t
	}
	for k := range own {
		own[k] /= max(total, 1e-9)
	}
	return admin.EndpointWhy{
		Upstream: g.upstream, Endpoint: g.endpoint, Name: g.name, Sessions: g.sessions, Limited: g.verdicts[kind],
		Share: thousandths(g.times[kind] / max(all, 1e-9)), Shares: sharesOf(&own),
	}
}

// report adds the endpoints to a result, and the one, or else the upstream, that has most of the time of a verdict
// on endpoints. times are those of all sessions.
func (w whyGroups) report(to *admin.Why, kind verdict.Kind, all float64) {
	endpoints := w.list(kind, true)
	to.Endpoints = make([]admin.EndpointWhy, 0, min(len(endpoints), maxWhyEndpoints))
	for _, g := range endpoints[:min(len(endpoints), maxWhyEndpoints)] {
		to.Endpoints = append(to.Endpoints, g.status(kind, all))
	}
	if kind != verdict.Endpoint && kind != verdict.EndpointNetwork {
		return
	}
	for _, list := range [][]*whyGroup{endpoints, w.list(kind, false)} {
		if len(list) > 0 && list[0].times[kind] > all/2 {
			most := list[0].status(kind, all)
			to.Most = &most
			return
		}
	}
}
