package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

const ms = time.Millisecond

// leg is the account of a leg whose network has nothing the matter.
func leg() verdict.Peer {
	return verdict.Peer{Leg: relay.Leg{Known: true, RTT: ms, MinRTT: ms, SegmentsSent: 1000, Sent: 1_400_000, Received: 1_400_000, SegmentsReceived: 1000}}
}

// TestOf: one figure after the other decides.
func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *verdict.Sample)
		want   verdict.Kind
		why    string // a part of it
	}{
		"nothing":              {func(*verdict.Sample) {}, verdict.Idle, "no side waited for bytes in 1 s"},
		"slow answers":         {func(s *verdict.Sample) { s.Waits.ForB = 900 * ms }, verdict.Endpoint, "waited 90 % of 1 s for the endpoint: it sent nothing for 900 ms"},
		"slow questions":       {func(s *verdict.Sample) { s.Waits.ForA = 900 * ms }, verdict.Client, "it sent nothing for 900 ms"},
		"a shut window":        {func(s *verdict.Sample) { s.Waits.ToA, s.A.Busy, s.A.PeerWindow = 900*ms, 950*ms, 940*ms }, verdict.Client, "(its receive window was closed for 99 % of the time when"},
		"a window and BBR":     {func(s *verdict.Sample) { s.Waits.ToB, s.B.Busy, s.B.PeerWindow = 900*ms, 950*ms, 300*ms }, verdict.Endpoint, "it read nothing"},
		"a queue":              {func(s *verdict.Sample) { s.Waits.ToA, s.A.Busy, s.A.RTT = 900*ms, 950*ms, 80*ms }, verdict.ClientNetwork, "a round trip takes 80 ms, 1 ms without a queue"},
		"losses":               {func(s *verdict.Sample) { s.Waits.ToB, s.B.Busy, s.B.Retransmitted = 900*ms, 950*ms, 50 }, verdict.EndpointNetwork, "50 of 1000 packets were sent again"},
		"losses on the way":    {func(s *verdict.Sample) { s.Waits.ForB, s.B.OutOfOrder = 900*ms, 50 }, verdict.EndpointNetwork, "50 of 1000 packets arrived out of order"},
		"bytes on a thin link": {func(s *verdict.Sample) { s.A.Busy, s.A.RTT = time.Second, time.Second }, verdict.ClientNetwork, "a round trip takes 1 s"},
		"a vanished peer that was asked": { // a window between two retransmissions
			func(s *verdict.Sample) {
				s.Waits.ForB, s.B.Busy, s.B.Unanswered, s.B.Sent, s.B.SegmentsSent = time.Second, time.Second, 4*time.Second, 0, 0
			}, verdict.EndpointNetwork, "took 100 % of 1 s: nothing was acknowledged for 1 s",
		},
		"a vanished client": {func(s *verdict.Sample) { s.A.Busy, s.A.Unanswered = time.Second, 4*time.Second }, verdict.ClientNetwork, "nothing was acknowledged for 1 s"},
		"a vanished client whose window was full": { // the kernel's clock of it goes on
			func(s *verdict.Sample) {
				s.Waits.ToA, s.A.Busy, s.A.PeerWindow, s.A.Unanswered = time.Second, time.Second, time.Second, 4*time.Second
			}, verdict.ClientNetwork, "nothing was acknowledged for 1 s",
		},
		"a slow reader that has vanished": {func(s *verdict.Sample) {
			s.Waits.ToA, s.A.Busy, s.A.PeerWindow, s.A.Unanswered = time.Second, time.Second, time.Second, 100*ms
		}, verdict.Client, ""},
		"room on a clear path": {func(s *verdict.Sample) {
			s.Waits.ToA, s.A.Busy, s.A.RTT, s.A.MinRTT = 770*ms, 770*ms, 20*time.Microsecond, 20*time.Microsecond
		}, verdict.Client, "it read nothing"},
		"a delayed acknowledgment on a clear path": {func(s *verdict.Sample) {
			s.A.Busy, s.A.RTT, s.A.MinRTT = 980*ms, 30*time.Microsecond, 20*time.Microsecond
		}, verdict.Idle, ""},
		"a missing packet": {func(s *verdict.Sample) { s.A.Gap = true }, verdict.ClientNetwork, ""},
		"a queue on the way": {func(s *verdict.Sample) {
			s.Waits.ForB, s.Waits.PausesB, s.B.ReceiverRTT, s.B.SegmentsSent = 900*ms, 300, 100*ms, 1
		}, verdict.EndpointNetwork, "a round trip takes 100 ms"},
		"answers": {func(s *verdict.Sample) {
			s.Waits.ForB, s.Waits.PausesB, s.B.ReceiverRTT, s.B.SegmentsSent = 900*ms, 12, 1300*ms, 11
		}, verdict.Endpoint, ""},
		"pauses": {func(s *verdict.Sample) {
			s.Waits.ForB, s.Waits.PausesB, s.B.ReceiverRTT, s.B.SegmentsSent = 900*ms, 15, 60*ms, 1
		}, verdict.Endpoint, ""},
		"a long way": {func(s *verdict.Sample) {
			s.Waits.ForB, s.B.Busy, s.B.RTT, s.B.MinRTT, s.B.SegmentsSent = 900*ms, 900*ms, 50*ms, 50*ms, 18
		}, verdict.EndpointNetwork, ""},
		"pauses on a long way": {func(s *verdict.Sample) {
			s.Waits.ForA, s.Waits.PausesA, s.A.SegmentsSent, s.A.MinRTT, s.A.RTT, s.A.ReceiverRTT = 900*ms, 15, 0, 181*ms, 182*ms, 251*ms
		}, verdict.Client, ""},
		"small packets": {func(s *verdict.Sample) { // the estimate is the time of a whole window
			s.Waits.ForA, s.Waits.PausesA, s.A.SegmentsSent, s.A.ReceiverRTT, s.A.Received = 900*ms, 80, 0, 3882*ms, 217_000
		}, verdict.Client, ""},
		"a short queue, packet by packet": {func(s *verdict.Sample) { // BBR on a link of 10 Mbit/s
			s.Waits.ForB, s.Waits.PausesB, s.B.SegmentsSent, s.B.MinRTT, s.B.ReceiverRTT, s.B.Received, s.B.SegmentsReceived = 981*ms, 690, 0, 0, 6*ms, 1_164_192, 804
		}, verdict.EndpointNetwork, ""},
		"short pauses, packet by packet": {func(s *verdict.Sample) {
			s.Waits.ForB, s.Waits.PausesB, s.B.SegmentsSent, s.B.MinRTT, s.B.ReceiverRTT, s.B.Received, s.B.SegmentsReceived = 981*ms, 190, 0, 0, 6*ms, 190_000, 190
		}, verdict.Endpoint, ""},
		"bursts": {func(s *verdict.Sample) {
			s.Waits.ForB, s.Waits.PausesB, s.B.SegmentsSent, s.B.MinRTT, s.B.ReceiverRTT, s.B.Received, s.B.SegmentsReceived = 950*ms, 770, 0, 0, 9*ms, 10_133_064, 7040
		}, verdict.Endpoint, ""},
		"answers of a few packets": {func(s *verdict.Sample) {
			s.Waits.ForB, s.Waits.PausesB, s.B.Busy, s.B.RTT, s.B.MinRTT, s.B.ReceiverRTT = 995*ms, 15, 200*ms, 26*ms, 24*ms, 1571*ms
			s.B.SegmentsSent, s.B.SegmentsReceived, s.B.Received = 8, 32, 43_024
		}, verdict.Endpoint, ""},
		"a queue on a long way": {func(s *verdict.Sample) {
			s.Waits.ForA, s.Waits.PausesA, s.A.SegmentsSent, s.A.MinRTT, s.A.RTT, s.A.ReceiverRTT = 900*ms, 300, 0, 181*ms, 182*ms, 251*ms
		}, verdict.ClientNetwork, "a round trip takes 251 ms, 181 ms without a queue"},
		"a window on a long way": {func(s *verdict.Sample) {
			s.Waits.ToA, s.A.Busy, s.A.PeerWindow, s.A.MinRTT, s.A.RTT = 900*ms, 950*ms, 800*ms, 181*ms, 190*ms
		}, verdict.Client, "(its receive window was closed for 84 %"},
		"a delayed acknowledgment": {func(s *verdict.Sample) {
			s.Waits.ForB, s.B.Busy, s.B.RTT, s.B.SegmentsSent, s.B.Sent = 900*ms, 800*ms, 30*ms, 20, 4000
		}, verdict.Endpoint, ""},
		"delayed acknowledgments of large packets": {func(s *verdict.Sample) { // a client on this host that thinks
			s.Waits.ForA, s.Waits.PausesA, s.A.Busy, s.A.RTT, s.A.MinRTT = 944*ms, 21, 368*ms, 17*ms, 5*time.Microsecond
			s.A.SegmentsSent, s.A.Sent, s.A.SegmentsReceived, s.A.Received = 21, 389_195, 21, 389_195
		}, verdict.Client, "it sent nothing for 944 ms"},
		"no CPU":         {func(s *verdict.Sample) { s.Waits.ForB, s.Waits.PausesB, s.Starved = 900*ms, 20, 800*ms }, verdict.Proxy, "Penstock had no CPU for 800 ms of 1 s (upper bound)"},
		"one long wait":  {func(s *verdict.Sample) { s.Waits.ForB, s.Starved = 900*ms, 800*ms }, verdict.Endpoint, ""},
		"a busy loop":    {func(s *verdict.Sample) { s.Waits.Loop = 900 * ms }, verdict.Proxy, "bytes waited for a busy event loop for 900 ms of 1 s"},
		"a limit":        {func(s *verdict.Sample) { s.Waits.Bandwidth = 900 * ms }, verdict.Limit, "waited 90 % of 1 s for bandwidth"},
		"an unknown leg": {func(s *verdict.Sample) { s.Waits.ForB, s.B.Leg = 900*ms, relay.Leg{} }, verdict.Unknown, "did not report"},
		"a unix socket":  {func(s *verdict.Sample) { s.Waits.ForB, s.B = 900*ms, verdict.Peer{Local: true} }, verdict.Endpoint, ""},
		"CPU not known":  {func(s *verdict.Sample) { s.Waits.ForB, s.Starved = 900*ms, -1 }, verdict.Endpoint, ""},
		"no CPU, not in need": {func(s *verdict.Sample) {
			s.Waits.ToA, s.A.Busy, s.A.RTT, s.Starved = 900*ms, 950*ms, 80*ms, 400*ms
		}, verdict.ClientNetwork, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := verdict.Sample{Duration: time.Second, A: leg(), B: leg(), Late: -1}
			c.change(&s)
			v := verdict.Of(&s)
			if v.Kind != c.want || !strings.Contains(v.Why(), c.why) || v.Kind.Advice() == "" {
				t.Errorf("%v, %v: %s; want %v", v.Kind, v.Shares, v.Why(), c.want)
			}
			sum := 0.0
			for _, share := range v.Shares {
				sum += share
				if share < 0 {
					t.Errorf("shares %v", v.Shares)
				}
			}
			if sum < 0.99 || sum > 1.01 {
				t.Errorf("the shares add up to %v", sum)
			}
		})
	}
}

