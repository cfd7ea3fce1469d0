// Package doctor finds out what this host and this process can do for Penstock, by doing it:
// missing features, their cost, and their remedy. Versions are never asked for. Files of the
// kernel have limits and reasons; the rest is left open.
//
// [Examine] and [ExamineProcess] run on Linux only. Their [Report] is for people (WriteText) or a
// JSON object. Any one of the remedies of a check is enough, unless it says otherwise; it is the
// remedy for this place: a unit of systemd, a container and its engine, a machine.
package doctor

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// State is the verdict of one check.
type State string

// The states, from best to worst. Unknown stands outside this order: the state could
// not be found out.
const (
	OK       State = "ok"
	Degraded State = "degraded" // it works, less well
	Missing  State = "missing"  // it does not
	Unknown  State = "unknown"

	// Unused is missing, and this release does not use it.
	Unused State = "unused"
)

// Check is the finding on one thing.
type Check struct {
	Name  string   `json:"name"`  // of the thing, for programs
	State State    `json:"state"` // the verdict
	Found string   `json:"found"` // the finding, with its figures
	Cost  string   `json:"cost"`  // the cost of the state; empty if it is OK
	Mend  []string `json:"mend"`  // commands or settings, any of which mends it

	unable bool // Penstock cannot run
}

// Report is all findings.
type Report struct {
	Checks []Check `json:"checks"` // in their order
	Place  string  `json:"place"`  // where it was found, on which Mend depends

	// Able is whether Penstock can run here at all.
	Able bool `json:"able"`

	// PID is the running Penstock that the report is on; 0: it is on the host, and on a Penstock to be started.
	PID int `json:"pid,omitempty"`
}

// count returns how many checks have that state.
func (r *Report) count(s State) int {
	n := 0
	for _, c := range r.Checks {
		if c.State == s {
			n++
		}
	}
	return n
}

// width is the most columns of a line of the report, unless one word or one
// command is longer.
const width = 100

// stateWidth is the column of the longest state and a gap.
const stateWidth = len(Degraded) + 2

// WriteText writes the report for people: a line for each check that is OK, and the cost and
// the remedy of the others below their line.
func (r *Report) WriteText(w io.Writer) error {
	nameWidth := 0
	for _, c := range r.Checks {
		nameWidth = max(nameWidth, len(c.Name)+2)
	}
	var b strings.Builder
	for _, c := range r.Checks {
		c.write(&b, nameWidth)
	}
	fmt.Fprintf(&b, "\n%s %d ok, %d degraded, %d missing, %d unknown", r.verdict(),
		r.count(OK), r.count(Degraded), r.count(Missing), r.count(Unknown))
	if n := r.count(Unused); n > 0 {
		fmt.Fprintf(&b, ", %d missing but not used", n)
	}
	subject := "This process"
	if r.PID != 0 {
		subject = "It"
	}
	fmt.Fprintf(&b, ".\n%s runs %s.\n", subject, r.Place)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) verdict() string {
	switch {
	case r.PID != 0 && r.count(Degraded)+r.count(Missing) == 0:
		return fmt.Sprintf("Nothing known limits process %d.", r.PID)
	case r.PID != 0:
		return fmt.Sprintf("Process %d could do better.", r.PID)
	case r.Able:
		return "Penstock can run here."
	}
	return "Penstock cannot run here."
}

func (c *Check) write(b *strings.Builder, nameWidth int) {
	indent := strings.Repeat(" ", stateWidth+nameWidth)
	paragraph(b, fmt.Sprintf("%-*s%-*s", stateWidth, c.State, nameWidth, c.Name), indent, c.Found)
	if c.State == OK {
		return
	}
	if c.Cost != "" {
		paragraph(b, indent+"cost  ", indent+"      ", c.Cost)
	}
	label := "fix   "
	for _, m := range c.Mend {
		paragraph(b, indent+label, indent+"      ", m)
		label = "or    "
	}
}

// paragraph writes a text, its first line after head and the others after indent.
func paragraph(b *strings.Builder, head, indent, text string) {
	line, empty := head, true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			fmt.Fprintln(b, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	fmt.Fprintln(b, strings.TrimRight(line, " "))
}

// unknown stands for a number that could not be read.
const unknown int64 = -1

// exact is a number with its thousands apart.
func exact(n int64) string {
	if n == unknown {
		return "unknown"
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// several is a number of things, with the word for one or that for more.
func several(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return exact(n) + " " + more
}

// size formats a number of bytes in the largest unit of which it is a multiple, or else
// with one decimal.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, k := float64(n), 0
	for v >= 1024 && k < len(units)-1 {
		v /= 1024
		k++
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + units[k]
}

// fraction is a part of a whole in per cent; 0 of nothing.
func fraction(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}

// newReport gathers checks of a place.
func newReport(place string, checks []Check) *Report {
	for i := range checks {
		if checks[i].Mend == nil {
			checks[i].Mend = []string{} // and not null
		}
	}
	return &Report{Checks: checks, Place: place, Able: !slices.ContainsFunc(checks, func(c Check) bool { return c.unable })}
}
