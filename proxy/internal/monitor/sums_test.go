package monitor_test

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/monitor"
)

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
	look(230, `level=WARN msg="clients refused" upstream=shop times=1 within=1s reasons="failed 1"`)
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
	b.says(t, "of another kind", `level=WARN msg="clients held" upstream=u times=1 within=0s`)
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
	look(162, []monitor.Counter{z}, `level=WARN msg="clients refused" upstream=shop times=1 within=0s reasons="failed 1"`)
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
	look(63, `level=WARN msg="clients refused" listener=web times=1 within=1s reasons="upstream 1"`)
	s.Flush(at(64), of)
	b.says(t, "the end")
}
