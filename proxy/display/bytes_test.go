package display_test

import (
	"math"
	"testing"

	"github.com/penstock/penstock/proxy/display"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "-1 B", 0: "0 B", 999: "999 B", 1000: "1.00 kB", 1234: "1.23 kB", 9_994: "9.99 kB", 9_995: "10.0 kB", 99_949: "99.9 kB", 99_950: "100 kB",
		999_499: "999 kB", 999_500: "1.00 MB", 12_345_678_901: "12.3 GB", math.MaxInt64: "9.22 EB",
	} {
		if got := display.Bytes(n); got != want {
			t.Errorf("%d bytes are written as %q, want %q", n, got, want)
		}
	}
}

// TestFixed: the numbers of toFixed, in which half of the last digit is rounded up where a float64 has just that.
func TestFixed(t *testing.T) {
	for _, c := range []struct {
		x      float64
		digits int
		want   string
	}{
		{14.5, 0, "15"},
		{13.5, 0, "14"},
		{14.499, 0, "14"},
		{0, 1, "0.0"},
		{12.25, 1, "12.3"},
		{12.75, 1, "12.8"},
		{12.35, 1, "12.3"},
		{0.125, 2, "0.13"},
		{1.005, 2, "1.00"},
		{2.375, 2, "2.38"},
		{2.5, 1, "2.5"},
		{3, 0, "3"},
		{1e15 + 0.5, 0, "1000000000000001"},
	} {
		if got := display.Fixed(c.x, c.digits); got != c.want {
			t.Errorf("%v with %d digits is %s, want %s", c.x, c.digits, got, c.want)
		}
	}
}
