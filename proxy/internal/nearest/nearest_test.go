package nearest_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/nearest"
)

func TestDistance(t *testing.T) {
	long := strings.Repeat("a", nearest.Longest)
	for _, x := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"status", "status", 0},
		{"statsu", "status", 1},
		{"stats", "status", 1},
		{"statuss", "status", 1},
		{"ststus", "status", 1},
		{"", "abc", 3},
		{"abc", "", 3},
		{"drain", "ready", 4},
		{long, "", nearest.Longest},
		{long, long, 0},
		{long, strings.Repeat("b", nearest.Longest), nearest.Longest},
	} {
		if got := nearest.Distance(x.a, x.b); got != x.want {
			t.Errorf("%q is %d from %q, want %d", x.a, got, x.b, x.want)
		}
	}
}
