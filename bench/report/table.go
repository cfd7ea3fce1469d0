package report

import (
	"strings"
	"unicode/utf8"
)

// gap separates two columns.
const gap = "  "

// Table is rows of cells, written in columns. The zero value is empty.
type Table struct {
	rows []row
}

// row is its cells and whether those after the first keep to the right.
type row struct {
	cells []string
	right bool
}

// Row adds a row of a name and figures: the first cell is written to the left
// of its column, the others to the right of theirs. Rows may differ in length.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, row{cells, true}) }

// Left adds a row of words, each to the left of its column.
func (t *Table) Left(cells ...string) { t.rows = append(t.rows, row{cells, false}) }

// Lines returns the rows as lines of text, without trailing blanks.
func (t *Table) Lines() []string {
	var widths []int
	for _, r := range t.rows {
		for i, cell := range r.cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(t.rows))
	for i, r := range t.rows {
		lines[i] = r.line(widths)
	}
	return lines
}

// line pads the cells of a row.
func (r *row) line(widths []int) string {
	var b strings.Builder
	for i, cell := range r.cells {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		switch {
		case i == 0:
			b.WriteString(cell + pad)
		case r.right:
			b.WriteString(gap + pad + cell)
		default:
			b.WriteString(gap + cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Wrap breaks text at blanks into lines of at most width characters; a longer
// word gets a line of its own.
func Wrap(text string, width int) []string {
	var lines []string
	var b strings.Builder
	n := 0 // characters in b
	for word := range strings.FieldsSeq(text) {
		w := utf8.RuneCountInString(word)
		if n > 0 && n+1+w > width {
			lines = append(lines, b.String())
			b.Reset()
			n = 0
		}
		if n > 0 {
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += w
	}
	if n > 0 {
		lines = append(lines, b.String())
	}
	return lines
}

// Width returns how many characters the longest line takes.
func (t *Table) Width() int {
	width := 0
	for _, l := range t.Lines() {
		width = max(width, utf8.RuneCountInString(l))
	}
	return width
}

// Markdown returns the rows as a table in Markdown, the first as its head.
func (t *Table) Markdown() []string {
	var lines []string
	for i, r := range t.rows {
		line := "|"
		for _, cell := range r.cells {
			line += " " + escaped(cell) + " |"
		}
		lines = append(lines, line)
		if i == 0 {
			lines = append(lines, r.rule())
		}
	}
	return lines
}

// rule is the line of dashes below a head, which marks the columns' sides.
func (r *row) rule() string {
	line := "|---|"
	side := "---|"
	if r.right {
		side = "---:|"
	}
	return line + strings.Repeat(side, len(r.cells)-1)
}
