package compare

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hostile are answers that cost much for their bytes, by framing.
func hostile() map[string]struct {
	c       Config
	answers []byte
} {
	type attack = struct {
		c       Config
		answers []byte
	}
	repeat := func(s string) []byte { return bytes.Repeat([]byte(s), (1<<20)/len(s)) }
	masked := func(p string) Config { return Config{Framing: Lines, Mask: []Mask{{Pattern: p}}} }
	return map[string]attack{
		"bytes":          {Config{}, repeat("0123456789abcdef")},
		"lines of 1":     {Config{Framing: Lines}, repeat("\n")},
		"lines of 64":    {Config{Framing: Lines}, repeat("a line of sixty-four bytes, which is how long some lines can be\n")},
		"frames of 0":    {Config{Framing: LengthPrefixed, Width: 1}, repeat("\x00")},
		"resp +":         {Config{Framing: Resp}, repeat("+\r\n")},
		"resp :1":        {Config{Framing: Resp}, repeat(":1\r\n")},
		"resp nested":    {Config{Framing: Resp}, repeat("*1\r\n*1\r\n*1\r\n*0\r\n")},
		"resp push":      {Config{Framing: Resp}, repeat(">1\r\n+x\r\n")},
		"resp of 100":    {Config{Framing: Resp}, repeat("$100\r\n" + string(make([]byte, 100)) + "\r\n")},
		"http1 chunks":   {Config{Framing: HTTP1}, append([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), repeat("1\r\nx\r\n")...)},
		"http1 100":      {Config{Framing: HTTP1}, repeat("HTTP/1.1 100 \r\n\r\n")},
		"http1 fields":   {Config{Framing: HTTP1}, append([]byte("HTTP/1.1 200 OK\r\n"), repeat("a:\r\n")...)},
		"postgres empty": {Config{Framing: Postgres}, repeat("n\x00\x00\x00\x04")},
		"postgres rows":  {Config{Framing: Postgres}, repeat("D\x00\x00\x00\x0e\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00")},
		"http2 bomb":     {Config{Framing: HTTP2}, bomb(1 << 20)},
		"grpc messages":  {Config{Framing: GRPC}, append([]byte{0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88}, messages2(1<<20)...)},
		"digits":         {masked("[0-9]{2,90}x"), repeat("1")},
		"letters":        {masked("[0-9]+ms"), repeat("+xxxxxxx")},
	}
}

// bomb is heads that refer to a long field of the table many times.
func bomb(n int) []byte {
	frame := func(stream int, block []byte) []byte {
		return append([]byte{byte(len(block) >> 16), byte(len(block) >> 8), byte(len(block)), 1, 4, 0, 0, byte(stream >> 8), byte(stream)}, block...)
	}
	long := append([]byte{0x40, 1, 'a', 0x7f, 0x80 | 0x3d, 0x1d}, bytes.Repeat([]byte("v"), 127+0x3d+0x1d<<7)...)
	b := frame(1, long)
	for s := 3; len(b) < n; s += 2 {
		b = append(b, frame(1, []byte{0xbe, 0xbe, 0xbe, 0xbe})...)
	}
	return b
}

func messages2(n int) (b []byte) {
	frame := append([]byte{0, 0x3f, 0xfc, 0, 0, 0, 0, 0, 1}, make([]byte, 0x3ffc)...)
	for len(b) < n {
		b = append(b, frame...)
	}
	return b
}

// BenchmarkCost measures what hostile answers cost, beside what the meter takes for them: ns/cost is below one, or the
// costs are too low.
func BenchmarkCost(b *testing.B) {
	for name, a := range hostile() {
		b.Run(name, func(b *testing.B) {
			plan, err := NewPlan(a.c)
			if err != nil {
				b.Fatal(err)
			}
			r, budget := NewReport(), NewBudget(TotalBytes)
			var taken int64
			n, begin := 0, cpu(b)
			for b.Loop() {
				s := plan.NewSession(budget, r)
				m := NewMeter()
				m.left, m.at = 1<<60, 1
				s.Metered(m)
				now := time.Unix(0, 1)
				for p := a.answers; len(p) > 0 && !s.Full(); p = p[min(512, len(p)):] {
					piece := p[:min(512, len(p))]
					s.Primary(piece, now)
					s.Shadow(piece, now)
					n += 2 * len(piece)
				}
				taken += 1<<60 - m.left
				if s.Full() {
					b.Fatal(s.Stopped())
				}
				s.End(true, now)
			}
			used := cpu(b) - begin
			b.ReportMetric(float64(n)/1e6/used.Seconds(), "MB/CPU-s")
			b.ReportMetric(float64(used)/float64(max(taken, 1)), "ns/cost")
		})
	}
}

