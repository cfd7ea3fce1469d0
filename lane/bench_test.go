package lane_test

import (
	"testing"

	"github.com/penstock/penstock/lane"
)

// BenchmarkProbe measures one keepalive of a silent session: a probe to each endpoint, and their answers, which
// the program carries.
func BenchmarkProbe(b *testing.B) {
	l := open(b, "lo")
	p := joined(b, l, "tcp", "127.0.0.1:0")
	p.talk(b)
	for b.Loop() {
		if err := lane.ProbeBoth(p.Session); err != nil {
			b.Fatal(err)
		}
	}
}
