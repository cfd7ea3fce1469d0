package display

import (
	"fmt"
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
		return fmt.Sprintf("%.2f %s", x, unit)
	case x < 99.95:
		return fmt.Sprintf("%.1f %s", x, unit)
	}
	return fmt.Sprintf("%.0f %s", x, unit)
}
