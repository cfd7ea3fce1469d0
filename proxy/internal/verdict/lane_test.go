package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/verdict"
)

// laneView is that of a session in the lane, whose network has nothing the matter.
func laneView() *lane.View {
	end := lane.End{RoundTrip: ms, LeastRoundTrip: ms, Payload: 1_400_000, Segments: 1000}
	return &lane.View{Time: time.Second, Ends: [2]lane.End{end, end}}
}

// TestOfLane: one figure of the lane after the other decides.
func TestOfLane(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *lane.End)
		want   verdict.Kind
		why    string // a part of it
	}{
		"nothing":        {func(_, _ *lane.End) {}, verdict.Idle, "no side waited for bytes in 1 s"},
		"slow answers":   {func(_, b *lane.End) { b.Waits.Answer, b.Waits.Answers = 900*ms, 5 }, verdict.Endpoint, "it sent nothing for 895 ms"},
		"slow questions": {func(a, _ *lane.End) { a.Waits.More, a.Waits.Pauses = 900*ms, 5 }, verdict.Client, "it sent nothing for 900 ms"},
		"a long way": {func(a, _ *lane.End) {
			a.Waits.Answer, a.Waits.Answers, a.RoundTrip, a.LeastRoundTrip = 900*ms, 18, 50*ms, 50*ms
		}, verdict.ClientNetwork, "a round trip takes 50 ms"},
		"answers of a long way": {func(_, b *lane.End) {
			b.Waits.Answer, b.Waits.Answers, b.RoundTrip, b.LeastRoundTrip = 900*ms, 4, 50*ms, 50*ms
		}, verdict.Endpoint, "it sent nothing for 700 ms"},
		"a shut window":    {func(a, _ *lane.End) { a.Waits.Window = 900 * ms }, verdict.Client, "it read nothing for 900 ms (its receive window was closed)"},
		"a window and BBR": {func(a, b *lane.End) { a.Waits.Window, b.Waits.More, b.Waits.Pauses = 200*ms, 700*ms, 300 }, verdict.Client, "it read nothing"},
		"a window full of a queue": {func(a, b *lane.End) {
			a.Waits.Window, a.RoundTrip = 900*ms, 200*ms
		}, verdict.ClientNetwork, "a round trip takes 200 ms"},
		"the same, of a window that has grown": {func(a, b *lane.End) {
			a.Waits.Window, a.RoundTrip, a.WidestWindow = 900*ms, 200*ms, 500_000
		}, verdict.ClientNetwork, "a round trip takes 200 ms"},
		"a slow reader that acknowledges late": {func(a, b *lane.End) {
			a.Waits.Window, a.RoundTrip, a.WidestWindow = 900*ms, 200*ms, 600_000
		}, verdict.Client, "it read nothing for 900 ms"},
		"a window on a long way, acknowledged late": {func(a, b *lane.End) {
			a.Waits.Window, a.RoundTrip, a.LeastRoundTrip = 900*ms, 220*ms, 100*ms
		}, verdict.Client, "it read nothing for 900 ms"},
		"a narrow window and BBR": {func(a, b *lane.End) {
			a.Waits.Narrow, a.Waits.Ack, a.Waits.Flight, a.RoundTrip = 700*ms, 600*ms, 300*ms, 30*ms
		}, verdict.Client, "it read nothing for 900 ms"},
		"a narrow window and pauses": {func(a, b *lane.End) {
			a.Waits.Narrow, b.Waits.More, b.Waits.Pauses = 900*ms, 900*ms, 7
		}, verdict.Client, "it read nothing for 900 ms"},
		"a narrow window now and then": {func(a, b *lane.End) {
			a.Waits.Narrow, b.Waits.More, b.Waits.Pauses = 400*ms, 900*ms, 7
		}, verdict.Endpoint, "it sent nothing for 900 ms"},
		"a narrow window and losses": {func(a, b *lane.End) {
			a.Waits.Narrow, a.Waits.Again, b.Lost = 900*ms, 900*ms, 50
		}, verdict.ClientNetwork, "50 of 1000 packets were sent again"},
		"a narrow window of one that has vanished": {func(a, b *lane.End) {
			a.Waits.Narrow, a.Waits.Again, b.Lost = 900*ms, 900*ms, 3
		}, verdict.ClientNetwork, ""},
		"a narrow window and answers": {func(a, b *lane.End) {
			a.Waits.Narrow, b.Waits.Answer, b.Waits.Answers = 900*ms, 900*ms, 5
		}, verdict.Endpoint, "it sent nothing for 895 ms"},
		"losses behind the lane": {func(a, b *lane.End) { a.Waits.Again, b.Lost = 900*ms, 50 }, verdict.ClientNetwork, "50 of 1000 packets were sent again"},
		"losses before it":       {func(_, b *lane.End) { b.Waits.Gap, b.BehindGap = 900*ms, 50 }, verdict.EndpointNetwork, "50 of 1000 packets arrived out of order"},
		"pauses of losses":       {func(_, b *lane.End) { b.Waits.More, b.Waits.Pauses, b.BehindGap = 900*ms, 40, 50 }, verdict.EndpointNetwork, ""},
		"acknowledgements":       {func(_, b *lane.End) { b.Waits.Ack, b.RoundTrip = 900*ms, 30*ms }, verdict.EndpointNetwork, "a round trip takes 30 ms, 1 ms without a queue"},
		"packets in a queue":     {func(_, b *lane.End) { b.Waits.Flight, b.RoundTrip = 900*ms, 30*ms }, verdict.EndpointNetwork, ""},
		"packets in no queue":    {func(a, b *lane.End) { b.Waits.Flight = 900 * ms }, verdict.Client, "it sent nothing"},
		"a queue of their own": {func(a, b *lane.End) {
			b.Waits.More, b.Waits.Pauses, b.DataRoundTrip, a.Segments = 900*ms, 300, 100*ms, 1
		}, verdict.EndpointNetwork, "a round trip takes 100 ms"},
		"pauses without a queue":  {func(a, b *lane.End) { b.Waits.More, b.Waits.Pauses, b.DataRoundTrip, a.Segments = 900*ms, 15, 60*ms, 1 }, verdict.Endpoint, ""},
		"one packet of a million": {func(a, b *lane.End) { b.Waits.Answer, b.Waits.Answers, a.Lost = 900*ms, 5, 1 }, verdict.Endpoint, ""},
	} {
		view := laneView()
		c.change(&view.Ends[0], &view.Ends[1])
		s := verdict.OfLane(view, verdict.Times{})
		v := verdict.Of(&s)
		sum := 0.0
		for _, share := range v.Shares {
			sum += share
		}
		if v.Kind != c.want || !strings.Contains(v.Why(), c.why) || sum < 0.999 || sum > 1.001 {
			t.Errorf("%s: %v (%s), shares %v, want %v (%s)", name, v.Kind, v.Why(), v.Shares, c.want, c.why)
		}
	}
}

