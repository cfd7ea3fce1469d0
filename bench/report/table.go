package report

import (
	"strings"
	"unicode/utf8"
)

// Table is rows of cells. The zero value is empty.
type Table struct {
	rows []row
}

// row has the cells of a row. right aligns all cells except the first to the right.
type row struct {
	cells []string
	right bool
}

// Row adds a row with a name and figures. The name is aligned to the left of its column, the figures to the right.
// Rows may differ in length.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, row{cells, true}) }

// Left adds a row of words, each aligned to the left of its column.
func (t *Table) Left(cells ...string) { t.rows = append(t.rows, row{cells, false}) }

// Lines returns the rows as a Markdown table. The first row is the head. Columns line up, except for a last column
// of words.
func (t *Table) Lines() []string {
	var widths []int
	for _, r := range t.rows {
		for i, cell := range r.cells {
			if i == len(widths) {
				widths = append(widths, 3)
			}
			if r.right || i < len(r.cells)-1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(escaped(cell)))
			}
		}
	}
	var lines []string
	for i, r := range t.rows {
		line, rule := "|", "|"
		for i, cell := range r.cells {
			cell = escaped(cell)
			pad := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0))
			if dashes := strings.Repeat("-", widths[i]); i > 0 && r.right {
				line, rule = line+" "+pad+cell+" |", rule+" "+dashes+":|"
			} else {
				line, rule = line+" "+cell+pad+" |", rule+" "+dashes+" |"
			}
		}
		lines = append(lines, line)
		if i == 0 {
			lines = append(lines, rule)
		}
	}
	return lines
}

// Wrap breaks text at blanks into lines of at most width characters. A longer word gets a separate line.
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
