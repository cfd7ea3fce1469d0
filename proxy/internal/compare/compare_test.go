package compare

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A wire is the bytes of one session.
type wire struct{ request, primary, shadow []byte }

// chunker returns the length of the next piece of n bytes.
type chunker func(n int) int

func whole(n int) int { return n }

func single(int) int { return 1 }

func drawn(t *rapid.T) chunker {
	return func(n int) int { return rapid.IntRange(1, n).Draw(t, "piece") }
}

// play runs a session to its end, the two sides in turn, and returns what the report has.
func play(t rapid.TB, c Config, w wire, next chunker, complete bool) Snapshot {
	t.Helper()
	if c.Redact == nil && (c.Framing == HTTP1 || c.Framing == HTTP2 || c.Framing == GRPC) {
		c.Redact = new(bool) // names are shown
	}
	plan, err := NewPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	r, b := NewReport(), NewBudget(TotalBytes)
	s := plan.NewSession(b, r)
	if s == nil {
		t.Fatal("a new budget has no room")
	}
	playInto(t, s, w, next)
	s.End(complete, time.Unix(100, 0))
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes of the budget are held after the end", used)
	}
	return r.Snapshot()
}

func playInto(t rapid.TB, s *Session, w wire, next chunker) {
	t.Helper()
	now := time.Unix(0, 0)
	for b := w.request; len(b) > 0; {
		n := next(len(b))
		s.Request(b[:n], now)
		b = b[n:]
	}
	for p, q := w.primary, w.shadow; len(p)+len(q) > 0; {
		now = now.Add(time.Millisecond)
		if len(p) > 0 {
			n := next(len(p))
			s.Primary(bytes.Clone(p[:n]), now)
			p = p[n:]
		}
		if len(q) > 0 {
			n := next(len(q))
			s.Shadow(bytes.Clone(q[:n]), now)
			q = q[n:]
		}
		holds(t, s)
	}
}

// holds checks that a session holds no more than it says, and that is not too much.
func holds(t rapid.TB, s *Session) {
	t.Helper()
	if s.purse.held > SessionBytes || s.purse.held < s.base || int64(s.purse.held) > s.purse.budget.Used() {
		t.Fatalf("session holds %d bytes, the budget's users %d", s.purse.held, s.purse.budget.Used())
	}
	if s.purse.lead > keepBytes {
		t.Fatalf("segments hold %d bytes", s.purse.lead)
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		name, primary, shadow string
		complete              bool
		equal, different, cut uint64
		offset                int64
	}{
		{"equal", "hello", "hello", true, 1, 0, 0, 0},
		{"differs", "hello", "hallo", true, 0, 1, 0, 1},
		{"shorter", "hello", "hell", true, 0, 1, 0, 4},
		{"longer", "hello", "hello!", true, 0, 1, 0, 5},
		{"silent", "hello", "", true, 0, 1, 0, 0},
		{"cut", "hello", "hell", false, 0, 0, 1, 0},
		{"differs and is cut", "hello", "hex", false, 0, 1, 0, 2},
		{"nothing", "", "", true, 0, 0, 0, 0},
	} {
		for _, next := range []chunker{whole, single} {
			got := play(t, Config{}, wire{primary: []byte(c.primary), shadow: []byte(c.shadow)}, next, c.complete)
			if got.Equal != c.equal || got.Different != c.different || got.Unsettled != c.cut {
				t.Errorf("%s: %d equal, %d different, %d unsettled", c.name, got.Equal, got.Different, got.Unsettled)
			}
			if c.different == 1 && (len(got.Examples) != 1 || got.Examples[0].Offset != c.offset || !got.Examples[0].Exact ||
				got.Examples[0].Primary.Length != int64(len(c.primary)) && c.complete) {
				t.Errorf("%s: examples %+v", c.name, got.Examples)
			}
		}
	}
}