// TestOfLaneSince: the time in user space counts as it was judged, and only that of the window.
func TestOfLaneSince(t *testing.T) {
	user := verdict.Sample{Duration: time.Second, A: leg(), B: leg(), Starved: -1}
	user.Waits.ForB = 900 * ms
	before := verdict.TimesOf(&user)
	view := laneView()
	view.Ends[0].Waits.Window = 800 * ms
	all := verdict.OfLane(view, before)
	if v := verdict.Of(&all); v.Kind != verdict.Endpoint || all.Duration != 2*time.Second || !near(v.Shares[verdict.Endpoint], 0.45) || !near(v.Shares[verdict.Client], 0.4) {
		t.Errorf("all of it: %v of %v", v.Shares, all.Duration)
	}
	part := all.Since(&user)
	if v := verdict.Of(&part); v.Kind != verdict.Client || !near(v.Shares[verdict.Client], 0.8) || v.Shares[verdict.Endpoint] != 0 {
		t.Errorf("since it was in user space: %v of %v", v.Shares, part.Duration)
	}
	view.Time += time.Second
	view.Ends[1].Waits.Answer, view.Ends[1].Waits.Answers = 700*ms, 1
	later := verdict.OfLane(view, before)
	part = later.Since(&all)
	if v := verdict.Of(&part); part.Duration != time.Second || !near(v.Shares[verdict.Endpoint], 0.7) || v.Shares[verdict.Client] != 0 {
		t.Errorf("in the lane: %v of %v", v.Shares, part.Duration)
	}
}

// TestSinceItCameBack: the silence of a session in the lane since its last packet counts as idle time once it is back.
func TestSinceItCameBack(t *testing.T) {
	silent, back := laneView(), laneView()
	silent.Time = 20 * time.Second // with ten since the last packet
	back.Time = 10 * time.Second
	back.Ends[0].Waits.More, back.Ends[0].Waits.Pauses = 100*ms, 1
	before := verdict.OfLane(silent, verdict.Times{verdict.Idle: 5 * time.Second})
	after := verdict.OfLane(back, verdict.Times{verdict.Idle: 15 * time.Second, verdict.Endpoint: time.Second})
	s := after.Since(&before)
	if v := verdict.Of(&s); s.Duration != time.Second || !near(v.Shares[verdict.Endpoint], 1) || !near(v.Shares[verdict.Idle], 0) {
		t.Errorf("%v: %v", s.Duration, v.Shares)
	}
}

func near(got, want float64) bool { return got > want-0.01 && got < want+0.01 }
