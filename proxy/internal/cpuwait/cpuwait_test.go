package cpuwait

import (
	"testing"
	"testing/synctest"
	"time"
)

const second = int64(time.Second)

// TestWaited: between two times it is what the looks around them show.
func TestWaited(t *testing.T) {
	all := map[string]time.Duration{"1": time.Hour, "2": time.Hour}
	known := true
	m := &Meter{read: func() (map[string]time.Duration, bool) {
		copied := make(map[string]time.Duration)
		for id, waited := range all {
			copied[id] = waited
		}
		return copied, known
	}}
	if got, known := m.Waited(0, second); known {
		t.Errorf("%v without a look", got)
	}
	m.Look(10 * second)
	all["1"] += 400 * time.Millisecond
	all["2"] += 100 * time.Millisecond
	all["3"] = time.Hour // a new thread
	m.Look(11 * second)
	delete(all, "1")
	all["3"] += 200 * time.Millisecond
	m.Look(12 * second)
	for _, c := range []struct {
		from, to int64
		want     time.Duration
	}{
		{10 * second, 11 * second, 400 * time.Millisecond},
		{10 * second, 10*second + second/2, 200 * time.Millisecond},
		{10*second + second/2, 12 * second, 400 * time.Millisecond},
		{12 * second, 12*second + second/2, 100 * time.Millisecond},
		{12 * second, 20 * second, 200 * time.Millisecond},
		{9 * second, 12 * second, -1},
	} {
		if got, known := m.Waited(c.from, c.to); got.For != max(c.want, 0) || known != (c.want >= 0) {
			t.Errorf("from %d to %d: %v (known: %t), want %v", c.from, c.to, got, known, c.want)
		}
	}
	known = false
	m.Look(13 * second)
	if got, known := m.Waited(10*second, 11*second); known {
		t.Errorf("%v, but the counters cannot be read", got)
	}
}

// TestMany: the looks of months take no more room than an hour's.
func TestMany(t *testing.T) {
	waited := time.Duration(0)
	m := &Meter{read: func() (map[string]time.Duration, bool) {
		waited += time.Millisecond
		return map[string]time.Duration{"1": waited}, true
	}}
	for i := range int64(10 * keep) {
		m.Look(i * second)
	}
	if len(m.past) > keep {
		t.Errorf("%d looks are kept", len(m.past))
	}
	if got, _ := m.Waited(0, 10*int64(keep)*second-1); (got.For - 10*keep*time.Millisecond).Abs() > 2*time.Millisecond {
		t.Errorf("%v", got)
	}
}

// TestWatch: while CPUs are short, moments are looked at on a fixed grid, so a pause counts for each moment in it; while they
// are not, all are in time.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		now := func() int64 { return int64(time.Since(began)) }
		waited := time.Duration(0)
		m := &Meter{read: func() (map[string]time.Duration, bool) { return map[string]time.Duration{"1": waited}, true }}
		until, stop := make(chan time.Time), make(chan struct{})
		m.Look(now())
		watch := func() (w Wait) {
			from := now()
			time.AfterFunc(10*probeEvery+probeEvery/2, func() { until <- time.Now() })
			if !m.Watch(until, stop) {
				t.Error("it was stopped")
			}
			m.Look(now())
			w, _ = m.Waited(from, now())
			return w
		}
		if w := watch(); w.Probes != 10 || w.Late != 0 || m.short {
			t.Errorf("%+v, though CPUs are not short", w)
		}
		waited += probeEvery
		m.Look(now() + 1)
		if w, _ := m.Waited(now(), now()+1); !m.short || w.Probes != 0 {
			t.Errorf("%+v, want no moment that nobody has looked at", w)
		}
		if w := watch(); w.Probes != 10 || w.Late != 0 {
			t.Errorf("%+v, want 10 moments that were in time", w)
		}
		close(stop)
		if m.Watch(until, stop) {
			t.Error("it was not stopped")
		}
	})
	m := &Meter{}
	due := time.Now()
	next := m.late(due, due.Add(2*probeEvery+time.Millisecond))
	if m.sum.Probes != 3 || m.sum.Late != 3*probeEvery+3*time.Millisecond || !next.Equal(due.Add(3*probeEvery)) {
		t.Errorf("%+v after a pause of two periods and a millisecond, next after %v", m.sum, next.Sub(due))
	}
}

// TestReadThreads: this process has threads.
func TestReadThreads(t *testing.T) {
	if all, ok := readThreads(); ok && len(all) == 0 {
		t.Error("none")
	}
	m := NewMeter()
	m.Look(1)
	m.Look(2)
}
