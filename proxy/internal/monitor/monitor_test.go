package monitor_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/monitor"
)

// A book is a log that tests read.
type book struct{ text bytes.Buffer }

func (b *book) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(&b.text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// says fails the test unless exactly these lines were logged since its last call.
func (b *book) says(t *testing.T, when string, lines ...string) {
	t.Helper()
	got := strings.TrimSuffix(b.text.String(), "\n")
	b.text.Reset()
	if want := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s: logged\n%s\nwant\n%s", when, got, want)
	}
}

// at is a time of the clock.
func at(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

func name(i int) string { return fmt.Sprintf("u%02d", i) }

func health(upstream string, i int, state string) *monitor.Line {
	level := slog.LevelWarn
	if state == "healthy" {
		level = slog.LevelInfo
	}
	name := fmt.Sprintf("e%d", i)
	return &monitor.Line{
		Upstream: upstream, Level: level, Message: "health", Kind: state, Name: name, Count: 1,
		Attrs: []any{"upstream", upstream, "endpoint", name, "state", state},
	}
}

// lines returns the logged lines of the first n endpoints of an upstream.
func lines(upstream string, n int, state string) (list []string) {
	level := "WARN"
	if state == "healthy" {
		level = "INFO"
	}
	for i := range n {
		list = append(list, fmt.Sprintf("level=%s msg=health upstream=%s endpoint=e%d state=%s", level, upstream, i, state))
	}
	return list
}

// TestManyLinesAreSummedUp: of 10,000 changes at once twenty are lines, and the others a sum
// that counts every one.
func TestManyLinesAreSummedUp(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	for i := range 10_000 {
		l.Note(at(1)+int64(i), health("u", i, "unhealthy"))
	}
	l.Note(at(1.5), health("v", 0, "unhealthy"))
	b.says(t, "at once", append(lines("u", 20, "unhealthy"), lines("v", 1, "unhealthy")...)...)
	l.Look(at(2))
	b.says(t, "a second later", `level=WARN msg="health, further ones" upstream=u kind=unhealthy times=9980 within=1s of="e20, e21, e22, e23, e24 and 9975 more"`)
	l.Look(at(3))
	b.says(t, "and nothing twice")
	for i := range 10_000 {
		l.Note(at(4), health("u", i, "healthy"))
	}
	for i := range 30 {
		l.Note(at(5), health("u", i, "unhealthy"))
	}
	b.says(t, "the lines for which there was room meanwhile", lines("u", 3, "healthy")...)
	l.Look(at(11.9))
	b.says(t, "too early for a sum")
	l.Look(at(12))
	b.says(t, "ten seconds later, in the order in which it began",
		`level=INFO msg="health, further ones" upstream=u kind=healthy times=9997 within=8s of="e3, e4, e5, e6, e7 and 9992 more"`,
		`level=WARN msg="health, further ones" upstream=u kind=unhealthy times=30 within=7s of="e0, e1, e2, e3, e4 and 25 more"`)
}

// TestNothingOvertakesASum: the last event is logged last.
func TestNothingOvertakesASum(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	for i := range 21 {
		l.Note(at(1), health("u", i, "unhealthy"))
	}
	l.Note(at(30), health("u", 20, "healthy")) // without a look before
	b.says(t, "before", lines("u", 20, "unhealthy")...)
	l.Flush(at(30))
	b.says(t, "at the end",
		`level=WARN msg="health, further ones" upstream=u kind=unhealthy times=1 within=29s of=e20`,
		`level=INFO msg="health, further ones" upstream=u kind=healthy times=1 within=0s of=e20`)
}

// TestSumsCountWhatLinesCount: transitions that a line was to count, sessions.
func TestSumsCountWhatLinesCount(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	for i := range 25 {
		line := health("u", i, "unhealthy")
		line.Count = 100
		l.Note(at(1), line)
	}
	b.says(t, "lines", lines("u", 20, "unhealthy")...)
	l.Flush(at(1))
	b.says(t, "a sum", `level=WARN msg="health, further ones" upstream=u kind=unhealthy times=500 within=0s of="e20, e21, e22, e23, e24"`)
}

// TestSumNamesEachSubjectOnce: further lines about a subject that the sum names are about no other one.
func TestSumNamesEachSubjectOnce(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	for i := range 35 {
		l.Note(at(1), health("u", i%2, "unhealthy"))
	}
	b.text.Reset()
	l.Flush(at(1))
	b.says(t, "a sum", `level=WARN msg="health, further ones" upstream=u kind=unhealthy times=15 within=0s of="e0, e1"`)
}

// TestLinesAreBounded: endpoints that change all the time, for an hour, are 400 sums and a line
// a second at most, which count all that they did.
func TestLinesAreBounded(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	told := 0
	for s := range 3600 {
		for i := range 100 {
			l.Note(at(float64(s)), health("u", i, "unhealthy"))
			told++
		}
		l.Look(at(float64(s)))
	}
	l.Flush(at(3600))
	single, sums, times := 0, 0, 0
	for line := range strings.Lines(b.text.String()) {
		var n int
		if _, after, ok := strings.Cut(line, "times="); ok {
			fmt.Sscan(after, &n)
			sums++
		} else {
			n = 1
			single++
		}
		times += n
	}
	if times != told || sums > 400 || single > 3620 {
		t.Errorf("%d lines and %d sums report %d of %d", single, sums, times, told)
	}
}

// TestLinesFromAnywhere has the race detector look.
func TestLinesFromAnywhere(t *testing.T) {
	l := monitor.NewLines(slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 500 {
				l.Note(int64(i), health(name(g%2), i, "healthy"))
				l.Look(int64(i))
			}
		})
	}
	all.Wait()
}

