// Package evidence reports what the kernel did with the connections and threads of a process. It names the owner
// of each: a session of a listener, an endpoint, or a thread.
package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// A Report is the result of a trace. Its JSON form is part of the program's interface. Times are in microseconds.
type Report struct {
	Target    string  `json:"target"`
	Processes []int   `json:"processes"`
	Seconds   float64 `json:"seconds"`
	Summary   string  `json:"summary"`
	// Lacks are the missing capabilities if nothing could be traced. Then only Counters and Threads are known, and
	// Why is the kernel's error.
	Lacks []string `json:"lacks,omitempty"`
	Why   string   `json:"why,omitempty"`
	// Causes are the causes of delays and losses. Causes with a time come first, in the order of their total time,
	// then the others in the order of their counts.
	Causes  []Cause  `json:"causes"`
	Events  []Event  `json:"events"`
	Delays  []Delay  `json:"delays"`
	Threads []Thread `json:"threads"`
	// Unmatched are events of the network namespace that belong to no known connection of the processes.
	Unmatched map[kerneltrace.Kind]uint64 `json:"unmatched,omitempty"`
	Lost      uint64                      `json:"lost,omitempty"` // events that did not fit into the maps
	Missing   []Missing                   `json:"missing,omitempty"`
	Notes     []string                    `json:"notes,omitempty"`
	// Counters are the increases of the network namespace's counters, by their names in /proc/net/netstat and
	// /proc/net/snmp. They count all processes of the namespace.
	Counters map[string]int64 `json:"counters,omitempty"`
}

// A Cause is a kind of delay or of loss.
type Cause struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Times
	// Of is the number of connections or threads that have this cause.
	Of int `json:"of"`
}

// Times are the times of a histogram. Without times, all fields are left out. If only the sum is known, only
// TotalUs is set.
type Times struct {
	TotalUs int64 `json:"total_us,omitempty"`
	P50Us   int64 `json:"p50_us,omitempty"`
	P99Us   int64 `json:"p99_us,omitempty"` // upper bound, too high by a quarter at most
	MaxUs   int64 `json:"max_us,omitempty"`
}

func timesOf(h *kerneltrace.Histogram) Times {
	return Times{micros(h.Sum), micros(h.Quantile(0.5)), micros(h.Quantile(0.99)), micros(h.Max)}
}

// micros rounds up, so that something that has taken time is not 0.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// An Event counts one kind of event of one connection.
type Event struct {
	Kind      kerneltrace.Kind `json:"kind"`
	Reason    string           `json:"reason,omitempty"`
	Direction string           `json:"direction,omitempty"` // of a dropped packet: "in" or "out"
	Count     uint64           `json:"count"`
	Owner
	Local  string `json:"local,omitempty"`
	Remote string `json:"remote,omitempty"`
	// FirstS and LastS are seconds since the trace began.
	FirstS float64 `json:"first_s"`
	LastS  float64 `json:"last_s"`
}

// A Delay holds the times at a listener or an endpoint: times to connect, times until a segment was sent again, or
// times in the queue of a device.
type Delay struct {
	Name   string `json:"name"`
	Device string `json:"device,omitempty"`
	Owner
	Count uint64 `json:"count"`
	Times
}

// A Thread says how long a thread waited for a CPU. It does not name a loop, because a loop is a goroutine, and
// not tied to a thread.
type Thread struct {
	PID   int    `json:"pid"`
	TID   int    `json:"tid"`
	Name  string `json:"name,omitempty"`
	Count uint64 `json:"count"`
	Times
}

// Missing is a tracepoint that could not be attached.
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

// maxEvents is how many connections with events are listed. The causes count all connections.
const maxEvents = 2000

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
		r.Notes = append(r.Notes, fmt.Sprintf("%s counted, but not listed", display.Plural(int64(more), "more connection with events is", "more connections with events are")))
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

// phrases are the texts for the causes in the summary.
var phrases = map[string]string{
	cpuWait: "waiting for a CPU", deviceQueue: "waiting in the queue of a network device",
	retransmitWait: "waiting for retransmissions", connectTime: "connecting to endpoints",
}

// summary returns a sentence that lists the causes by total time, and the others by count.
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
	text := "There was no delay and no event"
	switch {
	case len(timed) > 0:
		text = "The most time went into " + strings.Join(timed, ", then ")
	case len(counted) > 0:
		text = "There was no delay"
	}
	if len(counted) > 0 {
		text += "; counted: " + strings.Join(counted, ", ")
	}
	if lost > 0 {
		text += fmt.Sprintf("; %d more were lost, because the buffer was full", lost)
	}
	return text + "."
}

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
