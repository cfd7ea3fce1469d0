package limit_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/internal/limit"
)

func TestConnections(t *testing.T) {
	c := limit.NewConnections(2)
	for range 2 {
		if !c.Take() {
			t.Fatal("no place among two")
		}
	}
	if c.Take() || !c.Full() || c.InUse() != 2 || c.Max() != 2 {
		t.Fatalf("%d of %d in use", c.InUse(), c.Max())
	}
	if !c.Give() {
		t.Error("a place of a full limit was given back, which frees one")
	}
	if c.Give() {
		t.Error("a place was freed for which no client waits")
	}
	for range 3 {
		c.Add()
	}
	if c.InUse() != 3 || c.Give() {
		t.Error("three of two are in use, and one that leaves has freed a place")
	}
	c.Give()
	c.Give()
	c.Set(0)
	for range 100 {
		if !c.Take() || c.Full() {
			t.Fatal("no limit, and no place")
		}
	}
	c.Set(10) // below the places in use
	if c.Take() || !c.Full() {
		t.Error("a place beyond a lower limit")
	}
	for range 90 {
		c.Give()
	}
	if c.Take() {
		t.Error("10 of 10 are in use, and there is a place")
	}
	if !c.Give() {
		t.Error("9 of 10 are in use, and nothing was freed")
	}
}

// TestConnectionsShared: the places in use never exceed the limit, with many goroutines that take
// and give.
func TestConnectionsShared(t *testing.T) {
	c := limit.NewConnections(3)
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20_000 {
				if !c.Take() {
					continue
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				now.Add(-1)
				c.Give()
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 || c.InUse() != 0 {
		t.Errorf("%d at once of 3; %d are left", most.Load(), c.InUse())
	}
}
