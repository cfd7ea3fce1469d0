package report

import (
	"math"
	"strconv"
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

// Unknown stands for a figure that was not measured.
const Unknown = "–"

// scaled writes x with three digits, in the largest unit that leaves at least 1 before the point. Each unit is a
// thousand times the unit before it.
func scaled(x float64, units ...string) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return Unknown
	}
	i := 0
	for ; math.Abs(x) >= 999.5 && i < len(units)-1; i++ {
		x /= 1000
	}
	if i == 0 && x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64) + units[0]
	}
	return digits(x) + units[i]
}

// Digits writes a number with three digits and without a unit: 0.31, 12.3, 4512.
func Digits(x float64) string { return scaled(x, "") }

// digits writes x with three significant digits, never as a power of ten.
func digits(x float64) string {
	decimals := 2
	for limit := 9.995; math.Abs(x) >= limit && decimals > 0; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

// Bytes writes a number of bytes in decimal units: 12.3 GB.
func Bytes(n float64) string { return scaled(n, " B", " kB", " MB", " GB", " TB") }

// Count writes a large number in short form: 48.2 k.
func Count(n float64) string { return scaled(n, "", " k", " M", " G") }

// Seconds writes a time that is given in seconds: 81 µs for 0.000081.
func Seconds(s float64) string {
	return scaled(s*1e9, " ns", " µs", " ms", " s")
}

// Ratio writes a ratio: 1.07.
func Ratio(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return Unknown
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// Exact writes all digits of n, with commas between the thousands: 1,234,567.
func Exact(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 1 // a comma may follow the first digit
	if n < 0 {
		start = 2
	}
	for i := len(s) - 3; i >= start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
