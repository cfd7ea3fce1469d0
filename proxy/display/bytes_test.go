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
