package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

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
		fmt.Fprintf(&b, ", %d not there and not used", n)
	}
	fmt.Fprintf(&b, ".\n%s runs %s.\n", r.subject(), r.Place)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) verdict() string {
	switch {
	case r.PID != 0 && r.count(Degraded)+r.count(Missing) == 0:
		return fmt.Sprintf("Nothing limits process %d, as far as known.", r.PID)
	case r.PID != 0:
		return fmt.Sprintf("Process %d could do better.", r.PID)
	case r.Able:
		return "Penstock can run here."
	}
	return "Penstock cannot run here."
}

// subject is the process that the report is on.
func (r *Report) subject() string {
	if r.PID != 0 {
		return "It"
	}
	return "This process"
}

func (c *Check) write(b *strings.Builder, nameWidth int) {
	indent := strings.Repeat(" ", stateWidth+nameWidth)
	head := fmt.Sprintf("%-*s%-*s", stateWidth, c.State, nameWidth, c.Name)
	paragraph(b, head, indent, c.Found)
	if c.State == OK {
		return
	}
	if c.Cost != "" {
		paragraph(b, indent+"cost  ", indent+"      ", c.Cost)
	}
	label := "mend  "
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
