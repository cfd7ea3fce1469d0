package traces_test

import (
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/internal/traces"
	"github.com/penstock/penstock/relay"
)

func TestMain(m *testing.M) { leak.Main(m) }

type rig struct {
	*traces.Exporter
	t     *testing.T
	to    *collector.Collector
	ids   record.IDs
	next  uint64
	begun time.Time

	mu      sync.Mutex
	reports []traces.Stats
}

// export returns an exporter to a collector, with settings that a test changes.
func export(t *testing.T, to *collector.Collector, protocol string, change func(*traces.Settings)) *rig {
	t.Helper()
	r := &rig{t: t, to: to, ids: record.NewIDs(), begun: time.Now()}
	r.Exporter = traces.New(&traces.Config{
		Now: func() int64 { return int64(time.Since(r.begun)) + 1 },
		Report: func(lost traces.Stats, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reports = append(r.reports, lost)
		},
	})
	t.Cleanup(r.Close)
	r.Set(settings(t, to.URL, protocol, change))
	return r
}

func settings(t testing.TB, endpoint, protocol string, change func(*traces.Settings)) *traces.Settings {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s := &traces.Settings{
		Endpoint: to, Protocol: protocol, Ratio: 1, Queue: 2048, Batch: 64, Delay: time.Millisecond,
		Timeout: condition.Patience, Retry: condition.Patience, Flush: condition.Patience, Version: "v1.2.3",
	}
	if change != nil {
		change(s)
	}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	return s
}

// sessions has n sessions begin and end, and returns how many were sampled.
func (r *rig) sessions(n int) (sampled int) {
	var one record.Record
	for range n {
		r.next++
		id := r.ids.Of(r.next)
		if by := r.Sample(id); by != 0 {
			sampled++
			fill(&one, id)
			one.Sampler = by
			r.Add(&one)
		}
	}
	return sampled
}

// fill fills in the record of an ordinary session: its times are 1 ms apart, from 1 ms on.
func fill(r *record.Record, id record.ID) {
	const ms = int64(time.Millisecond)
	r.Begin(id, "web", 1, ms)
	r.Client = source.TCP(netip.MustParseAddrPort("192.0.2.1:5555"))
	r.Local = netip.MustParseAddrPort("192.0.2.2:443")
	r.Upstream, r.Endpoint, r.EndpointAddress = "app", "b", netip.MustParseAddrPort("192.0.2.3:8443")
	r.ServerName, r.Protocols = "shop.example", "h2,http/1.1"
	for i, at := range []*int64{&r.Begun, &r.Preread, &r.Routed, &r.Picked, &r.Connecting, &r.Joined, &r.ClientFirst, &r.EndpointFirst, &r.HalfClosed, &r.Ended} {
		*at = int64(i+2) * ms
	}
	r.Result = relay.Result{Reason: relay.ReasonEOF, First: relay.SideA}
	r.Result.AToB.Copied, r.Result.BToA.Spliced = 100, 1<<20
}

// settled waits until no span waits, and returns the counters.
func (r *rig) settled() traces.Stats {
	r.t.Helper()
	condition.Await(r.t, "no span waits", func() bool { return r.Stats().Queued == 0 })
	s := r.Stats()
	r.balanced(&s)
	return s
}

func (r *rig) balanced(s *traces.Stats) {
	r.t.Helper()
	n := s.Exported + s.Unconfirmed
	for _, d := range s.Dropped {
		n += d
	}
	if n != s.Sampled || s.Open != 0 || s.Queued != 0 {
		r.t.Errorf("%d outcomes of %d sessions: %+v", n, s.Sampled, *s)
	}
	if got := int64(r.to.Distinct()); got < s.Exported || got > s.Exported+s.Unconfirmed {
		r.t.Errorf("%d received, %d exported, %d unconfirmed", got, s.Exported, s.Unconfirmed)
	}
}

func both(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{traces.GRPC, traces.HTTP} {
		t.Run(protocol[:4], func(t *testing.T) { test(t, protocol) })
	}
}
