package display

import (
	"math"
	"strconv"
)

// Bytes writes a number of bytes with three digits, in decimal units: 999 B, 1.23 kB, 12.3 GB.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	x := float64(n)
	units := []string{"kB", "MB", "GB", "TB", "PB", "EB"}
	unit := ""
	for _, unit = range units {
		if x /= 1000; x < 999.5 {
			break
		}
	}
	switch {
	case x < 9.995:
		return Fixed(x, 2) + " " + unit
	case x < 99.95:
		return Fixed(x, 1) + " " + unit
	}
	return Fixed(x, 0) + " " + unit
}

// Fixed writes a number that is not negative with so many digits behind the point. Half of the last digit is rounded up, as toFixed
// of ECMAScript does: the page and the commands show the same number.
func Fixed(x float64, digits int) string {
	if odd := math.Ldexp(x, digits+1); odd == math.Trunc(odd) && math.Mod(odd, 2) == 1 { // the only halves that a float64 has
		x = math.Nextafter(x, math.Inf(1))
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}
