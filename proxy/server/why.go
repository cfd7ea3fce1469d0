package server

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/router"
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

// Judge implements [worker.Host].
func (h *host) Judge(b worker.Binding, sample *verdict.Sample) verdict.Verdict {
	v := h.server().verdictOf(sample)
	router.Judged(b, &v, sample.Duration)
	return v
}

// verdictOf judges a sample that ends now.
func (s *Server) verdictOf(sample *verdict.Sample) verdict.Verdict {
	now := s.now()
	sample.Starved = s.cpu.Waited(now-int64(sample.Duration), now)
	return verdict.Of(sample)
}

// sessionKey is a session of a loop, or of a goroutine.
type sessionKey struct {
	loop   int
	began  int64
	client string
}

// Why implements [admin.Balancer].
func (s *Server) Why(ctx context.Context, q admin.WhyQuery) (admin.Why, error) {
	match := func(one *worker.Session) bool { return matches(&q, one) }
	before := make(map[sessionKey]*verdict.Sample)
	began := s.now()
	if q.For > 0 {
		s.cpu.Look(began)
		for one := range s.group.Inspect(ctx, match) {
			before[keyOf(&one)] = one.Sample
			if len(before) == maxWhy {
				break
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
	sum := &whySum{why: admin.Why{WindowUs: q.For.Microseconds(), Verdicts: make(map[string]int64)}}
	for one := range s.group.Inspect(ctx, match) {
		if sum.why.Count == maxWhy {
			sum.why.More = true
			break
		}
		sample := *one.Sample
		if first := before[keyOf(&one)]; first != nil {
			sample = sample.Since(first)
		}
		sum.add(&one, s.verdictOf(&sample), &sample)
	}
	return sum.result(), ctx.Err()
}

func keyOf(one *worker.Session) sessionKey { return sessionKey{one.Loop, one.Began, one.Client} }

// matches reports whether a session is asked for.
func matches(q *admin.WhyQuery, one *worker.Session) bool {
	switch {
	case q.Session != "":
		return one.Client == q.Session
	case q.Endpoint != "":
		return one.Endpoint == q.Endpoint || one.EndpointName == q.Endpoint
	case q.Upstream != "":
		return one.Upstream == q.Upstream
	case q.Listener != "":
		return one.Listener == q.Listener
	case q.Source.IsValid():
		at, err := netip.ParseAddrPort(one.Client)
		return err == nil && q.Source.Contains(at.Addr().Unmap())
	}
	return true
}

// A whySum adds up sessions.
type whySum struct {
	why   admin.Why
	times [verdict.Kinds]float64
	rows  []whyRow
}

type whyRow struct {
	busy float64 // time that was not idle
	admin.SessionWhy
}

func (w *whySum) add(one *worker.Session, v verdict.Verdict, sample *verdict.Sample) {
	w.why.Count++
	w.why.Verdicts[v.Kind.String()]++
	for k, share := range v.Shares {
		w.times[k] += share * sample.Duration.Seconds()
	}
	w.rows = append(w.rows, whyRow{
		busy: (1 - v.Shares[verdict.Idle]) * sample.Duration.Seconds(),
		SessionWhy: admin.SessionWhy{
			Client: one.Client, Listener: one.Listener, Upstream: one.Upstream, Endpoint: one.Endpoint, Name: one.EndpointName,
			AgeUs: one.Age.Microseconds(), Verdict: v.Kind.String(), Why: v.Why(), Shares: sharesOf(&v.Shares), Waits: waitsOf(sample),
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
		if total += t; t > w.times[kind] {
			kind = verdict.Kind(k)
		}
	}
	if total > 0 {
		for k := range w.times {
			w.times[k] /= total
		}
	}
	w.why.Verdict, w.why.Advice, w.why.Shares = kind.String(), kind.Advice(), sharesOf(&w.times)
	return w.why
}

// sharesOf returns those of at least a thousandth, by name.
func sharesOf(of *[verdict.Kinds]float64) map[string]float64 {
	shares := make(map[string]float64)
	for k, share := range of {
		if share >= 0.001 {
			shares[verdict.Kind(k).String()] = float64(int(share*1000+0.5)) / 1000
		}
	}
	return shares
}

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
