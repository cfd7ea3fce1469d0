package report

import (
	"math"
	"strconv"
)

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
