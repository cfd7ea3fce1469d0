// Package evidence reports the work of the kernel on the connections and threads of a process, and its
// owner: a session of a listener, an endpoint, or a thread.
package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// A Report is the result of a trace. Its JSON form is part of the interface of the program. Times
// are in microseconds.
type Report struct {
	Target    string  `json:"target"`
	Processes []int   `json:"processes"`
	Seconds   float64 `json:"seconds"`
	Summary   string  `json:"summary"`
	// Lacks are the capabilities without which nothing was traced: Counters and Threads are all
	// that is known then. Why is the kernel's answer.
	Lacks []string `json:"lacks,omitempty"`
	Why   string   `json:"why,omitempty"`
	// Causes are the causes of delays, the longest in all first, and then those without a time,
	// the most frequent first.
	Causes  []Cause  `json:"causes"`
	Events  []Event  `json:"events"`
	Delays  []Delay  `json:"delays"`
	Threads []Thread `json:"threads"`
	// Unmatched are events of the network namespace that belong to no known connection of the
	// processes.
	Unmatched map[kerneltrace.Kind]uint64 `json:"unmatched,omitempty"`
	Lost      uint64                      `json:"lost,omitempty"` // events without room
	Missing   []Missing                   `json:"missing,omitempty"`
	Notes     []string                    `json:"notes,omitempty"`
	// Counters are the network namespace's counters that have risen, by their names in
	// /proc/net/netstat and /proc/net/snmp: of all processes there.
	Counters map[string]int64 `json:"counters,omitempty"`
}

// A Cause is a kind of delay or of loss.
type Cause struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Times
	// Of is how many connections, or threads, it is from.
	Of int `json:"of"`
}

// Times are of a histogram. All are left out if no time is known; P99Us alone if only a sum is.
type Times struct {
	TotalUs int64 `json:"total_us,omitempty"`
	P50Us   int64 `json:"p50_us,omitempty"`
	P99Us   int64 `json:"p99_us,omitempty"` // at most; rounded up by a quarter or less
	MaxUs   int64 `json:"max_us,omitempty"`
}

func timesOf(h *kerneltrace.Histogram) Times {
	return Times{micros(h.Sum), micros(h.Quantile(0.5)), micros(h.Quantile(0.99)), micros(h.Max)}
}

// micros rounds up, so that something that has taken time is not 0.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// An Event is a kind of event of one connection, and how often it was.
type Event struct {
	Kind      kerneltrace.Kind `json:"kind"`
	Reason    string           `json:"reason,omitempty"`
	Direction string           `json:"direction,omitempty"` // of a dropped packet: in or out
	Count     uint64           `json:"count"`
	Owner
	Local  string `json:"local,omitempty"`
	Remote string `json:"remote,omitempty"`
	// FirstS and LastS are seconds since the trace began.
	FirstS float64 `json:"first_s"`
	LastS  float64 `json:"last_s"`
}

// A Delay is times at a listener or an endpoint: of connecting, of waiting until a segment was
// sent again, or in the queue of a device.
type Delay struct {
	Name   string `json:"name"`
	Device string `json:"device,omitempty"`
	Owner
	Count uint64 `json:"count"`
	Times
}

// A Thread is the waits of a thread for a CPU. A loop is a goroutine, which no thread is tied to.
type Thread struct {
	PID   int    `json:"pid"`
	TID   int    `json:"tid"`
	Name  string `json:"name,omitempty"`
	Count uint64 `json:"count"`
	Times
}

// Missing is a tracepoint that was not attached to.
type Missing struct {
	Tracepoint string `json:"tracepoint"`
	Why        string `json:"why"`
}

// Names of causes and delays.
const (
	cpuWait        = "cpu-wait"
	deviceQueue    = "device-queue"
	retransmitWait = "retransmit-wait"
	connectTime    = "connect"
)

var periodNames = map[kerneltrace.Period]string{
	kerneltrace.Connect: connectTime, kerneltrace.RetransmitWait: retransmitWait, kerneltrace.DeviceQueue: deviceQueue,
}