// TestFarAhead: one side may be ahead by any number of bytes. Equal answers are equal then, and a
// byte that differs is found, whichever side is ahead, and wherever the other one meets it.
func TestFarAhead(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcde\n"), 64<<10) // 1 MiB
	for _, at := range []int{-1, 0, 100, 50_000, 500_000, len(long) - 1} {
		other := bytes.Clone(long)
		if at >= 0 {
			other[at] ^= 1
		}
		for _, lead := range []int{0, 1000, 100_000, len(long)} {
			for _, first := range []int{primary, shadow} {
				plan, _ := NewPlan(Config{})
				r, b := NewReport(), NewBudget(SessionBytes)
				s := plan.NewSession(b, r)
				sides := [2][]byte{long, other}
				s.answer(first, sides[first][:lead], time.Unix(1, 0))
				for n := 0; n < len(long); n += 1 << 10 {
					s.answer(1-first, sides[1-first][n:n+1<<10], time.Unix(2, 0))
					if n >= lead && n+1<<10 <= len(long) {
						s.answer(first, sides[first][max(n, lead):n+1<<10], time.Unix(2, 0))
					} else if n+1<<10 > lead {
						s.answer(first, sides[first][lead:n+1<<10], time.Unix(2, 0))
					}
					holds(t, s)
				}
				s.End(true, time.Unix(3, 0))
				got := r.Snapshot()
				if (at < 0) != (got.Equal == 1) || (at >= 0) != (got.Different == 1) {
					t.Errorf("flip at %d, %d ahead by %d: %d equal, %d different", at, first, lead, got.Equal, got.Different)
				}
				if at >= 0 && (lead <= 1000 || at <= 100) && (len(got.Examples) != 1 || got.Examples[0].Offset != int64(at)) {
					t.Errorf("flip at %d, %d ahead by %d: %+v", at, first, lead, got.Examples)
				}
				if b.Used() != 0 {
					t.Errorf("%d bytes are held after the end", b.Used())
				}
			}
		}
	}
}

// TestLines: pieces change nothing, equal lines are equal, and a flipped byte is one difference at
// its place.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.StringMatching("[a-z ]{0,30}\r?\n"), 1, 40).Draw(t, "lines")
		line := rapid.IntRange(0, len(text)-1).Draw(t, "line")
		at := rapid.IntRange(-1, len(text[line])-2).Draw(t, "at")
		flipped := append([]string{}, text...)
		if at >= 0 {
			flipped[line] = text[line][:at] + "\x01" + text[line][at+1:]
		}
		w := wire{primary: []byte(strings.Join(text, "")), shadow: []byte(strings.Join(flipped, ""))}
		got := play(t, Config{Framing: Lines}, w, drawn(t), true)
		if at < 0 {
			if got.Equal != uint64(len(text)) || got.Different != 0 {
				t.Fatalf("%d equal, %d different of %d", got.Equal, got.Different, len(text))
			}
			return
		}
		if got.Equal != uint64(len(text)-1) || got.Different != 1 || got.Examples[0].Offset != int64(at) {
			t.Fatalf("%d equal, %d different of %d, flipped %d: %+v", got.Equal, got.Different, len(text), at, got.Examples)
		}
	})
}

// TestManyAnswersAhead: a side that is ahead by more answers than there is memory for ends the
// comparison, and its memory comes back.
func TestManyAnswersAhead(t *testing.T) {
	plan, _ := NewPlan(Config{Framing: Lines})
	r, b := NewReport(), NewBudget(TotalBytes)
	s := plan.NewSession(b, r)
	for range 100_000 {
		s.Primary([]byte("line\n"), time.Unix(1, 0))
		holds(t, s)
	}
	if !s.Full() || s.Stopped() != Full {
		t.Errorf("comparing has not ended: %v", s.Stopped())
	}
	s.End(true, time.Unix(2, 0))
	got := r.Snapshot()
	if got.Stopped["full"] != 1 || got.Different != 0 || got.Unsettled < 3500 || b.Used() != 0 {
		t.Errorf("%+v, %d bytes held", got, b.Used())
	}
}

