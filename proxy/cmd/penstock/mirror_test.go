package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/tally"
)

func comparedWith() *admin.MirrorReports {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	return &admin.MirrorReports{Mirrors: []admin.MirrorReport{{Listener: "cache", Since: since, Mirrors: admin.Mirrors{
		To: []string{"next"}, MirrorCounts: tally.MirrorCounts{Running: 1}, Ended: map[string]int64{"complete": 99, "behind": 1},
		Comparisons: []admin.Comparison{{
			To: "next", Framing: "lines", Since: since, Sessions: 1000, Stopped: map[string]int64{"full": 2, "budget": 1}, Unnamed: 3,
			ComparedAnswers: admin.ComparedAnswers{
				Compared: 2000, Equal: 1990, Different: 10, Unsettled: 5,
				Lag: admin.ShadowLag{Slower: 1200, Faster: 700, Alike: 100, P50Us: 120, P90Us: 900, P99Us: 4000},
			},
			Names:    []admin.NamedAnswers{{Name: "GET", ComparedAnswers: admin.ComparedAnswers{Compared: 2000, Equal: 1990, Different: 10, Lag: admin.ShadowLag{Faster: 1, P50Us: -5}}}},
			Examples: []admin.Example{{Name: "GET", Offset: 3, Exact: true, Redacted: true, Primary: admin.Excerpt{Text: `$0\r\n`, Length: 9}, Shadow: admin.Excerpt{Text: "\x1b[2J", Length: 8}}},
		}},
	}}}}
}

// judged returns the exit code of conditions, separated by spaces, and what is said.
func judged(t *testing.T, m *admin.MirrorReports, conditions string) (code int, said string) {
	t.Helper()
	var list []bound
	for text := range strings.FieldsSeq(conditions) {
		one, err := parseCondition(text)
		must(t, err)
		list = append(list, one)
	}
	var text strings.Builder
	var exit cli.ExitCode
	errors.As(judgeMirrors(&text, m, list), &exit)
	return int(exit), text.String()
}

// TestMirrorConditions: a condition that holds and one of which too little is known have exit codes of their own, and reasons. Where
// more than 1 % of the sessions or answers were not compared to their end, a condition on answers that does not hold is unknown, and one that
// holds still does; a condition on those sessions sets its own bound. Without compare, conditions on the mirrors that ended are decided.
func TestMirrorConditions(t *testing.T) {
	t.Parallel()

	as := func(change func(m *admin.MirrorReport)) *admin.MirrorReports {
		m := comparedWith()
		change(&m.Mirrors[0])
		return m
	}
	all := comparedWith()
	unframed := as(func(m *admin.MirrorReport) {
		m.Comparisons[0].Sessions, m.Comparisons[0].Stopped = 37, map[string]int64{"unframed": 37}
	})
	refused := as(func(m *admin.MirrorReport) {
		m.Ended = map[string]int64{"complete": 90, "cut": 5, "connect": 3, "behind": 2}
	})
	few := as(func(m *admin.MirrorReport) {
		m.Comparisons[0].Stopped, m.Ended = map[string]int64{"full": 5, "budget": 5}, map[string]int64{"complete": 95, "cut": 4, "connect": 1}
	})
	frozen := as(func(m *admin.MirrorReport) { m.Comparisons[0].Unsettled = 300 })
	uncompared := as(func(m *admin.MirrorReport) { m.Comparisons, m.Ended = nil, map[string]int64{"complete": 15} })
	for _, c := range []struct {
		of               *admin.MirrorReports
		conditions, says string
		code             int
	}{
		{all, "different>0.1%", "10 of 2000 answers: different (0.5 %)", cli.ExitCondition},
		{all, "different>0.5%", "", 0},
		{all, "different>=0.5%", "10 of 2000", cli.ExitCondition},
		{all, "different>10", "", 0},
		{all, "different>9", "10 of 2000 answers: different", cli.ExitCondition},
		{all, "different>0.001%", "10 of 2000", cli.ExitCondition},
		{all, "masked>0.01%", "too little is known: 2000 answers, and 10000 are needed", cli.ExitUnknown},
		{all, "masked>0.1%", "", 0},
		{all, "equal<99.9%", "1990 of 2000", cli.ExitCondition},
		{all, "compared<100", "", 0},
		{all, "compared<2001", "2000 answers compared", cli.ExitCondition},
		{all, "slower>119us", "120µs, of 2000 answers", cli.ExitCondition},
		{all, "slower>5ms", "", 0},
		{all, "faster>5ms", "", 0},
		{all, "slower>50%", "1200 of 2000 answers: slower (60 %)", cli.ExitCondition},
		{all, "p99>3ms", "4ms, of 2000 answers", cli.ExitCondition},
		{all, "p90<=900us", "900µs", cli.ExitCondition},
		{all, "stopped>0.2%", "3 of 1001 sessions: stopped (0.3 %)", cli.ExitCondition},
		{all, "behind>=1%", "1 of 100 mirrors that have ended: behind (1 %)", cli.ExitCondition},
		{all, "late>1%", "", 0},
		{all, "late>0.5%", "too little is known: 100 mirrors that have ended, and 200 are needed", cli.ExitUnknown},
		{unframed, "different>1%", "37 of 37 sessions stopped comparing (unframed 37)", cli.ExitUnknown},
		{unframed, "different>0", "10 of 2000 answers: different", cli.ExitCondition},
		{unframed, "p99>1s", "37 of 37 sessions", cli.ExitUnknown},
		{unframed, "unsettled>5%", "37 of 37 sessions", cli.ExitUnknown},
		{unframed, "compared<10", "", 0},
		{unframed, "stopped>5%", "37 of 37 sessions: stopped", cli.ExitCondition},
		{unframed, "different>1% stopped>5%", "37 of 37 sessions: stopped", cli.ExitCondition},
		{unframed, "different>1% stopped>100%", "", 0},
		{refused, "different>1%", "5 of 100 mirrors ended before their answers were compared (behind 2, connect 3)", cli.ExitUnknown},
		{refused, "different>1% connect>10%", "2 of 100 mirrors ended before their answers were compared (behind 2)", cli.ExitUnknown},
		{refused, "different>1% connect>10% behind>10%", "", 0},
		{few, "different>1% p99>1s", "", 0},
		{frozen, "different>1%", "300 of 2300 answers were not compared to their end", cli.ExitUnknown},
		{frozen, "different>1% unsettled>20%", "", 0},
		{frozen, "unsettled>5%", "300 of 2300 answers: unsettled", cli.ExitCondition},
		{uncompared, "complete>3", "15 of 15 mirrors that have ended: complete", cli.ExitCondition},
		{uncompared, "complete<3", "", 0},
		{uncompared, "behind>1", "", 0},
		{uncompared, "different>0", "cache: different>0: answers are not compared", cli.ExitUnknown},
		{uncompared, "compared<1", "answers are not compared", cli.ExitUnknown},
		{new(admin.MirrorReports), "complete>3", "no listener has mirrors", cli.ExitUnknown},
	} {
		if code, said := judged(t, c.of, c.conditions); code != c.code || (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: exit code %d, %q, want %d, %q", c.conditions, code, said, c.code, c.says)
		}
	}
	none := &admin.MirrorReports{Mirrors: []admin.MirrorReport{{Listener: "l", Mirrors: admin.Mirrors{Comparisons: []admin.Comparison{{To: "s"}}}}}}
	for _, text := range []string{"different>0.1%", "different>0", "different>=0", "equal<100%", "slower>5ms", "p99>1s", "behind>1%", "stopped>1"} {
		if code, said := judged(t, none, text); code != cli.ExitUnknown {
			t.Errorf("%s of no answers: exit code %d, %q", text, code, said)
		}
	}
}

