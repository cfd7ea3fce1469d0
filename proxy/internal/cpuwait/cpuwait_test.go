package cpuwait

import (
	"testing"
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
	if got := m.Waited(0, second); got >= 0 {
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
		if got := m.Waited(c.from, c.to); got != c.want {
			t.Errorf("from %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	known = false
	m.Look(13 * second)
	if got := m.Waited(10*second, 11*second); got >= 0 {
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
	if got := m.Waited(0, 10*int64(keep)*second-1); (got - 10*keep*time.Millisecond).Abs() > 2*time.Millisecond {
		t.Errorf("%v", got)
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
