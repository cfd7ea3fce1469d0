package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type mirrorCmd struct {
	adminFlags
	Listener string   `arg:"" optional:"" help:"The mirrors of this listener alone."`
	FailIf   []string `name:"fail-if" sep:"none" placeholder:"CONDITION" help:"Exit code 3 if the condition holds for a comparison, and 4 if too little is known, as there are too few answers or more than 1 % of the sessions were not compared to their end: 'different>0.1%', 'different>=1', 'slower>5ms' (by the median), 'p99>20ms', 'slower>60%', 'compared<1000', 'stopped>5%', or a reason for which mirrors end, 'behind>1%'. May be repeated."`
	Reset    bool     `help:"Print the report, and have the next one count from now on: mirrors that ended, and answers that were compared."`
	JSON     bool     `name:"json" help:"In JSON."`
}

// Run prints the report on the mirrors of a running process.
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
		m, err := client.Mirrors(ctx, c.Listener)
		switch {
		case err != nil:
		case c.JSON:
			err = writeJSON(e.Stdout, m)
		default:
			err = writeMirrors(e.Stdout, &m)
		}
		if err == nil && c.Reset {
			err = client.ResetMirrors(ctx, c.Listener)
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
		fmt.Fprintln(w, "penstock: mirror: no listener has mirrors, so that no condition can be checked")
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

// judgeUncompared is judgeMirrors of a mirror without compare: the reasons for which its mirrors ended are counted, and nothing else is known.
func judgeUncompared(w io.Writer, report *admin.MirrorReport, conditions []bound) finding {
	worst := fine
	for _, one := range conditions {
		found, why := unclear, "answers are not compared: the mirror has no key compare"
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
	if k.Route != "" {
		name += " (" + k.Route + ")"
	}
	return display.Text(name + " to " + k.To)
}

// writeMirrors writes the report on each mirror.
func writeMirrors(w io.Writer, m *admin.MirrorReports) error {
	if len(m.Mirrors) == 0 {
		_, err := fmt.Fprintln(w, "no listener has mirrors")
		return err
	}
	var text strings.Builder
	for i := range m.Mirrors {
		report := &m.Mirrors[i]
		var ended int64
		for _, n := range report.Ended {
			ended += n
		}
		fmt.Fprintf(&text, "%s has mirrors to %s: %d running, %d ended%s%s\n", display.Text(report.Listener), display.Text(mirroredTo(&report.Mirrors)), report.Running, ended, display.Text(byReason(report.Ended)), sinceReset(report.Since))
		if report.Unanswered > 0 {
			fmt.Fprintf(&text, "    %d complete mirrors got no byte of an answer, the last %d in a row\n", report.Unanswered, report.Silent)
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
		return "nothing any more"
	}
	return strings.Join(m.To, ", ")
}

func writeComparison(text *strings.Builder, listener string, k *admin.Comparison) error {
	fmt.Fprintf(text, "\n%s: %s\n", comparisonName(listener, k), comparisonLine(k))
	for _, note := range []struct {
		n    int64
		text string
	}{
		{k.Unnamed, "sessions whose methods are unknown, as not all that the client sent was seen"},
		{k.ShadowUnframed, "sessions in which the answers of the mirror were not " + k.Framing},
		{k.MaskLimited, "places in long answers where a mask was not given all bytes"},
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
		fmt.Fprintf(text, "different: %s, %s of the answer\n    client got \"%s\" of %d bytes\n    mirror has \"%s\" of %d bytes\n", display.Text(x.Name), at,
			display.Text(x.Primary.Text), x.Primary.Length, display.Text(x.Shadow.Text), x.Shadow.Length)
	}
	return nil
}

// comparisonLine is a comparison in one line.
func comparisonLine(k *admin.Comparison) string {
	line := fmt.Sprintf("%d answers compared (%s), %d equal, %d different", k.Compared, display.Text(k.Framing), k.Equal, k.Different)
	if k.Compared > 0 {
		line += fmt.Sprintf(" (%.3g %%)", 100*float64(k.Different)/float64(k.Compared))
	}
	if n := k.Lag.Slower + k.Lag.Faster + k.Lag.Alike; n > 0 {
		line += fmt.Sprintf("; slower %s, faster %s: %s by the median, p99 %s", percent(float64(k.Lag.Slower)/float64(n)), percent(float64(k.Lag.Faster)/float64(n)),
			lagText(k.Lag.P50Us), lagText(k.Lag.P99Us))
	}
	line += fmt.Sprintf("; %d sessions since %s", k.Sessions, k.Since.Format(time.DateTime))
	if len(k.Stopped) > 0 {
		line += ", stopped comparing" + display.Text(byReason(k.Stopped))
	}
	return line
}

// lagText is how much later the shadow was.
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
