package bench_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/million"
)

func TestMillionTakesItsArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"loop"}, {"loop", "many"}, {"loop", "0"}, {"threads", "1"}, {"loop", "1", "1"}} {
		out := new(strings.Builder)
		if err := bench.RunPart(t.Context(), million.Part, args, strings.NewReader(""), out); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, and %q was printed", args, err, out)
		}
	}
}
