package health_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/health"
	clients "github.com/penstock/penstock/proxy/internal/source"
)

// A judged is an endpoint with its OutlierMonitor and its Breaker.
type judged struct {
	*clock
	keeper  *health.Scheduler
	member  *health.OutlierMonitor
	breaker *health.Breaker
}

const judgedWindow = 10 * time.Second

func newJudged(consecutive int, percent float64, volume int) *judged {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: consecutive, FailurePercentage: percent, Window: judgedWindow, MinVolume: volume,
		BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1,
	})
	return &judged{c, k, o.Add("a", new(target)), health.NewBreaker(k, "a", nil, &health.BreakerConfig{
		FailurePercentage: percent, Window: judgedWindow, MinVolume: volume, Open: time.Second, TrialConnections: 2,
	})}
}

// comes reports the outcome of a connection.
func (j *judged) comes(from health.Source, o health.Outcome) {
	now := j.Now()
	p, _ := j.breaker.Begin()
	if o != health.ConnectFailed {
		j.breaker.Reached()
		j.member.Reached(now)
	}
	j.member.ReportFrom(from, o, now)
	j.breaker.ReportFrom(p, from, o, now)
	j.breaker.End(o != health.ConnectFailed)
}

func (j *judged) ejected() bool {
	_, out := j.member.Ejected()
	return out
}

// bad reports whether the endpoint is ejected, or its breaker open.
func (j *judged) bad() bool { return j.ejected() || j.breaker.State() != health.Closed }

// clientAt is a client of TCP.
func clientAt(a netip.Addr) clients.Source { return clients.TCP(netip.AddrPortFrom(a, 1)) }

// source returns the n-th of some sources.
func source(n int) health.Source {
	return health.SourceOf(clientAt(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})), [2]int{})
}

var doubtful = []health.Outcome{health.Rejected, health.HungUp, health.Silent, health.Lost}

// TestOneSourceAlone: one source fails any number of times, even if its failures are not
// sampled, while others are served, some of which fail, too. There is no ejection.
func TestOneSourceAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newJudged(rapid.IntRange(3, 6).Draw(t, "consecutive"), 70, 20)
		others := rapid.IntRange(1, 20).Draw(t, "others")
		first := rapid.IntRange(8, 60).Draw(t, "that are of the sample at once")
		dice, served := dice(t), 0
		serve := func() {
			served++
			j.comes(source(1+dice.IntN(others)), health.OK)
		}
		serve()
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			j.advance(time.Duration(dice.Int64N(int64(judgedWindow))))
			j.keeper.Step()
			for i := range dice.IntN(100) {
				from := source(0)
				if i >= first && dice.IntN(4) > 0 {
					from = health.UnsampledSource
				}
				j.comes(from, doubtful[dice.IntN(3)])
				if j.bad() {
					t.Fatalf("ejected %v, breaker %v, by one source", j.ejected(), j.breaker.State())
				}
			}
			if others > 1 && served >= 5 && dice.IntN(3) == 0 {
				served = 0
				j.comes(source(1+dice.IntN(others)), doubtful[dice.IntN(3)])
			}
			serve()
		}
	})
}

// TestFewSources: a few sources that are never served fail much more often than others are served: there is no ejection, and
// the breaker stays closed.
func TestFewSources(t *testing.T) {
	t.Parallel()
	for hostile := 1; hostile <= 4; hostile++ {
		for _, others := range []int{1, 2, 30} {
			j := newJudged(5, 60, 20)
			for i := range 50 {
				j.comes(source(100+i%others), health.OK)
				for k := range 100 {
					if j.comes(source(k%hostile), doubtful[k%3]); j.bad() {
						t.Fatalf("%d sources fail, %d are served: ejected %v, breaker %v", hostile, others, j.ejected(), j.breaker.State())
					}
				}
				j.advance(judgedWindow / 10)
				j.keeper.Step()
			}
		}
	}
}

// TestFewSourcesSometimesServed: a few sources that are served now and then, and fail most of the time, do not open a breaker.
func TestFewSourcesSometimesServed(t *testing.T) {
	t.Parallel()
	j := newJudged(0, 60, 20)
	for i := range 500 {
		j.comes(source(100), health.OK)
		for k := range 3 {
			o := doubtful[k]
			if (i+k)%5 == 0 {
				o = health.OK
			}
			if j.comes(source(k), o); j.bad() {
				t.Fatalf("after %d rounds: ejected %v, breaker %v", i, j.ejected(), j.breaker.State())
			}
			j.comes(source(k), doubtful[k])
		}
		j.advance(judgedWindow / 100)
		j.keeper.Step()
	}
}

