// Package cpuwait knows how long this process has waited for a CPU, and how long an event has.
package cpuwait

import (
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Meter adds up how long threads of this process were runnable and had no CPU. Between two looks it counts the thread
// that waited longest. It is safe for concurrent use.
type Meter struct {
	looking sync.Mutex // one Look at a time; guards threads
	threads map[string]time.Duration
	read    func() (map[string]time.Duration, bool)

	mu      sync.Mutex // held for moments: loops wait for it
	sum     Wait
	past    []look // ascending
	short   bool   // between the last two looks it waited for more than a fiftieth of the time
	probing bool   // moments are looked at, until the next Watch
	unknown bool
}

// A Wait is how this process has waited for CPUs over some time.
type Wait struct {
	// For is how long a thread was runnable and had no CPU.
	For time.Duration
	// Late is the sum of the times for which Probes moments have waited for a thread: an event at any moment
	// waits for Late/Probes in the mean. While CPUs are not short moments are not looked at, and count as in time, see
	// [Meter.Watch].
	Late   time.Duration
	Probes int64
}

// A look is the sum at a time.
type look struct {
	at  int64
	sum Wait
}

// probeEvery is how far moments are apart. It divides no usual period of a CPU bandwidth.
const probeEvery = 19 * time.Millisecond

// keep is how many looks are kept: more than an hour's, one each second. Older ones are kept ever more sparsely.
const keep = 8192

// NewMeter makes a Meter. The first look is the beginning.
func NewMeter() *Meter { return &Meter{read: readThreads} }

// Look reads the kernel's counters, /proc/self/task/TID/schedstat, at a time now of any monotonic clock, in
// nanoseconds.
func (m *Meter) Look(now int64) {
	m.looking.Lock()
	defer m.looking.Unlock()
	threads, ok := m.read()
	var most time.Duration
	for id, waited := range threads {
		if before, ok := m.threads[id]; ok {
			most = max(most, waited-before)
		}
	}
	if ok {
		m.threads = threads
	}
	m.add(now, most, ok)
}

// add adds a look, unless the counters could not be read.
func (m *Meter) add(now int64, most time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unknown = !ok; !ok {
		return
	}
	m.sum.For += most
	if last := len(m.past) - 1; last >= 0 {
		if m.past[last].at >= now {
			m.past[last].sum = m.sum
			return
		}
		m.short = int64(most) > (now-m.past[last].at)/50
		if !m.short && !m.probing {
			m.sum.Probes += (now - m.past[last].at) / int64(probeEvery)
		}
	}
	m.past = append(m.past, look{now, m.sum})
	if len(m.past) >= keep {
		m.thin()
	}
}

// thin drops every second look of the older half.
func (m *Meter) thin() {
	kept := m.past[:0]
	for i, l := range m.past {
		if i >= keep/2 || i%2 == 0 {
			kept = append(kept, l)
		}
	}
	m.past = kept
}

// Watch waits until something comes from until, or stop is closed, and reports whether until was first. While CPUs are
// short it finds out how long an event waits: by moments on a fixed grid, and the time from each of them until a
// thread of this process runs.
func (m *Meter) Watch(until <-chan time.Time, stop <-chan struct{}) bool {
	m.mu.Lock()
	m.probing = m.short
	m.mu.Unlock()
	if !m.probing { // this goroutine alone writes it
		select {
		case <-until:
			return true
		case <-stop:
			return false
		}
	}
	next := time.Now().Add(probeEvery)
	timer := time.NewTimer(probeEvery)
	defer timer.Stop()
	for {
		select {
		case <-until:
			return true
		case <-stop:
			return false
		case <-timer.C:
			next = m.late(next, time.Now())
			timer.Reset(time.Until(next))
		}
	}
}

// late counts the moments from due until now, and returns the next.
func (m *Meter) late(due, now time.Time) (next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ; !due.After(now); due = due.Add(probeEvery) {
		m.sum.Late += now.Sub(due)
		m.sum.Probes++
	}
	return due
}

// Waited returns the wait between two times, as far as the looks at or around them show, and after the last
// as the last two do. False means that it is unknown: the counters cannot be read, or no look is as old as from.
func (m *Meter) Waited(from, to int64) (w Wait, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unknown || len(m.past) == 0 || m.past[0].at > from {
		return w, false
	}
	before, after := m.at(from), m.at(to)
	return Wait{max(after.For-before.For, 0), max(after.Late-before.Late, 0), max(after.Probes-before.Probes, 0)}, true
}

// at returns the sum at a time, of a straight line between two looks, and of the last after it.
func (m *Meter) at(t int64) Wait {
	low, high := 0, len(m.past)
	for low < high {
		if middle := (low + high) / 2; m.past[middle].at <= t {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(m.past) { // as it was between the last two, for as long
		if low--; low == 0 {
			return m.past[0].sum
		}
		t = min(t, 2*m.past[low].at-m.past[low-1].at)
	}
	a, b := m.past[low-1], m.past[low]
	part := float64(t-a.at) / float64(b.at-a.at)
	between := func(a, b int64) int64 { return a + int64(float64(b-a)*part) }
	return Wait{
		time.Duration(between(int64(a.sum.For), int64(b.sum.For))),
		time.Duration(between(int64(a.sum.Late), int64(b.sum.Late))),
		between(a.sum.Probes, b.sum.Probes),
	}
}

// readThreads reads the second figure of each thread's schedstat: the time waited on a run queue
// (Documentation/scheduler/sched-stats.rst; CONFIG_SCHED_INFO). It makes three system calls for a thread; package os would
// make seven.
func readThreads() (map[string]time.Duration, bool) {
	const tasks = "/proc/self/task"
	dir, err := syscall.Open(tasks, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer syscall.Close(dir)
	all := make(map[string]time.Duration)
	var entries, text [4096]byte
	for {
		n, err := syscall.ReadDirent(dir, entries[:])
		if err != nil || n <= 0 {
			return all, len(all) > 0
		}
		_, _, names := syscall.ParseDirent(entries[:n], -1, nil)
		for _, id := range names {
			if waited, ok := waitedBy(tasks+"/"+id+"/schedstat", text[:]); ok {
				all[id] = waited
			}
		}
	}
}

// waitedBy reads the figure of a thread; false: the thread has ended, or it cannot be read.
func waitedBy(path string, text []byte) (time.Duration, bool) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	n, err := syscall.Read(fd, text)
	_ = syscall.Close(fd) // it was read
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[:n]))
	if len(fields) < 2 {
		return 0, false
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	return time.Duration(ns), err == nil
}
