package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type mirrorCmd struct {
	adminFlags
	Listener string   `arg:"" optional:"" help:"Show only the mirrors of this listener."`
	FailIf   []string `name:"fail-if" sep:"none" placeholder:"CONDITION" help:"Exit with 3 if this condition holds for a comparison: 'different>0.1%', 'different>=1', 'slower>5ms' (by the median), 'p99>20ms', 'slower>60%', 'compared<1000', 'stopped>5%', or a reason why mirrors end, such as 'behind>1%'. Exit with 4 if it cannot be judged: there are too few answers, or more than 1 % of the sessions or answers were not compared to their end. May be repeated."`
	Reset    bool     `help:"Print the report, and set its counts to 0."`
	JSON     bool     `name:"json" help:"Print JSON."`
}

func (c *mirrorCmd) Run(e *cli.Env) error {
	var conditions []bound
	for _, text := range c.FailIf {
		one, err := parseCondition(text)
		if err != nil {
			return cli.Usagef("mirror: --fail-if: %w", err)
		}
		conditions = append(conditions, one)
	}
	return c.ask(e, "mirror", func(ctx context.Context, client *admin.Client) error {
		ask := client.Mirrors
		if c.Reset {
			ask = client.ResetMirrors
		}
		m, err := ask(ctx, c.Listener)
		switch {
		case err != nil:
		case c.JSON:
			err = writeJSON(e.Stdout, m)
		default:
			err = writeMirrors(e.Stdout, &m)
		}
		if err != nil {
			return err
		}
		return judgeMirrors(e.Stderr, &m, conditions)
	})
}

// judgeMirrors writes which conditions hold for which comparisons, and returns the exit code.
func judgeMirrors(w io.Writer, m *admin.MirrorReports, conditions []bound) error {
	if len(conditions) == 0 {
		return nil
	}
	if len(m.Mirrors) == 0 {
		fmt.Fprintln(w, "penstock: mirror: no condition can be checked, because no listener has mirrors")
		return cli.ExitCode(cli.ExitUnknown)
	}
	worst := fine
	for i := range m.Mirrors {
		report := &m.Mirrors[i]
		if len(report.Comparisons) == 0 {
			worst = max(worst, judgeUncompared(w, report, conditions))
		}
		for j := range report.Comparisons {
			k := &report.Comparisons[j]
			gap := uncompared(report, k, conditions)
			for _, one := range conditions {
				found, why := one.judge(report, k)
				if found == fine && gap != "" && one.ofAnswers() {
					found, why = unclear, "too little is known: "+gap
				}
				if found != fine {
					fmt.Fprintf(w, "penstock: mirror: %s: %s: %s\n", comparisonName(report.Listener, k), one.text, why)
				}
				worst = max(worst, found)
			}
		}
	}
	switch worst {
	case holds:
		return cli.ExitCode(cli.ExitCondition)
	case unclear:
		return cli.ExitCode(cli.ExitUnknown)
	}
	return nil
}

// judgeUncompared is judgeMirrors for a mirror without compare: only the reasons why its mirrors ended are known.
func judgeUncompared(w io.Writer, report *admin.MirrorReport, conditions []bound) finding {
	worst := fine
	for _, one := range conditions {
		found, why := unclear, "answers are not compared, because the mirror has no key compare"
		if slices.Contains(mirrorFigures, one.figure) {
			found, why = one.judge(report, new(admin.Comparison))
		}
		if found != fine {
			fmt.Fprintf(w, "penstock: mirror: %s: %s: %s\n", display.Text(report.Listener), one.text, why)
		}
		worst = max(worst, found)
	}
	return worst
}

func comparisonName(listener string, k *admin.Comparison) string {
	name := listener
	name += when(k.Route != "", " ("+k.Route+")")
	return display.Text(name + " to " + k.To)
}