// TestStranger: clients of other sources pass a breaker that a few sources have opened, until they fail themselves. They do not
// pass a breaker that was opened by a failure that no client can have caused.
func TestStranger(t *testing.T) {
	t.Parallel()
	opened := func(from func(i int) health.Source, o health.Outcome) *health.Breaker {
		j := newJudged(0, 60, 20)
		for i := range 40 {
			j.comes(from(i), o)
		}
		if j.breaker.State() != health.Open {
			t.Fatalf("it is %v", j.breaker.State())
		}
		return j.breaker
	}
	one := func(int) health.Source { return source(0) }
	b := opened(one, health.Rejected)
	if b.Stranger(source(0)) {
		t.Error("the source that has failed passes")
	}
	for i := 1; i < 8; i++ {
		if !b.Stranger(source(i)) {
			t.Fatalf("source %d does not pass", i)
		}
		p, _ := b.Pass()
		b.ReportFrom(p, source(i), health.Rejected, 0)
		b.End(false)
	}
	if b.Stranger(source(8)) {
		t.Error("eight sources have failed, and another one passes")
	}
	if opened(func(i int) health.Source { return source(i) }, health.Silent).Stranger(source(100)) {
		t.Error("many sources have failed, and another one passes")
	}
	if opened(func(int) health.Source { return health.NoSource }, health.ConnectFailed).Stranger(source(100)) {
		t.Error("it cannot be connected to, and a client passes")
	}
}

// TestOneSourceIsAll: nothing changes if all clients come from one source.
func TestOneSourceIsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		consecutive := rapid.IntRange(0, 4).Draw(t, "consecutive")
		percent := float64(rapid.SampledFrom([]int{0, 30, 60, 100}).Draw(t, "percent"))
		told, plain := newJudged(consecutive, percent, 4), newJudged(consecutive, percent, 4)
		dice := dice(t)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			d := time.Duration(0)
			if dice.IntN(5) == 0 {
				d = time.Duration(dice.Int64N(int64(judgedWindow)))
			}
			o := health.Outcome(dice.IntN(7))
			for _, j := range []*judged{told, plain} {
				j.advance(d)
				j.keeper.Step()
				p, r := j.breaker.Begin()
				if r != health.Granted {
					continue
				}
				if o != health.ConnectFailed {
					j.breaker.Reached()
					j.member.Reached(j.Now())
				}
				if j == plain {
					j.member.Report(o, j.Now())
					j.breaker.Report(p, o, j.Now())
				} else {
					j.member.ReportFrom(source(0), o, j.Now())
					j.breaker.ReportFrom(p, source(0), o, j.Now())
				}
				j.breaker.End(o != health.ConnectFailed)
			}
			if told.ejected() != plain.ejected() || told.breaker.State() != plain.breaker.State() {
				t.Fatalf("of one source: ejected %v, breaker %v; without sources %v, %v",
					told.ejected(), told.breaker.State(), plain.ejected(), plain.breaker.State())
			}
		}
	})
}

// TestSeveralSourcesFail: an endpoint that fails for all, or for most, is detected at once,
// whatever was before.
func TestSeveralSourcesFail(t *testing.T) {
	for _, sources := range []int{2, 3, 8, 9, 50} {
		row, share := newJudged(5, 0, 4), newJudged(0, 60, 4)
		for i := range 20 {
			row.comes(source(i%sources), health.OK)
			share.comes(source(i%sources), health.OK)
		}
		for i := 0; !row.bad(); i++ {
			if row.comes(source(i%sources), health.Rejected); i > 10 {
				t.Fatalf("%d sources: not ejected after %d failures", sources, i)
			}
		}
		for i := 0; !share.ejected() || share.breaker.State() != health.Open; i++ {
			o := health.Silent
			if i%10 >= 7 {
				o = health.OK
			}
			if share.comes(source(i%sources), o); i > 300 {
				t.Fatalf("%d sources: %v, %v, though 7 of 10 connections fail", sources, share.ejected(), share.breaker.State())
			}
		}
	}
}

