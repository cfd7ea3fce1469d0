package callsite

import (
	"strings"
	"sync"
	"testing"
)

// TestHere: a site names the call, not the package's own functions, and the same call has the same
// site, from any goroutine.
func TestHere(t *testing.T) {
	var sites [2]Site
	for i := range sites {
		sites[i] = Here()
	}
	if sites[0] != sites[1] || sites[0] == 0 {
		t.Errorf("one place is %d and %d", sites[0], sites[1])
	}
	// For this file asked, the first place outside is the caller of the test.
	if got := sites[0].String(); !strings.Contains(got, "testing.go:") || !strings.HasSuffix(got, " (testing.tRunner)") {
		t.Errorf("%q", got)
	}
	var all sync.WaitGroup
	var seen sync.Map
	for range 20 {
		all.Go(func() {
			for range 100 {
				seen.Store(Here(), true)
			}
		})
	}
	all.Wait()
	n := 0
	seen.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("one call has %d sites", n)
	}
}

// TestHereAllocates: nothing is allocated for a site that is known.
func TestHereAllocates(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Here() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