// maxEvents is how many connections' events are listed; the causes count all.
const maxEvents = 2000

// build fills a report in.
func (r *Report) build(reading *kerneltrace.Reading, o *owners, began time.Duration) {
	r.Unmatched, r.Lost = reading.Unmatched, reading.Lost
	for i := range reading.Events {
		r.Events = append(r.Events, o.event(&reading.Events[i], began))
	}
	slices.SortFunc(r.Events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Remote, b.Remote))
	})
	for i := range reading.Durations {
		r.Delays = append(r.Delays, o.delay(&reading.Durations[i]))
	}
	slices.SortFunc(r.Delays, func(a, b Delay) int { return cmp.Compare(b.TotalUs, a.TotalUs) })
	for i := range reading.Threads {
		th := &reading.Threads[i]
		r.Threads = append(r.Threads, Thread{PID: th.PID, TID: th.TID, Name: threadName(th.PID, th.TID), Count: th.Count, Times: timesOf(&th.Histogram)})
	}
	slices.SortFunc(r.Threads, func(a, b Thread) int { return cmp.Compare(b.TotalUs, a.TotalUs) })
	r.Causes = causes(reading)
	r.Summary = summary(r.Causes, r.Lost)
	if more := len(r.Events) - maxEvents; more > 0 {
		r.Events = r.Events[:maxEvents]
		r.Notes = append(r.Notes, fmt.Sprintf("%d more connections with events are counted and not listed", more))
	}
}

// causes ranks the delays and events.
func causes(reading *kerneltrace.Reading) (list []Cause) {
	sums := make(map[string]*kerneltrace.Histogram)
	of := make(map[string]int)
	add := func(name string, h *kerneltrace.Histogram) {
		if sums[name] == nil {
			sums[name] = new(kerneltrace.Histogram)
		}
		sums[name].Add(h)
		of[name]++
	}
	for i := range reading.Threads {
		add(cpuWait, &reading.Threads[i].Histogram)
	}
	for i := range reading.Durations {
		add(periodNames[reading.Durations[i].Period], &reading.Durations[i].Histogram)
	}
	for name, h := range sums {
		list = append(list, Cause{Name: name, Count: h.Count, Times: timesOf(h), Of: of[name]})
	}
	counts := make(map[string]*Cause)
	for i := range reading.Events {
		e := &reading.Events[i]
		name := e.Kind.String()
		if e.Reason != "" {
			name += " (" + e.Reason + ")"
		}
		if counts[name] == nil {
			counts[name] = &Cause{Name: name}
		}
		counts[name].Count += e.Count
		counts[name].Of++
	}
	for _, c := range counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.TotalUs, a.TotalUs), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// phrases are the causes in the summary.
var phrases = map[string]string{
	cpuWait: "waiting for a CPU", deviceQueue: "waiting in the queue of a network device",
	retransmitWait: "waiting until a segment was sent again", connectTime: "connecting to endpoints",
}

// summary is a sentence that ranks the causes by their times in all, and the rest by count.
func summary(list []Cause, lost uint64) string {
	var timed, counted []string
	for _, c := range list {
		if c.TotalUs > 0 {
			timed = append(timed, fmt.Sprintf("%s (%s in all, 99 %% of %d took at most %s, the longest %s)",
				phrases[c.Name], duration(c.TotalUs), c.Count, duration(c.P99Us), duration(c.MaxUs)))
		} else {
			counted = append(counted, fmt.Sprintf("%d × %s", c.Count, c.Name))
		}
	}
	text := "No delay and no event was seen"
	if len(timed) > 0 {
		text = "The most time went into " + strings.Join(timed, ", then ")
	}
	if len(counted) > 0 {
		text += "; counted: " + strings.Join(counted, ", ")
	}
	if lost > 0 {
		text += fmt.Sprintf("; %d more found no room", lost)
	}
	return text + "."
}

// duration formats microseconds with three digits or so.
func duration(us int64) string {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond / 10).String()
	}
	return d.String()
}