func TestBudget(t *testing.T) {
	plan, _ := NewPlan(Config{})
	r, b := NewReport(), NewBudget(int64(3*sessionBytes))
	var all []*Session
	for range 3 {
		all = append(all, plan.NewSession(b, r))
	}
	if s := plan.NewSession(b, r); s != nil || all[2] == nil {
		t.Errorf("a fourth session: %v, third: %v", s, all[2])
	}
	all[0].Primary([]byte("x"), time.Unix(1, 0))
	if !all[0].Full() {
		t.Error("a session has memory that the budget does not have")
	}
	for _, s := range all {
		s.End(false, time.Unix(1, 0))
		s.End(false, time.Unix(1, 0))
	}
	if b.Used() != 0 || r.Snapshot().Refused != 1 || r.Snapshot().Sessions != 3 {
		t.Errorf("%d bytes held, %+v", b.Used(), r.Snapshot())
	}
}

func TestPlans(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string // of the error; empty is none
	}{
		{Config{}, ""},
		{Config{Framing: "xml"}, `framing "xml": write one of bytes, lines`},
		{Config{Width: 4}, "offset, width, endian and includes_header are for framing length_prefixed"},
		{Config{Framing: LengthPrefixed}, "width 0: write 1, 2, 4 or 8"},
		{Config{Framing: LengthPrefixed, Width: 4, Offset: 100}, "offset 100: write 0 to 64"},
		{Config{Framing: LengthPrefixed, Width: 4, Endian: "middle"}, `endian "middle": write big or little`},
		{Config{Examples: 1000}, "examples 1000: write at most 100"},
		{Config{Mask: []Mask{{}}}, "mask[0]: write either pattern or field"},
		{Config{Mask: []Mask{{Pattern: "("}}}, `mask[0]: pattern "("`},
		{Config{Mask: []Mask{{Pattern: "x*"}}}, "it matches nothing at all"},
		{Config{Mask: []Mask{{Pattern: "(x{750})(ab|c){750}"}}}, "its matches have 1500 bytes or more: write one of at most 1024"},
		{Config{Mask: []Mask{{Field: "bytes.color"}}}, `field "bytes.color": with framing bytes write one of bytes.answer`},
		{Config{Mask: []Mask{{Field: "bytes.answer"}}}, "write the name of the requests"},
	} {
		_, err := NewPlan(c.config)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}

// TestPatterns: bytes that a pattern matches may differ, also in length, and wherever pieces and
// windows begin.
func TestPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.StringMatching("[a-z ]{1,9}"), 1, 10).Draw(t, "text")
		var p, q strings.Builder
		for _, part := range parts {
			part = strings.Repeat(part, rapid.SampledFrom([]int{1, 30, 1000}).Draw(t, "times"))
			p.WriteString(part + "<" + rapid.StringMatching("[0-9]{1,20}").Draw(t, "id") + ">")
			q.WriteString(part + "<" + rapid.StringMatching("[0-9]{1,20}").Draw(t, "id") + ">")
		}
		w := wire{primary: []byte(p.String() + "\n"), shadow: []byte(q.String() + "\n")}
		got := play(t, Config{Framing: Lines, Mask: []Mask{{Pattern: "<[0-9]+>"}}}, w, drawn(t), true)
		if got.Equal != 1 || got.Different != 0 || got.MaskLimited != 0 {
			t.Fatalf("%+v", got)
		}
		w.shadow[len(w.shadow)-2] = '!'
		if got = play(t, Config{Framing: Lines, Mask: []Mask{{Pattern: "<[0-9]+>"}}}, w, drawn(t), true); got.Different != 1 {
			t.Fatalf("%+v", got)
		}
	})
}

