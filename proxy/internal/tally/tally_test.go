package tally

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// TestBlockFillsItsLines: a block is of a size class that is a multiple of a cache line, so that no line
// belongs to two loops.
func TestBlockFillsItsLines(t *testing.T) {
	if size := unsafe.Sizeof(block{}); size != 320 {
		t.Errorf("a block has %d bytes, want 320", size)
	}
	if len(ConnectBounds) != len(SessionBounds) {
		t.Error("the histograms have different numbers of buckets")
	}
}

func TestBuckets(t *testing.T) {
	var tally Tally
	tally.Connected(0, time.Millisecond) // a bound is within its bucket
	tally.Connected(1, time.Millisecond+1)
	tally.Connected(2, time.Hour)
	tally.Connected(3, -1) // a clock that is behind
	tally.Ended(-1, time.Minute, EndpointReset)
	tally.Ended(99, 48*time.Hour, Idle)
	got := tally.Read()
	var want Counts
	want.Connects.Buckets[0], want.Connects.Buckets[1], want.Connects.Buckets[8] = 2, 1, 1
	want.Connects.Sum = 2*time.Millisecond + 1 + time.Hour
	want.Sessions.Buckets[4], want.Sessions.Buckets[8] = 1, 1
	want.Sessions.Sum = 48*time.Hour + time.Minute
	want.Closes[EndpointReset], want.Closes[Idle] = 1, 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := got.Connects.Count(); n != 4 {
		t.Errorf("%d connects, want 4", n)
	}
}

// TestConcurrentLoops: no count is lost, also where loops share a block.
func TestConcurrentLoops(t *testing.T) {
	const loops, each = 3 * stripes, 1000
	var tally Tally
	var all sync.WaitGroup
	for loop := range loops {
		all.Go(func() {
			for range each {
				tally.Connected(loop, time.Second)
				tally.Ended(loop, time.Second, ClientClosed)
			}
		})
	}
	last := int64(0)
	for range 100 {
		got := tally.Read()
		if n := got.Connects.Count(); n < last {
			t.Errorf("%d connects after %d", n, last)
		} else {
			last = n
		}
	}
	all.Wait()
	got := tally.Read()
	if got.Connects.Count() != loops*each || got.Sessions.Count() != loops*each || got.Closes[ClientClosed] != loops*each {
		t.Errorf("got %+v", got)
	}
	if got.Connects.Sum != loops*each*time.Second {
		t.Errorf("sum %v", got.Connects.Sum)
	}
}
