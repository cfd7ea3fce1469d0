// Package doctor finds out what this host and this process can do for Penstock, by trying it: missing features,
// what they cost, and what to do. It never asks for versions. Limits and reasons come from the kernel's files;
// what they do not say is left open.
//
// [Examine] and [ExamineProcess] run on Linux only. Their [Report] is text for people (WriteText) or a JSON
// object. Any one of a check's remedies is enough, unless it says otherwise. Remedies fit the place: a systemd
// unit, a container and its engine, a machine.
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

// The states, from best to worst, except for Unknown: the state could not be found out.
const (
	OK       State = "ok"
	Degraded State = "degraded" // it works, but less well
	Missing  State = "missing"  // it does not work
	Unknown  State = "unknown"

	// Unused: the feature is missing, but this release does not use it.
	Unused State = "unused"
)

// Check is one finding.
type Check struct {
	Name  string   `json:"name"`  // of the checked thing, for programs
	State State    `json:"state"` // the verdict
	Found string   `json:"found"` // the finding, with its figures
	Cost  string   `json:"cost"`  // the cost of the state; empty if it is OK
	Mend  []string `json:"mend"`  // commands or settings, each of them a remedy

	unable bool // Penstock cannot run
}

// Report holds all findings.
type Report struct {
	Checks []Check `json:"checks"` // in the order of the report
	Place  string  `json:"place"`  // where it was made; Mend depends on that

	// Able says whether Penstock can run here at all.
	Able bool `json:"able"`

	// PID is the running Penstock that the report is about; 0: it is about the host, and a Penstock that is not
	// started yet.
	PID int `json:"pid,omitempty"`
}

func (r *Report) count(s State) int {
	n := 0
	for _, c := range r.Checks {
		if c.State == s {
			n++
		}
	}
	return n
}

// width is the most columns of a line, unless a single word or command is longer.
const width = 100

// stateWidth is the width of the longest state and a gap.
const stateWidth = len(Degraded) + 2

// WriteText writes the report for people: one line for each check, followed by cost and remedies if the check
// is not OK.
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

// paragraph writes a text, the first line after head and the others after indent.
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

// several returns a number with the word for one or for more.
func several(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return exact(n) + " " + more
}

// Size formats a number of bytes in its largest unit without a fraction, or else with one decimal.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, k := float64(n), 0
	for v >= 1024 && k < len(units)-1 {
		v /= 1024
		k++
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + units[k]
}

// fraction returns a part of a whole in per cent, or 0 if the whole is 0.
func fraction(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}

func newReport(place string, checks []Check) *Report {
	for i := range checks {
		if checks[i].Mend == nil {
			checks[i].Mend = []string{} // not null in JSON
		}
	}
	return &Report{Checks: checks, Place: place, Able: !slices.ContainsFunc(checks, func(c Check) bool { return c.unable })}
}