// TestLongMatches: a match that a window does not hold is counted.
func TestLongMatches(t *testing.T) {
	w := wire{primary: bytes.Repeat([]byte("7"), 3*windowBytes), shadow: bytes.Repeat([]byte("8"), 3*windowBytes)}
	if got := play(t, Config{Mask: []Mask{{Pattern: "[0-9]+"}}}, w, whole, true); got.MaskLimited == 0 || got.Equal != 1 {
		t.Errorf("%+v", got)
	}
}

func TestExamplesAreRedacted(t *testing.T) {
	before := strings.Repeat("secret 123 ", 20)
	w := wire{primary: []byte(before + "Alice: 7!"), shadow: []byte(before + "Bob: 42\xff")}
	plain := false
	for _, c := range []struct {
		config          Config
		primary, shadow string
	}{
		{Config{}, "Alice: 7!", "Bob: 42\xff"},
		{Config{Redact: &plain}, "Alice: 7!", "Bob: 42\xff"},
	} {
		got := play(t, c.config, w, single, true).Examples
		if len(got) != 1 {
			t.Fatalf("%d examples", len(got))
		}
		e := got[0]
		want := []byte(before[len(before)-contextBytes:] + c.primary)
		other := []byte(before[len(before)-contextBytes:] + c.shadow)
		if c.config.Redact == nil {
			redact(want)
			redact(other)
			if bytes.Contains(e.Primary.Bytes, []byte("secret")) || bytes.Contains(e.Shadow.Bytes, []byte("2")) {
				t.Errorf("%q, %q", e.Primary.Bytes, e.Shadow.Bytes)
			}
		}
		if diff := cmp.Diff([]string{string(want), string(other)}, []string{string(e.Primary.Bytes), string(e.Shadow.Bytes)}); diff != "" {
			t.Error(diff)
		}
		if e.Offset != int64(len(before)) || e.Primary.Begin != e.Offset-contextBytes || e.Primary.Length != int64(len(w.primary)) || e.Shadow.Length != int64(len(w.shadow)) {
			t.Errorf("%+v", e)
		}
	}
}

// at returns a time.
func at(d time.Duration) time.Time { return time.Unix(10, 0).Add(d) }

// TestLags: the time by which the shadow was later, with its sign.
func TestLags(t *testing.T) {
	plan, _ := NewPlan(Config{Framing: Lines})
	r := NewReport()
	s := plan.NewSession(NewBudget(TotalBytes), r)
	for i := range 100 {
		p, q := at(0), at(10*time.Millisecond)
		if i >= 90 {
			p, q = at(time.Second), at(0)
			s.Shadow([]byte("x\n"), q)
			s.Primary([]byte("x\n"), p)
			continue
		}
		s.Primary([]byte("x\n"), p)
		s.Shadow([]byte("x\n"), q)
	}
	s.End(true, at(0))
	got := r.Snapshot().Lag
	near := func(got, want time.Duration) bool { return got > want*7/8 && got < want*9/8 }
	if got.Slower != 90 || got.Faster != 10 || got.Alike != 0 || !near(got.P50, 10*time.Millisecond) || !near(got.P90, 10*time.Millisecond) {
		t.Errorf("%+v", got)
	}
	if low := r.Snapshot().Names[0].Lag; low != got {
		t.Errorf("of the only name: %+v, of all %+v", low, got)
	}
}

// TestBuckets: a bucket's middle is within an eighth of the times in it.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Uint64Range(1<<lagFloor, 1<<37-1).Draw(t, "ns")
		got := float64(middle(bucket(ns)))
		if ratio := got / float64(ns); ratio < 7.0/8 || ratio > 9.0/8 {
			t.Fatalf("%d is near %v", ns, got)
		}
	})
}

// TestNames: names beyond the bound are one.
func TestNames(t *testing.T) {
	r := NewReport()
	for i := range 2 * maxNames {
		r.name(fmt.Sprint("name", i))
	}
	if n := r.name("one more"); n != other || r.text(n) != "other" {
		t.Errorf("%d %q", n, r.text(n))
	}
	if n := r.nameOf([]byte("name1")); r.text(n) != "name1" {
		t.Errorf("%q", r.text(n))
	}
}

