package server

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

const (
	// maxWhy is the largest number of sessions looked at.
	maxWhy = 10_000
	// maxWhyListed is the largest number of sessions listed.
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
				return admin.Why{}, err // before the wait
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
	}
	sum.why.Waiting = s.waiting(ctx, &q)
	return sum.result(), ctx.Err()
}

// whyQuery returns the query for the selected sessions, with their samples. A session is given by its client,
// or by its ID.
func whyQuery(q *admin.WhyQuery) *worker.Query {
	selected := &worker.Query{Listener: q.Listener, Upstream: q.Upstream, Endpoint: q.Endpoint, Joined: true, Sample: true}
	if q.Source.IsValid() {
		selected.Source = source.Prefix(q.Source)
	}
	if q.Session == "" {
		return selected
	}
	if selected.SetID(q.Session) != nil {
		selected.Accepts = func(one *worker.Session) bool { return one.Client == q.Session }
	}
	return selected
}

type whySum struct {
	why   admin.Why
	times whyTimes
	by    whyGroups
	rows  []whyRow
}

// whyTimes are the seconds of sessions by verdict: all, and the seconds in which somebody kept them waiting, see
// [verdict.Verdict.Kept].
type whyTimes struct{ all, kept [verdict.Kinds]float64 }

func (t *whyTimes) add(v *verdict.Verdict, seconds float64) {
	kept := v.Kept()
	for k := range t.all {
		t.all[k] += v.Shares[k] * seconds
		t.kept[k] += kept[k] * seconds
	}
}

func total(of *[verdict.Kinds]float64) float64 { return sumOf(slices.Values(of[:])) }

func sumOf[T int64 | float64](all iter.Seq[T]) (sum T) {
	for n := range all {
		sum += n
	}
	return sum
}

type whyRow struct {
	kept float64 // time in which somebody kept the session waiting
	admin.SessionWhy
}

func (w *whySum) add(one *worker.Session, v verdict.Verdict, sample *verdict.Sample) {
	w.why.Count++
	w.why.Verdicts[v.Kind.String()]++
	seconds := sample.Duration.Seconds()
	if v.Young {
		seconds = 0 // too short to say anything about its time
	}
	w.times.add(&v, seconds)
	w.by.add(one, &v, seconds)
	why, kept := v.Why(), v.Kept()
	if one.Adopted {
		w.why.Adopted++
		why = "adopted session, only its time in the lane is known: " + why
	}
	w.rows = append(w.rows, whyRow{
		kept: total(&kept) * seconds,
		SessionWhy: admin.SessionWhy{
			Client: one.Client, Listener: one.Listener, Upstream: one.Upstream, Endpoint: one.Endpoint, Name: one.EndpointName,
			AgeUs: one.Age.Microseconds(), Adopted: one.Adopted, Verdict: v.Kind.String(), Why: why, Shares: sharesOf(&v.Shares), Waits: waitsOf(sample),
			ClientLeg: legStatus(&sample.A.Leg), EndpointLeg: legStatus(&sample.B.Leg),
		},
	})
	if len(w.rows) >= 2*maxWhyListed {
		w.keepLongest()
	}
}

func (w *whySum) keepLongest() {
	slices.SortStableFunc(w.rows, func(a, b whyRow) int { return cmp.Compare(b.kept, a.kept) })
	w.rows = w.rows[:min(len(w.rows), maxWhyListed)]
}

func (w *whySum) result() admin.Why {
	w.keepLongest()
	w.why.Sessions = make([]admin.SessionWhy, 0, len(w.rows))
	for i := range w.rows {
		w.why.Sessions = append(w.why.Sessions, w.rows[i].SessionWhy)
	}
	kind, times := w.cause(), &w.times.all
	w.by.report(&w.why, kind, times[kind])
	w.why.Verdict, w.why.Advice = kind.String(), kind.Advice()
	if w.why.Count == 0 {
		w.why.Verdict, w.why.Advice = admin.NoVerdict, "no client is connected to an endpoint now"
	}
	if all := total(times); all > 0 {
		for k := range times {
			times[k] /= all
		}
	} else if w.why.Count > 0 {
		times[verdict.Unknown], w.why.Advice = 1, verdict.TooYoung
	}
	w.why.Shares = sharesOf(times)
	if n := w.why.Waiting; n > 0 {
		w.why.Advice += fmt.Sprintf("; clients without an endpoint: %d, see penstock status", n)
	}
	return w.why
}

