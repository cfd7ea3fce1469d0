package report_test

import (
	"math"
	"slices"
	"testing"

	"github.com/penstock/penstock/bench/report"
)

func TestMedianAndRange(t *testing.T) {
	for _, test := range []struct {
		in                report.Sample
		median, low, high float64
	}{
		{report.Sample{5}, 5, 5, 5},
		{report.Sample{3, 1, 2}, 2, 1, 3},
		{report.Sample{4, 1, 3, 2}, 2.5, 1, 4},
		{report.Sample{1, 1, 100}, 1, 1, 100},
		{report.Sample{math.NaN(), 2, 1}, 1.5, 1, 2},
	} {
		before := slices.Clone(test.in)
		same := func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }
		low, high := test.in.Range()
		if m := test.in.Median(); m != test.median || low != test.low || high != test.high {
			t.Errorf("%v: got %v within %v and %v", test.in, m, low, high)
		}
		if !slices.EqualFunc(before, test.in, same) {
			t.Errorf("%v became %v", before, test.in)
		}
	}
}

func TestNothingMeasuredIsNotANumber(t *testing.T) {
	var none report.Sample
	low, high := none.Range()
	for _, x := range []float64{none.Median(), low, high} {
		if !math.IsNaN(x) || report.Ratio(x) != report.Unknown || report.Bytes(x) != report.Unknown {
			t.Errorf("got %v, written %s and %s", x, report.Ratio(x), report.Bytes(x))
		}
	}
}

func TestUnits(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{report.Bytes(0), "0 B"},
		{report.Bytes(999), "999 B"},
		{report.Bytes(999.7), "1.00 kB"},
		{report.Bytes(12_345_678_901), "12.3 GB"},
		{report.Bytes(5e15), "5000 TB"},
		{report.Count(0), "0"},
		{report.Count(7.5), "7.50"},
		{report.Count(48_234), "48.2 k"},
		{report.Count(-1500), "-1.50 k"},
		{report.Seconds(0.000081), "81.0 µs"},
		{report.Seconds(0.5e-9), "0.50 ns"},
		{report.Seconds(12), "12.0 s"},
		{report.Ratio(1.0666), "1.07"},
		{report.Ratio(math.Inf(1)), report.Unknown},
		{report.Exact(0), "0"},
		{report.Exact(999), "999"},
		{report.Exact(-999), "-999"},
		{report.Exact(-1000), "-1,000"},
		{report.Exact(1234567), "1,234,567"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