// TestBadConditions: a condition that is none is refused, with what to write.
func TestBadConditions(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"": "write a figure", "different": "write a figure", "different=1": "write a figure", "differ>1": "there is no figure differ",
		"different>x": "write a number, a percentage", "different>-1": "write a number", "different>5ms": "different is not a time",
		"compared<5%": "compared is a number of answers", "p99>5": "p99 is a time", "slower>NaN": "write a number", "behind>1s": "behind is not a time",
		"different>150%": "the share of different is at most 100%", "behind>=100.1%": "the share of behind is at most 100%",
	} {
		if _, err := parseCondition(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestWriteMirrors: the report names methods and examples, and shows no bytes of others as they are.
func TestWriteMirrors(t *testing.T) {
	t.Parallel()

	var b strings.Builder
	must(t, writeMirrors(&b, comparedWith()))
	for _, want := range []string{
		"cache has mirrors to next: 1 running, 100 ended (behind 1, complete 99) since 2026-01-02 03:04:05\n",
		"cache to next: 2000 answers compared (lines), 1990 equal, 10 different (0.5 %); slower 60 %, faster 35 %: 120µs later by the median, p99 4ms later; 1000 sessions since 2026-01-02 03:04:05, stopped comparing (budget 1, full 2)\n",
		"3 sessions with unknown methods", "GET      2000   1990         10", "-5 us", "different: GET, at byte 3 of the answer\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	if err := writeMirrors(&b, &admin.MirrorReports{}); err != nil || b.String() != "no listener has mirrors\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestSilentMirrors: the status warns of mirrors that get no answer, if clients do.
func TestSilentMirrors(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		silent, down int64
		warns        bool
	}{{10, 1, true}, {9, 1, false}, {10, 0, false}} {
		var text statusText
		text.listener(&admin.Listener{Name: "l", Bytes: admin.Bytes{EndpointToClient: admin.ByEngine{Lane: c.down}}, Mirrors: &admin.Mirrors{To: []string{"s"}, MirrorCounts: tally.MirrorCounts{Silent: c.silent}}})
		if got := strings.Contains(strings.Join(text.notes[0], " "), "WARNING: the last 10 complete mirrors"); got != c.warns {
			t.Errorf("%+v: %q", c, text.notes)
		}
	}
}