// A stage is one upstream that is looked at.
type stage struct {
	book
	t *testing.T
	*monitor.Outages
	up monitor.Upstream
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, up: monitor.Upstream{Key: 1, Name: "shop"}}
	s.Outages = monitor.NewOutages(s.log())
	return s
}

// look looks at a time at which the upstream is in a condition, and as many clients more were
// refused, and twice as many held.
func (s *stage) look(seconds float64, c monitor.Condition, refused int64, lines ...string) {
	s.t.Helper()
	s.up.Condition = c
	s.up.Refused += refused
	s.up.Held += 2 * refused
	s.Look(at(seconds), []monitor.Upstream{s.up}, func(any) string { return "a: down" })
	s.says(s.t, name(int(seconds)), lines...)
}

const (
	begins = `level=WARN msg="an upstream has no usable endpoint" upstream=shop cause="a: down"`
	ends   = `level=INFO msg="an upstream has a usable endpoint again" upstream=shop duration=`
)

// TestOutageIsLoggedOnce at its begin, and at its end with its duration and the clients that it
// has cost, counted from the last look before it.
func TestOutageIsLoggedOnce(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 5)
	now := s.up
	now.Condition, now.Refused = monitor.Unusable, now.Refused+3 // since the last look
	if o, ok := s.Of(at(1.5), &now); !ok || o.Since != at(1.5) || o.Refused != 3 || o.Condition != monitor.Unusable {
		t.Errorf("before a look has got it, it is %+v, %v", o, ok)
	}
	s.look(2, monitor.Unusable, 7, begins)
	s.look(3, monitor.Unusable, 100)
	now = s.up
	now.Refused += 3
	if o, ok := s.Of(at(3.5), &now); !ok || o.Since != at(2) || o.Refused != 110 || o.Held != 214 || o.Condition != monitor.Unusable {
		t.Errorf("it is %+v, %v", o, ok)
	}
	s.look(12.075, monitor.Usable, 1)
	if o, ok := s.Of(at(9), &s.up); ok {
		t.Errorf("when it is over: %+v", o)
	}
	s.look(13.075, monitor.Usable, 10, ends+"10s refused=108 held=216 fallbacks=0")
	s.look(14.075, monitor.Usable, 0)
}

