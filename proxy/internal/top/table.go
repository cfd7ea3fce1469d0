package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/penstock/penstock/proxy/display"
)

// A tone is how urgent a row is.
type tone int

const (
	calm tone = iota
	faint
	warn
	bad
)

// A column of a table.
type column struct {
	name  string
	right bool // aligned, as numbers are
	drop  int  // the columns with the highest are left out first where there is no room; 0: never
	limit int  // its width at most; 0: no limit. The last column takes the room that is left.
}

// A cell is a text, and the key that it is sorted by if that is not the text.
type cell struct {
	text string
	key  float64
}

// name is a cell that is sorted by its text.
func name(text string) cell { return cell{text: display.Text(text)} }

// figure is a cell that is sorted by a number.
func figure[T ~int | ~int64 | ~float64](text string, key T) cell {
	return cell{text, float64(key)}
}

// A row of a table.
type row struct {
	cells  []cell
	tone   tone
	detail string // the whole of a text that its last cell may have no room for
}

// contains reports whether the row has a text, which is in lower case.
func (r *row) contains(text string) bool {
	return slices.ContainsFunc(r.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), text) })
}

// A table is rows of the same columns.
type table struct {
	columns []column
	rows    []row
}

// A sorting is the column that rows are sorted by. Numbers begin with the largest, texts with the first.
type sorting struct {
	column   int
	reversed bool
}

// sort sorts the rows. Those that are equal keep their order.
func (t *table) sort(by sorting) {
	if by.column >= len(t.columns) {
		return
	}
	slices.SortStableFunc(t.rows, func(a, b row) int {
		x, y := &a.cells[by.column], &b.cells[by.column]
		order := cmp.Or(cmp.Compare(y.key, x.key), strings.Compare(x.text, y.text))
		if by.reversed {
			return -order
		}
		return order
	})
}

// filter keeps the rows that contain a text, in whatever case.
func (t *table) filter(text string) {
	if text = strings.ToLower(text); text == "" {
		return
	}
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return !r.contains(text) })
}

// A layout is the widths of the columns that have room; 0: it is left out.
type layout []int

// gap is the space between two columns.
const gap = 2

// layout makes the widths by all rows, so that scrolling does not change them.
func (t *table) layout(width int) layout {
	widths := make(layout, len(t.columns))
	for i, c := range t.columns {
		widths[i] = len(c.name) + 1 // and the mark of the sorting
	}
	for i := range t.rows {
		for j := range t.rows[i].cells {
			widths[j] = max(widths[j], ansi.StringWidth(t.rows[i].cells[j].text))
		}
	}
	last := len(widths) - 1
	for i, c := range t.columns {
		if c.limit > 0 {
			widths[i] = min(widths[i], c.limit)
		}
	}
	fixed := widths[:last].sum()
	for fixed+min(widths[last], leastLast) > width && widths.leaveOut(t.columns) {
		fixed = widths[:last].sum()
	}
	widths[last] = min(widths[last], max(width-fixed, 0))
	return widths
}

// leastLast is the room that the last column should have.
const leastLast = 11

// sum is the room of columns, with the gap after each.
func (l layout) sum() (n int) {
	for _, w := range l {
		if w > 0 {
			n += w + gap
		}
	}
	return n
}

// leaveOut leaves out the column that is needed least, and reports whether there was one.
func (l layout) leaveOut(columns []column) bool {
	least := -1
	for i, c := range columns[:len(columns)-1] {
		if l[i] > 0 && c.drop > 0 && (least < 0 || c.drop > columns[least].drop) {
			least = i
		}
	}
	if least >= 0 {
		l[least] = 0
	}
	return least >= 0
}

// line writes cells at their places.
func (t *table) line(l layout, texts func(i int) string) string {
	var b strings.Builder
	for i, c := range t.columns {
		w := l[i]
		if w == 0 {
			continue
		}
		text := ansi.Truncate(texts(i), w, "…")
		space := strings.Repeat(" ", max(w-ansi.StringWidth(text), 0))
		if c.right {
			b.WriteString(space + text)
		} else {
			b.WriteString(text + space)
		}
		b.WriteString("  ")
	}
	return strings.TrimRight(b.String(), " ")
}

// header is the line of the columns' names. The column that is sorted by has a mark.
func (t *table) header(l layout, by sorting) string {
	return t.line(l, func(i int) string {
		switch {
		case i != by.column:
			return t.columns[i].name
		case by.reversed:
			return t.columns[i].name + "↑"
		}
		return t.columns[i].name + "↓"
	})
}

// text is the line of a row.
func (t *table) text(l layout, r *row) string {
	return t.line(l, func(i int) string { return r.cells[i].text })
}