// TestWitnesses checks which outcomes of other sources count as evidence.
func TestWitnesses(t *testing.T) {
	for name, c := range map[string]struct {
		before func(j *judged)
		o      health.Outcome
		bad    bool
	}{
		"none":                        {func(*judged) {}, health.Rejected, true},
		"itself":                      {func(j *judged) { j.comes(source(0), health.OK) }, health.Rejected, true},
		"served":                      {func(j *judged) { j.comes(source(1), health.OK) }, health.Rejected, false},
		"served, silent":              {func(j *judged) { j.comes(source(1), health.OK) }, health.Silent, false},
		"served, hung up on":          {func(j *judged) { j.comes(source(1), health.OK) }, health.HungUp, false},
		"served, it is not reached":   {func(j *judged) { j.comes(source(1), health.OK) }, health.ConnectFailed, true},
		"served, it resets by itself": {func(j *judged) { j.comes(source(1), health.OK) }, health.Reset, true},
		"not known whom":              {func(j *judged) { j.comes(health.UnsampledSource, health.OK) }, health.Rejected, true},
		"just within the window": {func(j *judged) {
			j.comes(source(1), health.OK)
			j.advance(judgedWindow - 1)
		}, health.Rejected, false},
		"too long ago": {func(j *judged) {
			j.comes(source(1), health.OK)
			j.advance(judgedWindow)
		}, health.Rejected, true},
		"heard, and not at its end": {func(j *judged) {
			j.member.GotData(source(1), j.Now())
			j.breaker.GotData(source(1), j.Now())
		}, health.Rejected, false},
		"served, and then itself": {func(j *judged) {
			j.comes(source(1), health.OK)
			j.comes(source(0), health.OK)
		}, health.Rejected, false},
		"served between others that were not reached": {func(j *judged) {
			for range 3 {
				for range 6 {
					j.comes(source(1), health.OK)
				}
				for range 3 {
					j.comes(health.NoSource, health.ConnectFailed)
				}
			}
		}, health.Rejected, false},
		"served long ago, and once since": {func(j *judged) {
			for range 50 {
				j.comes(source(1), health.OK)
				j.comes(source(0), health.Rejected)
			}
			for range 4 {
				j.advance(judgedWindow / 2)
				j.comes(source(0), health.Rejected)
			}
			j.comes(source(1), health.OK)
			for range 5 {
				j.comes(source(0), health.Rejected)
				j.comes(source(1), health.Rejected)
			}
		}, health.Rejected, true},
		"fails as well": {func(j *judged) {
			j.comes(source(1), health.OK)
			for range 5 {
				j.comes(source(1), health.Rejected)
			}
		}, health.Rejected, true},
		"there are others that are not reached": {func(j *judged) {
			j.comes(source(1), health.OK)
			for range 5 {
				j.comes(health.NoSource, health.ConnectFailed)
			}
		}, health.Rejected, true},
	} {
		for _, j := range []*judged{newJudged(5, 0, 4), newJudged(0, 60, 4)} {
			c.before(j)
			for range 20 {
				if !j.bad() {
					j.comes(source(0), c.o)
				}
			}
			if j.bad() != c.bad {
				t.Errorf("%s: ejected %v, breaker %v", name, j.ejected(), j.breaker.State())
			}
		}
	}
}

// TestNotKnownWhose: a source with known failures does not account for all the failures of
// unknown ones.
func TestNotKnownWhose(t *testing.T) {
	j := newJudged(0, 60, 20)
	j.comes(source(1), health.OK)
	j.comes(source(1), health.Rejected)
	for range 40 {
		j.comes(health.UnsampledSource, health.Rejected)
	}
	if j.bad() {
		t.Errorf("ejected %v, breaker %v, though the sample does not identify the sources", j.ejected(), j.breaker.State())
	}
	for range 5 {
		j.comes(source(0), health.Rejected)
	}
	if j.bad() {
		t.Errorf("ejected %v, breaker %v, by one source", j.ejected(), j.breaker.State())
	}
}

// TestReturnedBeginsAnew: failures of others before an ejection, or while a breaker was open,
// do not let one source alone cause the next one.
func TestReturnedBeginsAnew(t *testing.T) {
	j := newJudged(0, 60, 4)
	for i := range 30 {
		j.comes(source(i%2), health.OK)
	}
	for i := 0; i < 100 && (!j.ejected() || j.breaker.State() == health.Closed); i++ {
		j.comes(source(i%2), health.Rejected)
	}
	j.advance(time.Second)
	j.keeper.Step()
	for range 2 {
		j.comes(source(1), health.OK)
	}
	if j.bad() {
		t.Fatalf("ejected %v, breaker %v", j.ejected(), j.breaker.State())
	}
	for range 20 {
		j.comes(source(0), health.Rejected)
	}
	if j.bad() {
		t.Errorf("ejected %v, breaker %v, by one source", j.ejected(), j.breaker.State())
	}
}

// TestTrialsOfOneSource: one source does not keep a breaker open while another is served, but
// does while it is alone.
func TestTrialsOfOneSource(t *testing.T) {
	for _, served := range []bool{false, true} {
		j := newJudged(0, 60, 4)
		for range 20 {
			if j.breaker.State() == health.Closed {
				j.comes(health.NoSource, health.ConnectFailed)
			}
		}
		j.advance(time.Second)
		j.keeper.Step()
		if served {
			j.comes(source(1), health.OK)
		}
		j.comes(source(0), health.Rejected)
		if want := map[bool]health.State{false: health.Open, true: health.HalfOpen}[served]; j.breaker.State() != want {
			t.Errorf("after a trial of one source, another served is %v: %v, want %v", served, j.breaker.State(), want)
		}
		if served {
			if j.comes(source(1), health.OK); j.breaker.State() != health.Closed {
				t.Errorf("the trial did not give its place back: %v", j.breaker.State())
			}
		}
	}
}