// TestOutageThatIsBack: an outage that recurs is reported as begun when it came back, with the
// clients that it has cost since. Its line at the end is about all of it.
func TestOutageThatIsBack(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 0)
	s.look(2, monitor.Unusable, 7, begins)
	s.look(3, monitor.Usable, 1)
	s.look(3.5, monitor.Unusable, 2)
	s.look(4, monitor.Unusable, 3)
	if o, ok := s.Of(at(9), &s.up); !ok || o.Since != at(3.5) || o.Refused != 5 || o.Held != 10 {
		t.Errorf("it is %+v, %v", o, ok)
	}
	s.look(5, monitor.Usable, 0)
	s.look(6, monitor.Usable, 0, ends+"3s refused=13 held=26 fallbacks=0 recurred=1")
}

// TestUpstreamThatGoesInAnOutage: the line at its end reports that the upstream is gone.
func TestUpstreamThatGoesInAnOutage(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 0)
	s.look(2, monitor.Unusable, 7, begins)
	s.Look(at(4), nil, nil)
	s.says(t, "it is gone", `level=INFO msg="an upstream that could take no clients was removed" upstream=shop duration=2s refused=7 held=14 fallbacks=0`)
	s.Look(at(5), nil, nil)
	s.says(t, "it was gone")
}

// TestUpstreamThatGoesAfterAnOutage: the end of the outage was logged when it was over, and is not
// logged again.
func TestUpstreamThatGoesAfterAnOutage(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Usable, 0)
	s.look(2, monitor.Unusable, 7, begins)
	s.look(3, monitor.Usable, 0)
	s.look(4, monitor.Usable, 0, ends+"1s refused=7 held=14 fallbacks=0")
	s.Look(at(5), nil, nil)
	s.says(t, "it is gone")
}

// TestOutageThatRecurs is logged less and less often.
func TestOutageThatRecurs(t *testing.T) {
	s := newStage(t)
	now := 0.0
	lines := 0
	for range 360 { // half an hour of 2 s and 3 s
		for _, c := range []monitor.Condition{monitor.Unusable, monitor.Unusable, monitor.Usable, monitor.Usable, monitor.Usable} {
			now++
			s.up.Condition = c
			s.Look(at(now), []monitor.Upstream{s.up}, func(any) string { return "" })
			lines += strings.Count(s.text.String(), "\n")
			s.text.Reset()
		}
	}
	if lines > 8 {
		t.Errorf("%d lines of an upstream that flaps", lines)
	}
	s.Look(at(now+40), []monitor.Upstream{s.up}, nil)
	if text := s.text.String(); !strings.Contains(text, "recurred=") {
		t.Errorf("its end is logged as %q", text)
	}
	s.text.Reset()
	s.look(now+200, monitor.Unusable, 0, begins)
	s.look(now+201, monitor.Usable, 0)
	s.look(now+202, monitor.Usable, 0, ends+"1s refused=0 held=0 fallbacks=0")
}

// TestFullIsNoOutage for a moment, and one of its own after some seconds.
func TestFullIsNoOutage(t *testing.T) {
	s := newStage(t)
	for i := range 100 {
		s.look(float64(i), monitor.Full, 1)
		if i%4 == 3 {
			s.look(float64(i)+.5, monitor.Usable, 0)
		}
	}
	s.look(100, monitor.Usable, 0)
	s.look(101, monitor.Full, 0)
	s.look(105.9, monitor.Full, 3)
	s.look(106, monitor.Full, 1, `level=WARN msg="every usable endpoint of an upstream is at its limit" upstream=shop cause="a: down"`)
	s.look(107, monitor.Unusable, 2, begins)
	s.look(110, monitor.Full, 1)
	s.look(111, monitor.Full, 1, strings.Replace(ends, "a usable endpoint again", "usable endpoints again, but they are at their limit", 1)+"3s refused=3 held=6 fallbacks=0")
}

