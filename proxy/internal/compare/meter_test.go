package compare

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hostile are answers that cost much for their bytes, by framing.
func hostile(t rapid.TB) map[string]hostileAnswers {
	repeat := func(s string) []byte { return bytes.Repeat([]byte(s), (1<<20)/len(s)) }
	masked := func(p string) Config { return Config{Framing: Lines, Mask: []Mask{{Pattern: p}}} }
	bomb, small := newPeer(t), newPeer(t)
	for i := 1; bomb.out.Len() < 1<<20; i += 2 {
		bomb.head(uint32(i), true, slices.Repeat([]string{"a", strings.Repeat("v", 3000)}, 4)...)
	}
	small.head(1, false, ":status", "200")
	for small.out.Len() < 1<<20 {
		small.ok(small.f.WriteData(1, false, make([]byte, 0x3ffc)))
	}
	return map[string]hostileAnswers{
		"lines of 1":    {Config{Framing: Lines}, repeat("\n")},
		"lines of 64":   {Config{Framing: Lines}, repeat("a line of sixty-four bytes, which is how long some lines can be\n")},
		"frames of 0":   {Config{Framing: LengthPrefixed, Length: Length{Width: 1}}, repeat("\x00")},
		"grpc bomb":     {Config{Framing: GRPC}, bomb.out.Bytes()},
		"grpc messages": {Config{Framing: GRPC}, small.out.Bytes()},
		"digits":        {masked("[0-9]{2,90}x"), repeat("1")},
		"letters":       {masked("[0-9]+ms"), repeat("+xxxxxxx")},
	}
}

type hostileAnswers struct {
	c       Config
	answers []byte
}

// BenchmarkCost measures what hostile answers cost, beside the most that the meter takes for them: ns/byte is below
// worst/byte, or worstByte is too low.
func BenchmarkCost(b *testing.B) {
	for name, a := range hostile(b) {
		b.Run(name, func(b *testing.B) {
			plan, err := NewPlan(a.c)
			must(b, err)
			r, budget, n := NewReport(), NewBudget(TotalBytes), 0
			begin := cpu(b)
			for b.Loop() {
				s := plan.NewSession(budget, r)
				s.forget()
				for p := a.answers; len(p) > 0; p = p[min(512, len(p)):] {
					piece := p[:min(512, len(p))]
					s.Primary(piece, at(0))
					s.Shadow(piece, at(0))
					n += 2 * len(piece)
				}
				if s.Stopped() != Going {
					b.Fatal(s.Stopped())
				}
				s.End(true, at(0))
			}
			b.ReportMetric(float64(cpu(b)-begin)/float64(n), "ns/byte")
			b.ReportMetric(float64(plan.worst), "worst/byte")
		})
	}
}

// TestCostIsBounded: whatever one side sends, comparing takes no more than the burst at once, and one piece. Then it ends for
// its cost, which is counted, and goes on with nothing. A thread that waits for a CPU counts for no more than the bytes can take.
func TestCostIsBounded(t *testing.T) {
	for name, a := range hostile(t) {
		for _, slow := range []time.Duration{50 * time.Microsecond, time.Hour} { // for a piece
			plan, err := NewPlan(a.c)
			must(t, err)
			r, budget := NewReport(), NewBudget(TotalBytes)
			m := &Meter{left: burst, at: at(0).UnixNano(), clock: steps(slow)}
			s := plan.NewSession(budget, r)
			s.forget()
			s.Metered(m)
			least := int64(burst)
			for p := a.answers; len(p) > 0 && s.Stopped() == Going; p = p[min(512, len(p)):] {
				s.Shadow(p[:min(512, len(p))], at(0))
				s.Primary(p[:min(512, len(p))], at(0))
				least = min(least, m.left)
			}
			if s.Stopped() != Cost {
				t.Errorf("%s: %q with %d ns left", name, s.Stopped(), m.left)
			}
			if least < -max(int64(50*time.Microsecond), 512*plan.worst) {
				t.Errorf("%s: %d ns too much", name, -least)
			}
			left := m.left
			s.Shadow(a.answers, at(0))
			s.Primary(a.answers, at(0))
			s.Request(a.answers, at(0))
			if m.left != left {
				t.Errorf("%s: %d ns after the end", name, left-m.left)
			}
			s.End(true, at(0))
			if got := r.Snapshot(); got.Stopped["cost"] != 1 || budget.Used() != 0 {
				t.Errorf("%s: %v, %d bytes are held", name, got.Stopped, budget.Used())
			}
		}
	}
}

// steps is a clock that goes on by d with each look at it.
func steps(d time.Duration) func() int64 {
	now := int64(0)
	return func() int64 { now += int64(d); return now }
}

// TestMeterIsShared: a session that takes much ends, and one that takes little goes on, though there is no time left. Time
// comes back by a fifth of what goes by.
func TestMeterIsShared(t *testing.T) {
	plan, err := NewPlan(Config{Framing: Lines})
	must(t, err)
	r, budget := NewReport(), NewBudget(TotalBytes)
	m := NewMeter()
	m.clock = steps(10 * time.Microsecond)
	session := func() *Session {
		s := plan.NewSession(budget, r)
		s.Metered(m)
		return s
	}
	much, little, now := session(), session(), time.Unix(1000, 0)
	answers := bytes.Repeat([]byte("\n"), 256)
	for n := 0; much.Stopped() == Going && n < 10_000; n++ {
		for range 50 {
			much.Primary(answers, now)
			much.Shadow(answers, now)
		}
		little.Primary([]byte("a line\n"), now)
		little.Shadow([]byte("a line\n"), now)
	}
	little.Primary([]byte("a line\n"), now)
	if much.Stopped() != Cost || little.Stopped() != Going || m.left > 0 {
		t.Fatalf("%q and %q with %d ns left", much.Stopped(), little.Stopped(), m.left)
	}
	before := m.left
	m.refill(now.Add(time.Millisecond).UnixNano())
	if got := m.left - before; got != int64(time.Millisecond)/share {
		t.Errorf("%d ns came back in a millisecond", got)
	}
	m.refill(now.Add(time.Hour).UnixNano())
	if m.left != burst {
		t.Errorf("%d ns came back in an hour", m.left)
	}
	much.End(true, now)
	little.End(true, now)
}

// TestPatternsAreBounded: a pattern whose program is too large is refused with the remedy, and so are many patterns for one
// name.
func TestPatternsAreBounded(t *testing.T) {
	for _, c := range []struct {
		masks []Mask
		want  string
	}{
		{[]Mask{{Pattern: "[0-9]{2,900}x"}}, "mask[0]: pattern"},
		{[]Mask{{Pattern: "[0-9]{2,90}x"}, {Pattern: "[a-f]{2,90}x"}}, "with fewer patterns"},
		{[]Mask{{Pattern: "[0-9]{2,90}x", Name: "A"}, {Pattern: "[a-f]{2,90}x", Name: "B"}}, ""},
		{[]Mask{{Pattern: "[0-9]+x"}, {Pattern: "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"}}, ""},
	} {
		_, err := NewPlan(Config{Framing: Lines, Mask: c.masks})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.masks, err)
		}
	}
}

// cpu returns the time that the process has had a CPU, which other load on the machine does not change.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