// cause returns the verdict on all sessions: the cause that has kept them waiting longest, if this time is large
// enough. Otherwise it is the verdict with the most time, which may be idle, or client for silent clients.
func (w *whySum) cause() verdict.Kind {
	cause, found := verdict.Unknown, false
	for k, kept := range w.times.kept {
		if kind := verdict.Kind(k); w.by.worth(kind) && (!found || kept > w.times.kept[cause]) {
			cause, found = kind, true
		}
	}
	if found {
		return cause
	}
	for k, t := range w.times.all {
		if t > w.times.all[cause] {
			cause = verdict.Kind(k)
		}
	}
	return cause
}

// leastShare is the smallest share of the time of one endpoint's sessions for which a cause is
// reported.
const leastShare = 0.1

// sharesOf returns the shares of at least a thousandth, by name.
func sharesOf(of *[verdict.Kinds]float64) map[string]float64 {
	shares := make(map[string]float64)
	for k, share := range of {
		if share >= 0.001 {
			shares[verdict.Kind(k).String()] = thousandths(share)
		}
	}
	return shares
}

func thousandths(share float64) float64 { return float64(int(share*1000+0.5)) / 1000 }

func waitsOf(s *verdict.Sample) admin.WaitsUs {
	w := &s.Waits
	return admin.WaitsUs{
		ForClient: w.ForA.Microseconds(), ForEndpoint: w.ForB.Microseconds(), PausesClient: w.PausesA, PausesEndpoint: w.PausesB, ToClient: w.ToA.Microseconds(), ToEndpoint: w.ToB.Microseconds(),
		Bandwidth: w.Bandwidth.Microseconds(), Loop: w.Loop.Microseconds(), CPU: max(s.Starved, 0).Microseconds(), CPUUnknown: s.Starved < 0,
	}
}

// legStatus returns nil for an unknown leg.
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

// maxWhyEndpoints is the largest number of endpoints listed.
const maxWhyEndpoints = 100

// A whyGroup adds up the sessions of an endpoint, or of an upstream.
type whyGroup struct {
	upstream, endpoint, name string
	sessions                 int64
	verdicts                 [verdict.Kinds]int64
	times                    whyTimes
}

func (g *whyGroup) add(v *verdict.Verdict, seconds float64) {
	g.sessions++
	g.verdicts[v.Kind]++
	g.times.add(v, seconds)
}

// whyGroups are the groups of sessions, by upstream and address of the endpoint; an upstream's group has no address.
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

// worth reports whether a cause has kept an endpoint's sessions waiting for a large part of their
// time. It looks at each endpoint separately, because one stopped endpoint among many causes only
// a small part of the total time.
func (w whyGroups) worth(kind verdict.Kind) bool {
	for _, g := range w {
		if kept := g.times.kept[kind]; kept > 0 && kept >= leastShare*total(&g.times.all) {
			return true
		}
	}
	return false
}

// list returns the endpoints, or the upstreams, with the most time of the verdict first.
func (w whyGroups) list(kind verdict.Kind, endpoints bool) (list []*whyGroup) {
	for _, g := range w {
		if endpoints && g.endpoint != "" || !endpoints && g.endpoint == "" && g.upstream != "" {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *whyGroup) int {
		return cmp.Or(cmp.Compare(b.times.all[kind], a.times.all[kind]), cmp.Compare(a.upstream, b.upstream), cmp.Compare(a.endpoint, b.endpoint))
	})
	return list
}

// status describes a group for a verdict. all is the time of the verdict in all groups.
func (g *whyGroup) status(kind verdict.Kind, all float64) admin.EndpointWhy {
	own := g.times.all
	whole := max(total(&own), 1e-9)
	for k := range own {
		own[k] /= whole
	}
	return admin.EndpointWhy{
		Upstream: g.upstream, Endpoint: g.endpoint, Name: g.name, Sessions: g.sessions, Limited: g.verdicts[kind],
		Share: thousandths(g.times.all[kind] / max(all, 1e-9)), Shares: sharesOf(&own),
	}
}

// report adds the endpoints to a result. If the verdict is about endpoints, it also adds the endpoint, or else the
// upstream, that has most of the verdict's time: of two that are equally slow, chance would decide which has more than
// half. all is the time of the verdict in all groups.
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
		if len(list) > 0 && list[0].times.all[kind] > all*2/3 {
			most := list[0].status(kind, all)
			to.Most = &most
			return
		}
	}
}