// TestAFullUpstreamHasRoom is the end of a time at the limit.
func TestAFullUpstreamHasRoom(t *testing.T) {
	s := newStage(t)
	s.look(1, monitor.Full, 0)
	s.look(6, monitor.Full, 1, `level=WARN msg="every usable endpoint of an upstream is at its limit" upstream=shop cause="a: down"`)
	s.look(8, monitor.Usable, 1)
	s.look(9, monitor.Usable, 0, strings.Replace(ends, "an upstream has a usable endpoint again", "an upstream is no longer at its limit", 1)+"7s refused=2 held=4 fallbacks=0")
}

// TestManyOutages are some lines, and the number of the others.
func TestManyOutages(t *testing.T) {
	s := newStage(t)
	all := make([]monitor.Upstream, 1000)
	look := func(seconds float64, c monitor.Condition) (lines int, text string) {
		for i := range all {
			all[i] = monitor.Upstream{Key: i, Name: name(i), Condition: c}
		}
		s.Look(at(seconds), all, func(any) string { return "" })
		text = s.text.String()
		s.text.Reset()
		return strings.Count(text, "\n"), text
	}
	if n, text := look(1, monitor.Unusable); n != 21 || !strings.Contains(text, `msg="more upstreams have no usable endpoint" upstreams=980`) {
		t.Errorf("%d lines, of them %s", n, text)
	}
	look(2, monitor.Usable)
	if n, text := look(3, monitor.Usable); n != 21 || !strings.Contains(text, `upstreams=980`) {
		t.Errorf("%d lines at the end, of them %s", n, text)
	}
	s.Look(at(4), nil, nil)
	if _, ok := s.Of(at(9), &monitor.Upstream{Key: 1}); ok {
		t.Error("an upstream that is gone has an outage")
	}
}

// TestUnservedOfAnOutage: sessions that endpoints have ended without a byte are among its cost.
func TestUnservedOfAnOutage(t *testing.T) {
	s := newStage(t)
	s.up.Unserved = 4
	s.look(1, monitor.Usable, 0)
	s.up.Unserved = 9
	s.look(2, monitor.Unusable, 0, begins)
	s.up.Unserved = 140
	s.look(3, monitor.Unusable, 0)
	if o, ok := s.Of(at(9), &s.up); !ok || o.Unserved != 136 {
		t.Errorf("it is %+v, %v", o, ok)
	}
	s.look(4, monitor.Usable, 0)
	s.look(5, monitor.Usable, 0, ends+"2s refused=0 held=0 fallbacks=0 unserved=136")
}

// reasons are those of each counter, by its key.
type reasons map[any]map[string]int64

func (r reasons) Reasons(c *monitor.Counter) map[string]int64 { return maps.Clone(r[c.Key]) }

// Attrs is for those that have a reason of that name.
func (r reasons) Attrs(_ *monitor.Counter, increase map[string]int64) []any {
	if n, ok := increase["answered"]; ok {
		return []any{"answered", n}
	}
	return nil
}