// TestSourcesAtOnce: one source fails on several goroutines while another is served.
func TestSourcesAtOnce(t *testing.T) {
	j := newJudged(5, 60, 4)
	j.comes(source(1), health.OK)
	together(4, func(i int) {
		for range 20_000 {
			if i == 0 {
				j.comes(source(1+rand.IntN(50)), health.OK)
			} else {
				j.comes(source(0), health.Rejected)
			}
		}
	})
	if j.bad() {
		t.Errorf("ejected %v, breaker %v", j.ejected(), j.breaker.State())
	}
}

// TestManySourcesTakeNoMore: the samples take the same memory for any number of sources, and
// none for connections that are not of the sample.
func TestManySourcesTakeNoMore(t *testing.T) {
	j := newJudged(1<<20, 99.9999, 4)
	if n := testing.AllocsPerRun(100, func() { j.comes(health.UnsampledSource, health.OK) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	j.comes(source(0), health.Rejected)
	n := 0
	if n := testing.AllocsPerRun(10_000, func() {
		n++
		j.comes(source(n), doubtful[n%3])
		j.comes(source(n), health.OK)
	}); n != 0 {
		t.Errorf("%v allocations for a source", n)
	}
}

func TestSourceOf(t *testing.T) {
	of := func(a string, bits ...int) health.Source {
		var b [2]int
		copy(b[:], bits)
		if a == "" {
			return health.SourceOf(clients.Source{}, b)
		}
		return health.SourceOf(clientAt(netip.MustParseAddr(a)), b)
	}
	for _, c := range []struct {
		a, b string
		bits []int
		same bool
	}{
		{"10.0.0.1", "10.0.0.1", nil, true},
		{"10.0.0.1", "::ffff:10.0.0.1", nil, true},
		{"10.0.0.1", "10.0.0.2", nil, false},
		{"10.0.0.1", "10.0.0.2", []int{24, 64}, true},
		{"10.0.0.1", "10.0.1.2", []int{24, 64}, false},
		{"2001:db8::1", "2001:db8::ffff:0:0:1", nil, true},
		{"2001:db8::1", "2001:db8:0:1::1", nil, true}, // the same site
		{"2001:db8::1", "2001:db8:1::1", nil, false},
		{"2001:db8::1", "2001:db8:1::1", []int{0, 32}, true},
		{"2001:db8::1", "2001:db8:0:1::1", []int{0, 48}, true},
		{"2001:db8::1", "2001:db8::2", []int{0, 128}, true},
		{"fe80::1%a", "fe80::1%b", nil, true},
		{"", "", nil, true},
		{"", "0.0.0.0", nil, false},
	} {
		if a, b := of(c.a, c.bits...), of(c.b, c.bits...); (a == b) != c.same || a == health.UnsampledSource || a == health.NoSource {
			t.Errorf("%q, %q by %v: %x, %x", c.a, c.b, c.bits, a, b)
		}
	}
}

// TestSourceOfUnix: a user is one source, and differs from any address.
func TestSourceOfUnix(t *testing.T) {
	of := func(uid uint32, pid int32) health.Source {
		return health.SourceOf(clients.Unix(clients.Credentials{UID: uid, GID: uint32(pid), PID: pid}), [2]int{})
	}
	if of(7, 1) != of(7, 2) || of(7, 1) == of(8, 1) || of(0, 1) == health.SourceOf(clientAt(netip.IPv4Unspecified()), [2]int{}) {
		t.Error("sources are confused")
	}
	if of(0, 1) < 1<<63 {
		t.Error("a user is none of the sources that are named")
	}
}

// TestBlame: the worst source of many is found, and its share is never underestimated.
func TestBlame(t *testing.T) {
	var b health.Blame
	if from, part := b.Worst(); from != health.UnsampledSource || part != 0 {
		t.Errorf("of nothing: %v, %v", from, part)
	}
	const bad = health.Source(1<<63 | 7)
	for i := range 1000 {
		b.Note(health.UnsampledSource)
		b.Note(health.Source(1<<63 | 100 + uint64(i)))
		b.Note(bad)
	}
	if from, part := b.Worst(); from != bad || part < 0.5 || part > 0.75 {
		t.Errorf("%v, %v", from, part)
	}
	b.Forget()
	if from, _ := b.Worst(); from != health.UnsampledSource {
		t.Errorf("forgotten: %v", from)
	}
}