// TestWhyAddsUp: the times of a sentence are those of the share in it, also if a part of a wait counts elsewhere.
func TestWhyAddsUp(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *verdict.Sample)
		want   string
	}{
		"a part counts for the proxy": {
			func(s *verdict.Sample) { s.Waits.ForB, s.Waits.PausesB, s.Starved = 850*ms, 20, 200*ms },
			"waited 65 % of 1 s for the endpoint: it sent nothing for 650 ms",
		},
		"more than the process waited for": {
			func(s *verdict.Sample) {
				s.Waits.ForB, s.Waits.PausesB, s.Waits.Loop, s.Starved = 500*ms, 20, 300*ms, 900*ms
			},
			"Penstock had no CPU for 500 ms of 1 s (upper bound), and bytes waited for a busy event loop for 300 ms of 1 s",
		},
		"a part counts for the network": {
			func(s *verdict.Sample) {
				s.Waits.ForB, s.B.Busy, s.B.MinRTT, s.B.SegmentsSent = 900*ms, 400*ms, 10*ms, 20
			},
			"waited 70 % of 1 s for the endpoint: it sent nothing for 700 ms",
		},
		"bytes and room": {
			func(s *verdict.Sample) {
				s.Waits.ForA, s.Waits.ToA, s.A.Busy, s.A.PeerWindow = 500*ms, 400*ms, 400*ms, 400*ms
			},
			"waited 90 % of 1 s for the client: it sent nothing for 500 ms, it read nothing for 400 ms",
		},
		"longer than the time": {
			func(s *verdict.Sample) { s.Waits.ForB = 2 * time.Second }, "waited 100 % of 1 s for the endpoint: it sent nothing for 1 s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := verdict.Sample{Duration: time.Second, A: leg(), B: leg(), Late: -1}
			c.change(&s)
			v := verdict.Of(&s)
			if got := v.Why(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestTheProxyIsNotBlamed: while CPUs are short, this process has not kept a session waiting for longer than its
// questions can have waited for it, whatever it waited for in all.
func TestTheProxyIsNotBlamed(t *testing.T) {
	for name, c := range map[string]struct {
		waits         relay.Waits
		starved, late time.Duration
		over          time.Duration
		least, most   float64 // share of the proxy
	}{
		// As measured beside busy programs: 30 clients that think for 50 ms, an endpoint that answers after 2 ms. The
		// clients had waited for all answers for 11.9, 9.7 and 29 % of the time.
		"two busy programs": {
			relay.Waits{ForA: 3692 * ms, ForB: 274 * ms, PausesA: 60, PausesB: 61},
			1642 * ms, 2757 * time.Microsecond, 4 * time.Second, 0.05, 0.119,
		},
		"three busy programs": {
			relay.Waits{ForA: 3806 * ms, ForB: 172 * ms, PausesA: 52, PausesB: 52},
			1394 * ms, 2275 * time.Microsecond, 4 * time.Second, 0.03, 0.097,
		},
		"a twentieth of a CPU": {
			relay.Waits{ForA: 3654 * ms, ForB: 444 * ms, PausesA: 51, PausesB: 50},
			2161 * ms, 15624 * time.Microsecond, 4 * time.Second, 0.1, 0.29,
		},
		"answered at once": {
			relay.Waits{ForA: 3950 * ms, ForB: 10 * ms, PausesA: 50, PausesB: 50},
			2 * time.Second, 20 * ms, 4 * time.Second, 0, 0.006,
		},
		"a client that sends slowly": {
			relay.Waits{ForA: 3900 * ms, PausesA: 40}, 2 * time.Second, 2 * ms, 4 * time.Second, 0, 0.05,
		},
		"one session, and the tenth of a CPU": { // of a fault that was made
			relay.Waits{ForA: 450 * ms, ForB: 540 * ms, PausesA: 10, PausesB: 10}, 900 * ms, 41 * ms, time.Second, 0.8, 0.91,
		},
		"one stream, and the tenth of a CPU": {
			relay.Waits{ForB: 950 * ms, PausesB: 10}, 900 * ms, 41 * ms, time.Second, 0.8, 0.91,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := verdict.Sample{Duration: c.over, A: leg(), B: leg(), Waits: c.waits, Starved: c.starved, Late: c.late}
			s.A.SegmentsSent, s.B.SegmentsSent = 0, 0
			v := verdict.Of(&s)
			if got := v.Shares[verdict.Proxy]; got < c.least || got > c.most {
				t.Errorf("the proxy has %.3f, want %.3f to %.3f; %v", got, c.least, c.most, v.Shares)
			}
		})
	}
}

// TestYoung: of a time that is too short nobody is blamed. It is known if it is a part of a longer one, or was counted by the lane.
func TestYoung(t *testing.T) {
	s := verdict.Sample{Duration: 46 * ms, A: leg(), B: leg(), Late: -1}
	s.A.Busy, s.A.RTT, s.A.MinRTT = 45*ms, 5730*time.Microsecond, 10*time.Microsecond // as seen beside busy programs
	if v := verdict.Of(&s); !v.Young || v.Kind != verdict.Unknown || v.Shares[verdict.Unknown] != 1 || !strings.Contains(v.Why(), "too short") {
		t.Errorf("%v, %v: %s", v.Kind, v.Shares, v.Why())
	}
	if times := verdict.TimesOf(&s); times[verdict.ClientNetwork] == 0 {
		t.Errorf("%v", times)
	}
	s.Duration, s.A.Busy = verdict.Least, verdict.Least
	if v := verdict.Of(&s); v.Young || v.Kind != verdict.ClientNetwork {
		t.Errorf("%v, %v: %s", v.Kind, v.Shares, v.Why())
	}
}

// TestOfNothing: a session that has lasted for no time has no verdict.
func TestOfNothing(t *testing.T) {
	v := verdict.Of(&verdict.Sample{})
	if v.Kind != verdict.Unknown || v.Shares != [verdict.Kinds]float64{} || v.Why() == "" {
		t.Errorf("%v, %v, %q", v.Kind, v.Shares, v.Why())
	}
}

// TestSince: of two samples, sums are the difference, and a figure that was unknown once is unknown.
func TestSince(t *testing.T) {
	before := verdict.Sample{Duration: time.Second, A: leg(), B: verdict.Peer{}, Waits: relay.Waits{ForA: 300 * ms, ForB: 500 * ms}, Starved: -1}
	after := verdict.Sample{Duration: 3 * time.Second, A: leg(), B: leg(), Waits: relay.Waits{ForA: 200 * ms, ForB: 900 * ms}, Starved: time.Second}
	after.A.Received += 1000
	after.A.Busy, after.A.RTT = time.Second, 7*ms
	got := after.Since(&before)
	want := verdict.Sample{Duration: 2 * time.Second, Waits: relay.Waits{ForB: 400 * ms}, Starved: -1, Late: -1}
	want.A.Leg = relay.Leg{Known: true, RTT: 7 * ms, MinRTT: ms, Received: 1000, Busy: time.Second}
	if got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestOfAllocatesNothing: judging allocates nothing.
func TestOfAllocatesNothing(t *testing.T) {
	s := verdict.Sample{Duration: time.Second, A: leg(), B: leg(), Waits: relay.Waits{ToA: 500 * ms}}
	if n := testing.AllocsPerRun(100, func() { verdict.Of(&s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