// TestCostIsBounded: whatever one side sends, comparing takes no more than the burst at once, and one piece. Then it ends for
// its cost, which is counted, and goes on with nothing.
func TestCostIsBounded(t *testing.T) {
	for name, a := range hostile() {
		plan, err := NewPlan(a.c)
		if err != nil {
			t.Fatal(err)
		}
		for _, both := range []bool{false, true} {
			r, budget, now := NewReport(), NewBudget(TotalBytes), time.Unix(0, 1)
			m := &Meter{left: burst, at: now.UnixNano()}
			m.clock = steps(2 * time.Millisecond)
			s := plan.NewSession(budget, r)
			s.Metered(m)
			least := int64(burst)
			for n := 0; n < 16 && !s.Full(); n++ { // 16 MiB: more than any may take
				for p := a.answers; len(p) > 0 && !s.Full(); p = p[min(512, len(p)):] {
					s.Shadow(p[:min(512, len(p))], now)
					if both {
						s.Primary(p[:min(512, len(p))], now)
					}
				}
				least = min(least, m.left)
			}
			if free := a.c.Framing == ""; !free && (!s.Full() || both && s.Stopped() != Cost) || free && s.Full() { // bytes cost too little
				t.Errorf("%s, both sides %v: %q with %d ns left", name, both, s.Stopped(), m.left)
			}
			if least < -burst/4 {
				t.Errorf("%s, both sides %v: %d ns too much", name, both, -least)
			}
			left := m.left
			s.Shadow(a.answers, now)
			s.Primary(a.answers, now)
			s.Request(a.answers, now)
			if s.Full() && m.left != left {
				t.Errorf("%s: %d ns after the end", name, left-m.left)
			}
			s.End(true, now)
			if got := r.Snapshot(); s.Stopped() == Cost && got.Stopped["cost"] != 1 {
				t.Errorf("%s: %v", name, got.Stopped)
			}
			if n := budget.Used(); n != 0 {
				t.Errorf("%s: %d bytes are held", name, n)
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
	if err != nil {
		t.Fatal(err)
	}
	r, budget := NewReport(), NewBudget(TotalBytes)
	m := NewMeter()
	session := func() *Session {
		s := plan.NewSession(budget, r)
		s.Metered(m)
		return s
	}
	much, little, now := session(), session(), time.Unix(1000, 0)
	answers := bytes.Repeat([]byte("\n"), 256)
	for n := 0; !much.Full() && n < 10_000; n++ {
		much.Primary(answers, now)
		much.Shadow(answers, now)
		little.Primary([]byte("a line\n"), now)
		little.Shadow([]byte("a line\n"), now)
	}
	little.Primary([]byte("a line\n"), now)
	if much.Stopped() != Cost || little.Full() || m.left > 0 {
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

// TestHeadsAreBounded: heads of more fields, or of more bytes as they are decoded, than there may be end comparing, however
// few bytes they have. Longest ones do not, and leave no garbage.
func TestHeadsAreBounded(t *testing.T) {
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	for name, c := range map[string]struct {
		block []byte
		full  bool
	}{
		"fields": {bytes.Repeat([]byte{0x88}, headFields), false}, "too many fields": {bytes.Repeat([]byte{0x88}, headFields+1), true},
		"bytes": {bytes.Repeat([]byte{0xbe}, 4), false}, "too many bytes": {bytes.Repeat([]byte{0xbe}, 5), true},
	} {
		answers := append(append(bytes.Clone(settings), bomb(0)...), 0, byte(len(c.block)>>8), byte(len(c.block)), 1, 4, 0, 0, 0, 3)
		got := play(t, Config{Framing: HTTP2}, wire{primary: append(answers, c.block...)}, whole, false)
		if full := got.Stopped["full"] == 1; full != c.full {
			t.Errorf("%s: %v", name, got.Stopped)
		}
	}
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

// TestSearchIsNoOther: that windows without a first byte are not searched changes nothing.
func TestSearchIsNoOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom([]string{"[0-9]+ms", "(?i)k+", "é|ß", "a|b*c", "^x", "\\bfoo", "[^a]b", ".z", "\\xff", "(?s).", "x$", "(a|)b"}).Draw(t, "pattern")
		p, err := newProgram(pattern)
		if err != nil {
			t.Fatal(err)
		}
		b := []byte(rapid.StringOfN(rapid.SampledFrom([]rune("axbczk1ms foKé\u212aß\n\u00ff")), 0, 12, -1).Draw(t, "bytes"))
		if len(b) > 0 && rapid.Bool().Draw(t, "broken") {
			b[0] |= 0x80
		}
		if got, want := p.find(&Session{}, b), p.FindAllIndex(b, -1); len(got) != len(want) {
			t.Fatalf("%q in %q: %v, want %v", pattern, b, got, want)
		}
	})
}