// TestMemoryIsReal: sessions at their bound, by whichever framing and side, have no more memory than
// they say, but for what the allocator rounds up.
func TestMemoryIsReal(t *testing.T) {
	head := newSide2(t)
	for i := range 100 {
		head.head(uint32(2*i+1), false, 1000, ":status", "200", "x", fmt.Sprint(i))
		head.ok(head.f.WriteData(uint32(2*i+1), false, bytes.Repeat([]byte("v"), 300)))
	}
	mask := []Mask{{Pattern: "[0-9]+x"}}
	for _, c := range []struct {
		config Config
		bytes  []byte
	}{
		{Config{}, bytes.Repeat([]byte("v"), 1<<20)},
		{Config{Framing: Lines}, bytes.Repeat([]byte("v\n"), 1<<16)},
		{Config{Framing: Lines, Mask: mask}, append(bytes.Repeat([]byte("v\n"), 1<<16), bytes.Repeat([]byte("w"), windowBytes)...)},
		{Config{Framing: Resp, Mask: mask}, bytes.Repeat([]byte("*2\r\n+v\r\n+v\r\n"), 1<<13)},
		{Config{Framing: HTTP1, Mask: mask}, []byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("v", lineBytes-100))},
		{Config{Framing: GRPC}, head.out.Bytes()},
		{Config{Framing: HTTP2, Mask: mask}, head.out.Bytes()},
	} {
		const n = 100
		plan, err := NewPlan(c.config)
		if err != nil {
			t.Fatal(err)
		}
		r, b := NewReport(), NewBudget(n*SessionBytes)
		all := make([]*Session, n)
		before := heap()
		for i := range all {
			all[i] = plan.NewSession(b, r)
			all[i].Primary(c.bytes, at(0))
		}
		used, held := heap()-before, b.Used()
		if used > held*5/4 || held > n*SessionBytes {
			t.Errorf("%+v: %d sessions have %d bytes of the heap, and hold %d", c.config, n, used, held)
		}
		for _, s := range all {
			s.End(false, at(0))
		}
	}
}

// heap returns the bytes that are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBase: the memory that a session takes at first is that of its parsers, of any framing.
func TestBase(t *testing.T) {
	size := func(p any) int { return int(reflect.TypeOf(p).Elem().Size()) }
	for _, framing := range Framings {
		c := Config{Framing: framing}
		if framing == LengthPrefixed {
			c.Width = 4
		}
		plan, err := NewPlan(c)
		if err != nil {
			t.Fatal(err)
		}
		s := plan.NewSession(NewBudget(TotalBytes), NewReport())
		n := size(s) + size(s.answers[0]) + size(s.answers[1])
		if s.requests != nil {
			n += size(s.requests)
		}
		if n > s.base {
			t.Errorf("%s: %d bytes, base is %d", framing, n, s.base)
		}
	}
}

// TestOpenStreams: so many streams may be open at a time, and one side may be ahead by so many.
func TestOpenStreams(t *testing.T) {
	for _, c := range []struct{ open, ahead int }{{70, 0}, {35, 35}} {
		plan, _ := NewPlan(Config{Framing: GRPC})
		s := plan.NewSession(NewBudget(TotalBytes), NewReport())
		s.Request(requests2(t, slices.Repeat([]string{"/a.B/C"}, c.open)...), at(0))
		head := newSide2(t)
		for i := range c.ahead {
			head.head(uint32(2*i+1), false, 1000, ":status", "200", "content-type", "application/grpc", "x", fmt.Sprint(i))
			head.ok(head.f.WriteData(uint32(2*i+1), false, make([]byte, 300)))
			head.head(uint32(2*i+1), true, 1000, "grpc-status", "0", "grpc-message", "")
		}
		s.Shadow(head.out.Bytes(), at(0))
		if s.Full() {
			t.Errorf("%+v: %v with %d bytes", c, s.Stopped(), s.purse.held)
		}
	}
}
