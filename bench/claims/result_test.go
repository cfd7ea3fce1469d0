package claims

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/bench/report"
)

// Result is the figures of a claim here.
type Result []Figure

func (r Result) String() string {
	var b strings.Builder
	last := ""
	for i, f := range r {
		switch {
		case f.Of != "" && f.Of == last:
			b.WriteString(", ")
		case i > 0:
			b.WriteString("; ")
		}
		if f.Of != "" && f.Of != last {
			b.WriteString(f.Of + ": ")
		}
		last = f.Of
		b.WriteString(f.String())
	}
	return b.String()
}

// Unit is the unit of a Figure.
type Unit string

// The units.
const (
	Seconds Unit = "s"
	Bytes   Unit = "B"
	Bits    Unit = "bit/s"
	Ratio   Unit = "ratio" // of two times, median of the rounds; below 1 the first one is faster
	Percent Unit = "%"
	Number  Unit = "1"
	Exact   Unit = "1, exact"
	Rate    Unit = "1/s"
)

// Figure is a number with its name and unit.
type Figure struct {
	Of    string // the contestant, if it is of one alone
	Name  string // empty where the unit says it
	Unit  Unit
	Value float64 // the median if it was measured in rounds

	// Low and High are how far the rounds stray (report.Sample.Stray), if there
	// were any.
	Low  float64
	High float64
}

// String writes the figure; the spread stands beside ratios, for which the
// rounds are.
func (f Figure) String() string {
	s := f.Unit.write(f.Value)
	if f.Name != "" {
		s = f.Name + " " + s
	}
	if f.Unit == Ratio && f.High > 0 {
		s += fmt.Sprintf(" (%s–%s)", f.Unit.write(f.Low), f.Unit.write(f.High))
	}
	return s
}

func of(name string, figures ...Figure) []Figure {
	for i := range figures {
		figures[i].Of = name
	}
	return figures
}

func (u Unit) write(x float64) string {
	switch u {
	case Seconds:
		return report.Seconds(x)
	case Bytes:
		return report.Bytes(x)
	case Bits:
		return fmt.Sprintf("%.1f Gbit/s", x/1e9)
	case Percent:
		return fmt.Sprintf("%.3g %%", x)
	case Rate:
		return report.Count(x) + "/s"
	case Ratio:
		return ratio(x)
	case Exact:
		return report.Exact(int64(x))
	}
	return report.Count(x)
}

// ratio writes small ones in full: 0.0041.
func ratio(x float64) string {
	if x > 0 && x < 0.1 {
		return fmt.Sprintf("%.2g", x)
	}
	return report.Ratio(x)
}
