package health_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestWindowCountsTheLastTime compares a window with a list of all that was added.
func TestWindowCountsTheLastTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type event struct {
			epoch  int64
			failed bool
		}
		w := health.NewWindow(time.Duration(rapid.Int64Range(10, 10_000).Draw(t, "length")))
		now := rapid.Int64Range(0, 1<<50).Draw(t, "now")
		var events []event
		dice := dice(t)
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			now += dice.Int64N(3 * w.Width())
			if dice.IntN(20) == 0 {
				now += 20 * w.Width()
			}
			e := event{now / w.Width(), dice.IntN(2) == 0}
			events = append(events, e)
			w.Add(now, e.failed)
			var ok, failed uint64
			for _, e := range events {
				switch {
				case e.epoch <= now/w.Width()-health.Slots:
				case e.failed:
					failed++
				default:
					ok++
				}
			}
			if gotOK, gotFailed := w.Sum(now); gotOK != ok || gotFailed != failed {
				t.Fatalf("at %d: %d ok, %d failed; want %d, %d", now, gotOK, gotFailed, ok, failed)
			}
		}
	})
}

// TestWindowLosesNothing adds from several goroutines at the moment when a slot is begun
// again.
func TestWindowLosesNothing(t *testing.T) {
	const goroutines, each = 4, 25
	w := health.NewWindow(time.Second)
	for round := range int64(3000) {
		now := round * w.Width()
		together(goroutines, func(i int) {
			for range each {
				w.Add(now, i%2 == 0)
			}
		})
		ok, failed := w.Sum(now)
		if want := uint64(min(round+1, health.Slots)) * goroutines * each / 2; ok != want || failed != want {
			t.Fatalf("round %d: %d ok, %d failed, want %d of each", round, ok, failed, want)
		}
	}
}

func TestWindowKeepsTheRatioBeyondItsCounts(t *testing.T) {
	w := health.NewWindow(time.Hour)
	w.Add(1, true)
	w.Preset(1, health.Full-1000, (health.Full-1000)/3)
	for i := range 40_000 {
		w.Add(1, i%4 == 0)
	}
	ok, failed := w.Sum(1)
	if part := float64(failed) / float64(ok+failed); part < 0.2499 || part > 0.2501 || ok > health.Full*3/4 {
		t.Errorf("%d of %d failed, want a quarter of about half of the counts", failed, ok+failed)
	}
	if !health.TooMany(ok, failed, 25*0.999, 1<<30) || health.TooMany(ok, failed, 25.1, 1) {
		t.Error("a volume beyond all counts is never reached")
	}
}

func TestTooMany(t *testing.T) {
	for _, test := range []struct {
		ok, failed uint64
		percent    float64
		volume     int
		want       bool
	}{
		{8, 12, 60, 20, true},
		{9, 12, 60, 20, false},
		{7, 12, 60, 20, false}, // volume
		{0, 1, 100, 0, true},
		{0, 0, 1, 0, false},
		{0, 100, 0, 1, false}, // off
		{999, 1, 0.1, 20, true},
		{1000, 1, 0.1, 20, false},
	} {
		if got := health.TooMany(test.ok, test.failed, test.percent, test.volume); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// TestFlap: the first few are reported at once, and beyond those no more than one in an
// interval. None is held longer than that, and every transition is reported or counted.
func TestFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(1, 50).Draw(t, "every"))
		var f health.Flap
		var now int64 = 100
		var when []int64
		noted, told := 0, 0
		tell := func(tr health.Transition) {
			when = append(when, now)
			for i, from := range when {
				if n := int64(len(when) - i); n > 3+(now-from)/int64(every) {
					t.Fatalf("%d were reported from %d to %d, in intervals of %d", n, from, now, every)
				}
			}
			if int(tr.Time) > int(now) {
				t.Fatal("reported before it happened")
			}
			if told += 1 + tr.Suppressed; told != noted {
				t.Fatalf("%d reported or counted of %d", told, noted)
			}
		}
		for range 200 {
			now += int64(rapid.IntRange(0, 20).Draw(t, "later"))
			if next, ok := f.Next(every); ok && now >= next {
				now = next // a Scheduler is punctual
			}
			if tr, ok := f.Due(now, every); ok {
				tell(tr)
			}
			if rapid.Bool().Draw(t, "note") {
				noted++
				quiet := len(when) < 3 || when[len(when)-3]+3*int64(every) <= now
				tr, ok := f.Note(health.Transition{Time: now}, every)
				if ok {
					tell(tr)
				} else if quiet {
					t.Fatalf("held at %d, after reports at %v", now, when)
				}
			}
			if next, ok := f.Next(every); ok && next-when[len(when)-1] > int64(every) {
				t.Fatalf("held until %d, the last was reported at %d", next, when[len(when)-1])
			}
			if _, held := f.Next(every); !held && told != noted {
				t.Fatalf("%d reported or counted of %d, and none is held", told, noted)
			}
		}
		if tr, ok := f.Rest(); ok {
			if told += 1 + tr.Suppressed; told != noted {
				t.Fatalf("%d reported or counted of %d in the end", told, noted)
			}
		}
	})
}

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
