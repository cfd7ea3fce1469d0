package health_test

import (
	"testing"

	"github.com/penstock/penstock/proxy/health"
)

// TestBlame: the worst source of many is found, and its part is never taken for too small.
func TestBlame(t *testing.T) {
	var b health.Blame
	if from, part := b.Worst(); from != health.Anybody || part != 0 {
		t.Errorf("of nothing: %v, %v", from, part)
	}
	const bad = health.Source(1<<63 | 7)
	for i := range 1000 {
		b.Note(health.Anybody)
		b.Note(health.Source(1<<63 | 100 + uint64(i)))
		b.Note(bad)
	}
	if from, part := b.Worst(); from != bad || part < 0.5 || part > 0.75 {
		t.Errorf("%v, %v", from, part)
	}
	b.Forget()
	if from, _ := b.Worst(); from != health.Anybody {
		t.Errorf("forgotten: %v", from)
	}
}
