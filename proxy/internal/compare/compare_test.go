package compare

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/internal/testutil/heap"
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

// session begins a session with a report and a budget of its own.
func session(t rapid.TB, c Config, bytes int64) (*Session, *Report, *Budget) {
	t.Helper()
	if c.Framing == "" {
		c.Framing = Bytes
	}
	plan, err := NewPlan(c)
	must(t, err)
	r, b := NewReport(), NewBudget(bytes)
	s := plan.NewSession(b, r)
	if s == nil {
		t.Fatal("a new budget has no room")
	}
	return s, r, b
}

// play runs a session to its end, the two sides in turn, and returns what the report has.
func play(t rapid.TB, c Config, w wire, next chunker, complete bool) Snapshot {
	t.Helper()
	if c.Examples == 0 {
		c.Examples = 3
	}
	s, r, b := session(t, c, TotalBytes)
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
	if s.purse.held > s.purse.most || s.purse.held < sessionBytes || int64(s.purse.held) > s.purse.budget.Used() {
		t.Fatalf("session holds %d bytes, the budget's users %d", s.purse.held, s.purse.budget.Used())
	}
	if s.purse.lead > keepBytes {
		t.Fatalf("the lead holds %d bytes", s.purse.lead)
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

// TestManyAnswersAhead: a side that is ahead by more answers than there is memory for ends the
// comparison, and its memory comes back.
func TestManyAnswersAhead(t *testing.T) {
	s, r, b := session(t, Config{Framing: Lines}, TotalBytes)
	for range 100_000 {
		s.Primary([]byte("line\n"), time.Unix(1, 0))
		holds(t, s)
	}
	if s.Stopped() != Full {
		t.Errorf("comparing has not ended: %v", s.Stopped())
	}
	s.End(true, time.Unix(2, 0))
	got := r.Snapshot()
	if got.Stopped["full"] != 1 || got.Different != 0 || got.Unsettled < 400 || b.Used() != 0 {
		t.Errorf("%+v, %d bytes held", got, b.Used())
	}
}

func TestBudget(t *testing.T) {
	plan, _ := NewPlan(Config{Framing: Bytes})
	r, b := NewReport(), NewBudget(int64(3*sessionBytes))
	var all []*Session
	for range 3 {
		all = append(all, plan.NewSession(b, r))
	}
	if s := plan.NewSession(b, r); s != nil || all[2] == nil {
		t.Errorf("a fourth session: %v, third: %v", s, all[2])
	}
	all[0].Primary([]byte("x"), time.Unix(1, 0))
	if all[0].Stopped() != Full {
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
		{Config{Framing: Bytes}, ""},
		{Config{Framing: "xml"}, `framing "xml": write one of bytes, lines`},
		{Config{Framing: Bytes, Mask: []Mask{{}}}, "mask[0]: write either pattern or field"},
		{Config{Framing: Bytes, Mask: []Mask{{Pattern: "("}}}, `mask[0]: pattern "("`},
		{Config{Framing: Bytes, Mask: []Mask{{Pattern: "x*"}}}, "it matches the empty text"},
		{Config{Framing: Bytes, Mask: []Mask{{Field: "bytes.color"}}}, `field "bytes.color": with framing bytes write bytes.answer`},
		{Config{Framing: Bytes, Mask: []Mask{{Field: "bytes.answer"}}}, "also write name"},
		{Config{Framing: GRPC, Mask: []Mask{{Field: "grpc.x-id"}, {Field: "grpc.answer", Name: "/a.B/C"}}}, ""},
		{Config{Framing: GRPC, Mask: []Mask{{Field: "grpc.X-Id"}}}, "write grpc.answer or grpc.NAME"},
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
	for _, redacted := range []bool{true, false} {
		got := play(t, Config{Redact: redacted}, w, single, true).Examples
		if len(got) != 1 {
			t.Fatalf("%d examples", len(got))
		}
		e := got[0]
		want := w.primary[len(before)-contextBytes:]
		other := w.shadow[len(before)-contextBytes:]
		if redacted {
			want, other = bytes.Clone(want), bytes.Clone(other)
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

func at(d time.Duration) time.Time { return time.Unix(10, 0).Add(d) }

// TestLags: the time by which the shadow was later, with its sign.
func TestLags(t *testing.T) {
	s, r, _ := session(t, Config{Framing: Lines}, TotalBytes)
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

// TestNames: names beyond the bound are one.
func TestNames(t *testing.T) {
	r := NewReport()
	for i := range 2 * maxNames {
		r.name(fmt.Sprint("name", i), false)
	}
	if n := r.name("one more", false); n != r.other {
		t.Errorf("%q", n.text)
	}
	if n := r.name("name1", false); n.text != "name1" {
		t.Errorf("%q", n.text)
	}
}

// TestMemoryIsReal: sessions at their bound, by whichever framing and side, have no more memory than they say, except
// for what the allocator rounds up.
func TestMemoryIsReal(t *testing.T) {
	open, table := newPeer(t), newPeer(t)
	for i := range 100 {
		open.head(uint32(2*i+1), false, ":status", "200", "x", fmt.Sprint(i))
		open.ok(open.f.WriteData(uint32(2*i+1), false, bytes.Repeat([]byte("v"), 300)))
	}
	for i := range 128 { // the fields that take most memory in a table
		table.head(1, false, string(rune('a'+i%26)), string([]byte{'a' + byte(i%26), 'a' + byte(i/26)}))
	}
	mask := []Mask{{Pattern: "[0-9]+x"}}
	for _, c := range []struct {
		config Config
		bytes  []byte
	}{
		{Config{Framing: Bytes}, bytes.Repeat([]byte("v"), 1<<20)},
		{Config{Framing: Lines}, bytes.Repeat([]byte("v\n"), 1<<16)},
		{Config{Framing: Lines, Mask: mask}, append(bytes.Repeat([]byte("v\n"), 1<<16), bytes.Repeat([]byte("w"), windowBytes)...)},
		{Config{Framing: GRPC}, open.out.Bytes()},
		{Config{Framing: GRPC, Mask: mask}, open.out.Bytes()},
		{Config{Framing: GRPC}, table.out.Bytes()},
	} {
		const n = 100
		plan, err := NewPlan(c.config)
		must(t, err)
		r, b := NewReport(), NewBudget(n*(SessionBytes+3*tableBytes))
		all := make([]*Session, n)
		before := heap.InUse()
		for i := range all {
			all[i] = plan.NewSession(b, r)
			all[i].requests = nil // answers to requests that were not seen
			for side := range all[i].answers {
				all[i].answer(side, c.bytes, at(0))
			}
		}
		used, held := int64(heap.InUse()-before), b.Used()
		if used > held*5/4 || held > n*(SessionBytes+3*tableBytes) {
			t.Errorf("%+v: %d sessions have %d bytes of the heap, and hold %d", c.config, n, used, held)
		}
		for _, s := range all {
			s.End(false, at(0))
		}
		if b.Used() != 0 {
			t.Errorf("%+v: %d bytes are held after the end", c.config, b.Used())
		}
	}
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
