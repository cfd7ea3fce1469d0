package health_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"pgregory.net/rapid"
)

func TestBudgetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := health.RetryBudgetConfig{
			Ratio: float64(rapid.IntRange(0, 10).Draw(t, "tenths")) / 10, Floor: rapid.IntRange(0, 5).Draw(t, "floor"), Window: time.Second,
		}
		b := health.NewRetryBudget(&cfg)
		var events []modelEvent
		var denied int64
		now := int64(time.Hour)
		width := int64(cfg.Window) / health.Slots
		for range 200 {
			now += rapid.Int64Range(0, width/2).Draw(t, "later")
			events = forgotten(events, now/width)
			began, retried := 0, 0
			for _, e := range events {
				if e.failed {
					retried++
				} else {
					began++
				}
			}
			if rapid.Bool().Draw(t, "begin") {
				b.Began(now)
				events = append(events, modelEvent{now / width, false})
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "found") == 0 {
				b.Repay(now)
				events = repaid(events)
				continue
			}
			tenths := int(cfg.Ratio*10 + 0.5)
			want := tenths > 0 && (retried+1 <= cfg.Floor || (retried+1)*10 <= tenths*began)
			if got := b.Retry(now); got != want {
				t.Fatalf("retry %d after %d connections: %v, want %v", retried+1, began, got, want)
			}
			if want {
				events = append(events, modelEvent{now / width, true})
			} else {
				denied++
			}
			if b.Denied() != denied {
				t.Fatalf("%d denied, want %d", b.Denied(), denied)
			}
		}
	})
}

// repaid removes the last retry.
func repaid(events []modelEvent) []modelEvent {
	for i, e := range slices.Backward(events) {
		if e.failed {
			return slices.Delete(events, i, i+1)
		}
	}
	return events
}

// forgotten removes entries older than the window.
func forgotten(events []modelEvent, epoch int64) (left []modelEvent) {
	for _, e := range events {
		if e.epoch > epoch-health.Slots {
			left = append(left, e)
		}
	}
	return left
}

// TestBudgetIsNotPassed: several goroutines take from it at once.
func TestBudgetIsNotPassed(t *testing.T) {
	b := health.NewRetryBudget(&health.RetryBudgetConfig{Ratio: 0.2, Floor: 3, Window: time.Second})
	for range 5000 {
		b.Began(1)
	}
	var granted atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				if b.Retry(1) {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if granted.Load() != 1000 || b.Denied() != 7000 {
		t.Errorf("%d granted, %d denied; want 1000, 7000", granted.Load(), b.Denied())
	}
}

func TestNoBudgetGrantsEverything(t *testing.T) {
	var b *health.RetryBudget
	b.Began(1)
	b.Repay(1)
	if !b.Retry(1) || b.Denied() != 0 {
		t.Error("no budget denies")
	}
}
