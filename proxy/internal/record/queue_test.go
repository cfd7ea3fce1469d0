package record_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/internal/record"
)

// TestQueue: of many adders at once each value is taken once, those of one adder in their order. No more places are
// held than were allowed, and none in the end.
func TestQueue(t *testing.T) {
	const adders, each, most = 8, 2000, 16
	var q record.Queue[[2]int]
	var added sync.WaitGroup
	var refused, ended atomic.Int64
	for a := range adders {
		added.Go(func() {
			for i := range each {
				p, _ := q.Place(most)
				if p == nil {
					refused.Add(1)
					continue
				}
				p.Of = [2]int{a, i + 1}
				q.Add(p)
			}
		})
	}
	go func() { added.Wait(); ended.Store(1) }()
	var latest [adders]int
	taken := 0
	for over := false; !over; {
		over = ended.Load() == 1 // then this turn takes the last ones
		n := q.Take(func(p *record.Queued[[2]int]) {
			if a := p.Of[0]; latest[a] < p.Of[1] {
				latest[a] = p.Of[1]
			} else {
				t.Errorf("%v came after %d", p.Of, latest[a])
			}
			q.Free(p)
		})
		if n > most {
			t.Errorf("%d were held", n)
		}
		q.Done(n)
		taken += n
	}
	if int64(taken)+refused.Load() != adders*each || q.Held() != 0 {
		t.Errorf("%d taken, %d refused, %d held", taken, refused.Load(), q.Held())
	}
}
