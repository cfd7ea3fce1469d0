package health_test

import (
	"testing"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestBlame: the worst source of many is found, and its share is never underestimated.
func TestBlame(t *testing.T) {
	var b health.Blame
	if from, part := b.Worst(); from != health.UnsampledSource || part != 0 {
		t.Errorf("of nothing: %v, %v", from, part)
	}
	const bad = health.Source(1<<63 | 7)
	for i := range 1000 {
		b.Note(health.UnsampledSource)
		b.Note(health.Source(1<<63 | 100 + uint64(i)))
		b.Note(bad)
	}
	if from, part := b.Worst(); from != bad || part < 0.5 || part > 0.75 {
		t.Errorf("%v, %v", from, part)
	}
	b.Forget()
	if from, _ := b.Worst(); from != health.UnsampledSource {
		t.Errorf("forgotten: %v", from)
	}
}
