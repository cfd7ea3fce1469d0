package incident

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/report"
)

// The resolution of times: three digits of anything up to a minute, in microseconds.
const (
	longestTime = int64(time.Minute / time.Microsecond)
	timeDigits  = 3
)

// Figures are the results of some requests. A time is in seconds, and of all requests: for one
// that failed it is the time until the failure.
type Figures struct {
	Requests int64         `json:"requests"`
	Failed   int64         `json:"failed"`
	Mean     report.Number `json:"mean_seconds"`
	P50      report.Number `json:"p50_seconds"`
	P99      report.Number `json:"p99_seconds"`
	Max      report.Number `json:"max_seconds"`
	// Reasons are those that failed by reason.
	Reasons map[string]int64 `json:"reasons,omitempty"`
}

// FailedShare is the part that failed.
func (f *Figures) FailedShare() report.Number {
	if f.Requests == 0 {
		return report.Unmeasured()
	}
	return report.Number(f.Failed) / report.Number(f.Requests)
}

// loadResult is the result of all requests, by the time at which they began.
type loadResult struct {
	Phases  [3]Figures `json:"phases"`
	Seconds []Figures  `json:"seconds"`
}

// count counts requests. It is safe for concurrent use.
type count struct {
	plan *loadPlan

	mu      sync.Mutex
	phases  [3]tally
	seconds []tally
}

// tally is some requests.
type tally struct {
	figures Figures
	times   *hdrhistogram.Histogram // microseconds
}

func newTally() tally { return tally{times: hdrhistogram.New(1, longestTime, timeDigits)} }

func newCount(p *loadPlan) *count {
	c := &count{plan: p}
	var total time.Duration
	for i := range c.phases {
		c.phases[i] = newTally()
		total += p.Phases[i]
	}
	for range (total + time.Second - 1) / time.Second {
		c.seconds = append(c.seconds, newTally())
	}
	return c
}

// add counts a request that began so long after the start.
func (c *count) add(began, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phases[c.plan.phase(began)].add(took, err)
	c.seconds[began/time.Second].add(took, err)
}

// phase is the one of a request that began then. A request that was under way at an event
// belongs to the phase that begins with the event.
func (p *loadPlan) phase(began time.Duration) int {
	switch {
	case began < p.Phases[0]-p.Margin:
		return 0
	case began < p.Phases[0]+p.Phases[1]:
		return 1
	}
	return 2
}

func (t *tally) add(took time.Duration, err error) {
	t.figures.Requests++
	_ = t.times.RecordValue(min(max(took.Microseconds(), 1), longestTime)) // in its range
	if err == nil {
		return
	}
	t.figures.Failed++
	if t.figures.Reasons == nil {
		t.figures.Reasons = make(map[string]int64)
	}
	t.figures.Reasons[endpoint.Reason(err)]++
}

func (t *tally) sum() Figures {
	f, unknown := t.figures, report.Unmeasured()
	f.Mean, f.P50, f.P99, f.Max = unknown, unknown, unknown, unknown
	if f.Requests > 0 {
		f.Mean = report.Number(t.times.Mean() / 1e6)
		f.P50 = report.Number(float64(t.times.ValueAtQuantile(50)) / 1e6)
		f.P99 = report.Number(float64(t.times.ValueAtQuantile(99)) / 1e6)
		f.Max = report.Number(float64(t.times.Max()) / 1e6)
	}
	return f
}

func (c *count) result() *loadResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := new(loadResult)
	for i := range c.phases {
		r.Phases[i] = c.phases[i].sum()
	}
	for i := range c.seconds {
		r.Seconds = append(r.Seconds, c.seconds[i].sum())
	}
	return r
}