func (r reasons) Level(_ *monitor.Counter, increase map[string]int64) slog.Level {
	if increase["rule"] > 0 {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// TestSumsAreLoggedOnceAMinute: the first rise of each counter is logged at once, whatever else
// was logged before. Later ones are logged when a minute is over. A counter that does not rise is
// never logged, and the rest is logged at the end.
func TestSumsAreLoggedOnceAMinute(t *testing.T) {
	var b book
	s := monitor.NewSums(b.log())
	of := reasons{}
	a := monitor.Counter{Key: "a", Message: "clients refused", Kind: "listener", Name: "web"}
	z := monitor.Counter{Key: "z", Message: "clients refused", Kind: "upstream", Name: "shop"}
	count := func(c *monitor.Counter, reason string, n int64) {
		if of[c.Key] == nil {
			of[c.Key] = map[string]int64{}
		}
		of[c.Key][reason] += n
		c.Total += n
	}
	look := func(seconds float64, lines ...string) {
		t.Helper()
		s.Look(at(seconds), []monitor.Counter{a, z}, of)
		b.says(t, fmt.Sprint(seconds), lines...)
	}
	look(1)
	look(99)
	count(&a, "rule", 3)
	look(100, `level=INFO msg="clients refused" listener=web times=3 within=1s reasons="rule 3"`)
	count(&a, "other", 2)
	count(&z, "failed", 2)
	look(101, `level=WARN msg="clients refused" upstream=shop times=2 within=1s reasons="failed 2"`)
	look(102)
	count(&z, "failed", 1)
	count(&z, "full", 4)
	look(159.9)
	look(160,
		`level=WARN msg="clients refused" upstream=shop times=5 within=58s reasons="full 4, failed 1"`,
		`level=WARN msg="clients refused" listener=web times=2 within=1m0s reasons="other 2"`)
	look(220)
	look(229)
	count(&z, "failed", 1)
	look(230, `level=WARN msg="clients refused" upstream=shop times=1 age=1s reasons="failed 1"`)
	count(&z, "failed", 5)
	look(231)
	if n := s.Recent(at(231), "z", "clients refused"); n != 6 {
		t.Errorf("%d in the last minute, want 6", n)
	}
	if n := s.Recent(at(300), "z", "clients refused"); n != 0 {
		t.Errorf("%d in the last minute, a minute later", n)
	}
	s.Flush(at(232), of)
	b.says(t, "at the end", `level=WARN msg="clients refused" upstream=shop times=5 within=2s reasons="failed 5"`)
	count(&a, "answered", 2)
	s.Look(at(300), []monitor.Counter{a, z, {Key: "q", Message: "quiet", Total: 7, Unlogged: true}}, of)
	b.says(t, "a count that the counter has itself", `level=WARN msg="clients refused" listener=web times=2 within=1m9s answered=2`)
	if n := s.Recent(at(300), "q", "quiet"); n != 7 {
		t.Errorf("%d of one without a line, want 7", n)
	}
	s.Flush(at(301), of)
	b.says(t, "at the end once more")
}

// TestFirstsAreBounded: counters that rise for the first time within a minute, one after the
// other, have as many lines as those that rise together, and the rest wait for the minute's end;
// another message has its own.
func TestFirstsAreBounded(t *testing.T) {
	var b book
	s := monitor.NewSums(b.log())
	var list []monitor.Counter
	lines := func() int {
		defer b.text.Reset()
		return strings.Count(b.text.String(), "\n")
	}
	for i := range 50 {
		list = append(list, monitor.Counter{Key: i, Message: "clients refused", Kind: "listener", Name: name(i), Total: 1})
		s.Look(at(float64(1+i)), list, reasons{})
	}
	if n := lines(); n != 20 {
		t.Errorf("%d lines within a minute", n)
	}
	list = append(list, monitor.Counter{Key: 0, Message: "clients held", Kind: "upstream", Name: "u", Total: 1})
	s.Look(at(51), list, reasons{})
	b.says(t, "of another kind", `level=WARN msg="clients held" upstream=u times=1 age=0s`)
	s.Look(at(61), list, reasons{})
	if n := lines(); n != 21 {
		t.Errorf("%d lines when it is over", n)
	}
}

// TestSumsAreBounded: the counters that have risen most have a line each, the others one
// together. A counter that is gone is forgotten.
func TestSumsAreBounded(t *testing.T) {
	var b book
	s := monitor.NewSums(b.log())
	var list []monitor.Counter
	for i := range 1000 {
		list = append(list, monitor.Counter{Key: i, Message: "clients refused", Kind: "listener", Name: name(i), Total: int64(i)})
	}
	s.Look(at(1), list, reasons{})
	text := b.text.String()
	rest := 0
	for i := range 980 {
		rest += i
	}
	if n := strings.Count(text, "\n"); n != 21 || !strings.Contains(text, "listener=u999 times=999") || !strings.Contains(text, fmt.Sprintf("others=979 of=listener times=%d", rest)) {
		t.Errorf("%d lines: %s", n, text)
	}
	b.text.Reset()
	s.Look(at(100), nil, reasons{})
	s.Look(at(101), list, reasons{})
	if n := s.Recent(at(101), 999, "clients refused"); n != 999 {
		t.Errorf("one that is there anew has risen by %d, want 999", n)
	}
}

// TestRestsAreByKind: a client that a listener and its upstream have refused is counted once in
// each one's rest, and not twice in one.
func TestRestsAreByKind(t *testing.T) {
	var b book
	s := monitor.NewSums(b.log())
	var list []monitor.Counter
	for i := range 40 {
		for _, kind := range []string{"listener", "upstream"} {
			list = append(list, monitor.Counter{Key: kind + name(i), Message: "clients refused", Kind: kind, Name: name(i), Total: 10})
		}
	}
	s.Look(at(1), list, reasons{})
	text := b.text.String()
	if n := strings.Count(text, "\n"); n != 22 || !strings.Contains(text, "others=20 of=listener times=200") || !strings.Contains(text, "others=40 of=upstream times=400") {
		t.Errorf("%d lines: %s", n, text)
	}
}

// TestSumsOfWhatIsGone: a counter that is gone may have risen before. That is logged when a
// minute is over, or at the end, and once.
func TestSumsOfWhatIsGone(t *testing.T) {
	var b book
	s := monitor.NewSums(b.log())
	of := reasons{"z": {"failed": 2}}
	z := monitor.Counter{Key: "z", Message: "clients refused", Kind: "upstream", Name: "shop", Total: 2}
	look := func(seconds float64, counters []monitor.Counter, lines ...string) {
		t.Helper()
		s.Look(at(seconds), counters, of)
		b.says(t, fmt.Sprint(seconds), lines...)
	}
	look(100, []monitor.Counter{z}, `level=WARN msg="clients refused" upstream=shop times=2 within=0s reasons="failed 2"`)
	z.Total, of["z"] = 5, map[string]int64{"failed": 5}
	look(101, []monitor.Counter{z})
	look(102, nil)
	look(160, nil, `level=WARN msg="clients refused" upstream=shop times=3 within=1m0s reasons="failed 3"`)
	look(161, nil)
	if n := s.Recent(at(161), "z", "clients refused"); n != 0 {
		t.Errorf("%d in the last minute of a counter that is gone and logged", n)
	}
	z.Total, of["z"] = 1, map[string]int64{"failed": 1}
	look(162, []monitor.Counter{z}, `level=WARN msg="clients refused" upstream=shop times=1 age=0s reasons="failed 1"`)
	z.Total, of["z"] = 4, map[string]int64{"failed": 4}
	look(163, []monitor.Counter{z})
	look(164, nil)
	s.Flush(at(165), of)
	b.says(t, "at the end", `level=WARN msg="clients refused" upstream=shop times=3 within=3s reasons="failed 3"`)
}

// TestReasonsOfALaterMoment: reasons that are looked at after the counter, which has risen since, are
// counted once, and a line's numbers are of one moment.
func TestReasonsOfALaterMoment(t *testing.T) {
	var b book
	s := monitor.NewSums(b.log())
	of := reasons{"a": {"upstream": 23}}
	a := monitor.Counter{Key: "a", Message: "clients refused", Kind: "listener", Name: "web", Total: 22}
	look := func(seconds float64, lines ...string) {
		t.Helper()
		s.Look(at(seconds), []monitor.Counter{a}, of)
		b.says(t, fmt.Sprint(seconds), lines...)
	}
	look(1, `level=WARN msg="clients refused" listener=web times=23 within=0s reasons="upstream 23"`)
	a.Total = 23
	look(2)
	look(62)
	a.Total, of["a"]["upstream"] = 24, 24
	look(63, `level=WARN msg="clients refused" listener=web times=1 age=1s reasons="upstream 1"`)
	s.Flush(at(64), of)
	b.says(t, "the end")
}