func writeMirrors(w io.Writer, m *admin.MirrorReports) error {
	if len(m.Mirrors) == 0 {
		return say(w, "no listener has mirrors\n")
	}
	var text strings.Builder
	for i := range m.Mirrors {
		report := &m.Mirrors[i]
		fmt.Fprintf(&text, "%s has mirrors to %s: %d running, %d ended%s%s\n", display.Text(report.Listener), display.Text(mirroredTo(&report.Mirrors)), report.Running, total(report.Ended), display.Text(byReason(report.Ended)), sinceReset(report.Since))
		if report.Unanswered > 0 {
			fmt.Fprintf(&text, "    %d complete mirrors got no byte of an answer, among them the last %d\n", report.Unanswered, report.Silent)
		}
		for j := range report.Comparisons {
			if err := writeComparison(&text, report.Listener, &report.Comparisons[j]); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// sinceReset says since when a report counts.
func sinceReset(t time.Time) string {
	if t.IsZero() {
		return " since the start"
	}
	return " since " + t.Format(time.DateTime)
}

func mirroredTo(m *admin.Mirrors) string {
	if len(m.To) == 0 {
		return "no upstream now"
	}
	return strings.Join(m.To, ", ")
}

func writeComparison(text *strings.Builder, listener string, k *admin.Comparison) error {
	fmt.Fprintf(text, "\n%s: %s\n", comparisonName(listener, k), comparisonLine(k))
	for _, note := range []struct {
		n    int64
		text string
	}{
		{k.Unnamed, "sessions with unknown methods, because not everything that the client sent was seen"},
		{k.ShadowUnframed, "sessions with answers of the mirror that were not " + k.Framing},
		{k.MaskLimited, "places in long answers where a mask did not see all bytes"},
	} {
		if note.n > 0 {
			fmt.Fprintf(text, "    %d %s\n", note.n, display.Text(note.text))
		}
	}
	if len(k.Names) > 0 {
		form := tabwriter.NewWriter(text, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(form, "\tcompared\tequal\tdifferent\tmasked\tunsettled\tp50\tp90\tp99\t")
		for i := range k.Names {
			n := &k.Names[i]
			fmt.Fprintf(form, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t\n", display.Text(n.Name), n.Compared, n.Equal, n.Different, n.Masked, n.Unsettled, lagCells(&n.Lag))
		}
		if err := form.Flush(); err != nil {
			return err
		}
	}
	for i := range k.Examples {
		x := &k.Examples[i]
		at := fmt.Sprintf("at byte %d", x.Offset)
		if !x.Exact {
			at = fmt.Sprintf("from byte %d on", x.Offset)
		}
		fmt.Fprintf(text, "different: %s, %s of the answer\n    client got \"%s\" of %s\n    mirror has \"%s\" of %s\n", display.Text(x.Name), at,
			display.Text(x.Primary.Text), bytesText(int64(x.Primary.Length)), display.Text(x.Shadow.Text), bytesText(int64(x.Shadow.Length)))
	}
	return nil
}

func comparisonLine(k *admin.Comparison) string {
	line := fmt.Sprintf("%s compared (%s), %d equal, %d different", plural(k.Compared, "answer", "answers"), display.Text(k.Framing), k.Equal, k.Different)
	line += when(k.Compared > 0, fmt.Sprintf(" (%.3g %%)", 100*float64(k.Different)/float64(k.Compared)))
	if n := k.Lag.Slower + k.Lag.Faster + k.Lag.Alike; n > 0 {
		line += fmt.Sprintf("; slower %s, faster %s: %s by the median, p99 %s", percent(float64(k.Lag.Slower)/float64(n)), percent(float64(k.Lag.Faster)/float64(n)),
			lagText(k.Lag.P50Us), lagText(k.Lag.P99Us))
	}
	line += fmt.Sprintf("; %s since %s", plural(k.Sessions, "session", "sessions"), k.Since.Format(time.DateTime))
	line += when(len(k.Stopped) > 0, ", stopped comparing"+display.Text(byReason(k.Stopped)))
	return line
}

// lagText says how much later the mirror was.
func lagText(us int64) string {
	d := time.Duration(us) * time.Microsecond
	if d < 0 {
		return (-d).String() + " earlier"
	}
	return d.String() + " later"
}

func lagCells(l *admin.ShadowLag) string {
	if l.Slower+l.Faster+l.Alike == 0 {
		return "-\t-\t-"
	}
	cells := make([]string, 0, 3)
	for _, us := range []int64{l.P50Us, l.P90Us, l.P99Us} {
		cells = append(cells, fmt.Sprintf("%+d us", us))
	}
	return strings.Join(cells, "\t")
}

// A bound is a condition of --fail-if: a figure, an operator (> >= < <=), and a number, a percentage or a time.
type bound struct {
	text         string
	figure, sign string
	limit        float64
	unit         boundUnit
}

type boundUnit uint8

const (
	asNumber boundUnit = iota
	asShare            // percent of all
	asTime             // microseconds
)

// A finding says whether a condition holds. If there are several findings, the largest
// counts.
type finding uint8

const (
	fine    finding = iota
	unclear         // too little is known
	holds           // the condition holds, so the command fails
)

var conditionForm = regexp.MustCompile(`^\s*([a-z0-9_]+)\s*(>=|<=|>|<)\s*(\S+)\s*$`)

// answerFigures are the figures of a comparison, and mirrorFigures the reasons why mirrors end.
var (
	answerFigures = []string{"compared", "equal", "different", "unsettled", "masked", "slower", "faster", "p90", "p99", "stopped"}
	mirrorFigures = []string{"complete", "behind", "late", "connect", "reset", "pipe", "cut", "error", "no_endpoint", "full", "descriptors"}
)

func parseCondition(text string) (bound, error) {
	parts := conditionForm.FindStringSubmatch(text)
	if parts == nil {
		return bound{}, fmt.Errorf("%q is not a condition: write a figure, one of > >= < <=, and a bound, such as 'different>0.1%%'", text)
	}
	c := bound{text: strings.TrimSpace(text), figure: parts[1], sign: parts[2]}
	if !slices.Contains(answerFigures, c.figure) && !slices.Contains(mirrorFigures, c.figure) {
		return c, fmt.Errorf("%q: there is no figure %s: write one of %s", text, c.figure, strings.Join(slices.Concat(answerFigures, mirrorFigures), ", "))
	}
	if err := c.parseBound(parts[3]); err != nil {
		return c, fmt.Errorf("%q: %w", text, err)
	}
	timed, only := c.figure == "slower" || c.figure == "faster", c.figure == "p90" || c.figure == "p99"
	switch {
	case c.unit == asTime && !timed && !only:
		return c, fmt.Errorf("%q: %s is not a time: write a number or a percentage", text, c.figure)
	case c.unit != asTime && only:
		return c, fmt.Errorf("%q: %s is a time: write one, such as 20ms", text, c.figure)
	case c.unit == asShare && c.limit > 100:
		return c, fmt.Errorf("%q: the share of %s is at most 100%%: write a smaller percentage", text, c.figure)
	case c.unit == asShare && c.figure == "compared":
		return c, fmt.Errorf("%q: compared is a number of answers: write one", text)
	}
	return c, nil
}

func (c *bound) parseBound(text string) (err error) {
	number, percent := strings.CutSuffix(text, "%")
	if percent {
		c.unit = asShare
	}
	if c.limit, err = strconv.ParseFloat(number, 64); err == nil && c.limit >= 0 && !math.IsInf(c.limit, 0) {
		return nil
	}
	if d, notTime := time.ParseDuration(text); notTime == nil {
		c.unit, c.limit = asTime, float64(d)/float64(time.Microsecond)
		return nil
	}
	return fmt.Errorf("%s: write a number, a percentage such as 0.1%% or a time such as 5ms", text)
}

func (c *bound) exceeded(value float64) bool {
	switch c.sign {
	case ">":
		return value > c.limit
	case ">=":
		return value >= c.limit
	case "<":
		return value < c.limit
	}
	return value <= c.limit
}

// ofAnswers reports whether the condition is about properties of answers, which are unknown for answers that were not
// compared. compared and stopped are only counts, so they are always known.
func (c *bound) ofAnswers() bool {
	return c.figure != "compared" && c.figure != "stopped" && slices.Contains(answerFigures, c.figure)
}

// judge reports whether the condition holds for a comparison, and why.
func (c *bound) judge(report *admin.MirrorReport, k *admin.Comparison) (finding, string) {
	timed := k.Lag.Slower + k.Lag.Faster + k.Lag.Alike
	switch {
	case c.unit == asTime:
		return c.judgeLag(&k.Lag, timed)
	case c.figure == "compared":
		return c.judgeCount(k.Compared, k.Compared, "answers compared")
	case slices.Contains(mirrorFigures, c.figure):
		return c.judgeCount(report.Ended[c.figure], total(report.Ended), "mirrors that have ended: "+c.figure)
	}
	of := map[string][2]int64{
		"equal": {k.Equal, k.Compared}, "different": {k.Different, k.Compared}, "masked": {k.Masked, k.Compared + k.Masked},
		"unsettled": {k.Unsettled, k.Compared + k.Unsettled}, "slower": {k.Lag.Slower, timed}, "faster": {k.Lag.Faster, timed},
		"stopped": {total(k.Stopped), k.Sessions + k.Stopped[admin.StoppedBudget]},
	}[c.figure]
	what := "answers: " + c.figure
	if c.figure == "stopped" {
		what = "sessions: stopped"
	}
	return c.judgeCount(of[0], of[1], what)
}

// judgeCount judges n of all. It cannot judge a share below one of all, nor any share if all is 0.
func (c *bound) judgeCount(n, all int64, what string) (finding, string) {
	value := float64(n)
	if c.unit == asShare && all > 0 {
		value = 100 * float64(n) / float64(all)
	}
	text := fmt.Sprintf("%d of %d %s", n, all, what)
	text += when(c.unit == asShare && all > 0, fmt.Sprintf(" (%.3g %%)", value))
	least := int64(1)
	if c.unit == asShare && c.limit > 0 {
		least = int64(math.Min(math.Ceil(100/c.limit), math.MaxInt32))
	}
	switch {
	case c.figure == "compared":
		text = fmt.Sprintf("%d %s", n, what)
		if c.exceeded(value) {
			return holds, text
		}
		return fine, text
	case all > 0 && n > 0 && c.exceeded(value):
		return holds, text
	case all < least:
		return unclear, fmt.Sprintf("too little is known: %d %s, and %d are needed", all, strings.TrimSuffix(what, ": "+c.figure), least)
	case c.exceeded(value):
		return holds, text
	}
	return fine, text
}

// judgeLag judges a time. A quantile needs enough answers for at least one to lie beyond
// it.
func (c *bound) judgeLag(l *admin.ShadowLag, timed int64) (finding, string) {
	us, least := l.P50Us, int64(1)
	switch c.figure {
	case "faster":
		us = -us
	case "p90":
		us, least = l.P90Us, 10
	case "p99":
		us, least = l.P99Us, 100
	}
	if timed < least {
		return unclear, fmt.Sprintf("too little is known: the times of %d answers, and %d are needed", timed, least)
	}
	text := fmt.Sprintf("%v, of %d answers", time.Duration(us)*time.Microsecond, timed)
	if c.exceeded(float64(us)) {
		return holds, text
	}
	return fine, display.Text(text)
}

// mostUncompared is the largest share of incompletely compared sessions, in percent. Beyond it, a condition on
// answers that does not hold counts as unknown.
const mostUncompared = 1

// uncompared says which sessions, or how many answers, were not compared to their end. It returns "" if they are few
// enough to judge a condition on answers. If a condition bounds stopped, sessions that stopped comparing do not count
// here. If a condition bounds a reason, mirrors that ended for this reason do not count here.
func uncompared(report *admin.MirrorReport, k *admin.Comparison, conditions []bound) string {
	own := func(figure string) bool {
		return slices.ContainsFunc(conditions, func(c bound) bool { return c.figure == figure })
	}
	stopped, ended := total(k.Stopped), total(report.Ended)
	begun := k.Sessions + k.Stopped[admin.StoppedBudget]
	if !own("stopped") && tooMany(stopped, begun) {
		return fmt.Sprintf("%d of %d sessions stopped comparing%s; to allow more than %d %%, write a condition on stopped", stopped, begun, byReason(k.Stopped), mostUncompared)
	}
	if answers := k.Compared + k.Unsettled; !own("unsettled") && tooMany(k.Unsettled, answers) {
		return fmt.Sprintf("%d of %d answers were not compared to their end; to allow more than %d %%, write a condition on unsettled", k.Unsettled, answers, mostUncompared)
	}
	reasons := make(map[string]int64)
	for reason, n := range report.Ended {
		if reason != "complete" && reason != "cut" && !own(reason) {
			reasons[reason] = n
		}
	}
	if lost := total(reasons); tooMany(lost, ended) {
		return fmt.Sprintf("%d of %d mirrors ended before their answers were compared%s; to allow more than %d %%, write a condition on the reason", lost, ended, byReason(reasons), mostUncompared)
	}
	return ""
}

func tooMany(n, all int64) bool { return n*100 > all*mostUncompared }
