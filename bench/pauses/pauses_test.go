package pauses_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/pauses"
	"github.com/penstock/penstock/internal/testutil/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestACollectionStopsTheWorld(t *testing.T) {
	m := pauses.New()
	runtime.GC()
	p := m.Since()
	if p.Collections < 1 || p.Count < 2 || p.Longest <= 0 || p.Longest > time.Minute || p.Goroutines < 2 {
		t.Errorf("after a collection: %+v", p)
	}
}

// A pause that was reported once is not reported again.
func TestPausesAreOfAWhile(t *testing.T) {
	m := pauses.New()
	for range 3 {
		runtime.GC()
	}
	first := m.Since()
	if first.Collections < 3 || first.Count < 6 {
		t.Fatalf("after three collections: %+v", first)
	}
	for range 100 { // the runtime may collect at any time
		if m.Since() == (pauses.Pauses{Goroutines: first.Goroutines}) {
			return
		}
	}
	t.Error("there is no end of pauses")
}

// A pause of each kind counts: runtime.GOMAXPROCS stops the world, and collects
// nothing.
func TestOtherPausesCount(t *testing.T) {
	m := pauses.New()
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(n + 1)
	runtime.GOMAXPROCS(n)
	if p := m.Since(); p.Count < 2 || p.Longest <= 0 {
		t.Errorf("%+v", p)
	}
}
