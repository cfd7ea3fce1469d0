package reload

import (
	"fmt"

	"github.com/penstock/penstock/bench/report"
)

// Report is the result of a measurement, and the content of --json. A field's name has the unit. A figure that was
// not measured is null.
type Report struct {
	Listeners int    `json:"listeners"`
	Endpoints int    `json:"endpoints"`
	FileBytes int    `json:"file_bytes"`
	Rows      []Row  `json:"reloads"`
	Steady    *Long  `json:"in_a_row,omitempty"`
	Interval  string `json:"health_check_interval"`
}

// Row has the figures of one kind of reload.
type Row struct {
	Name   string  `json:"name"`
	About  string  `json:"about"`
	Rounds []Round `json:"rounds,omitempty"`
	Median *Round  `json:"median,omitempty"` // nil without rounds
	Worst  *Round  `json:"worst,omitempty"`  // the largest value of each figure
}

// Round has the figures of one reload.
type Round struct {
	// First is the time from SIGHUP to the greeting on the first connection that the new state served.
	First report.Number `json:"first_seconds"`
	// ValidToSwapped is the time from a valid configuration until it is in force for new clients. It has two
	// parts: Prepared is until the new state is made beside the old state, and Swapped is the rest. The measured
	// process reports these times itself.
	ValidToSwapped report.Number `json:"valid_to_swapped_seconds"`
	Prepared       report.Number `json:"prepared_seconds"`
	Swapped        report.Number `json:"swapped_seconds"`
	// LongTurns are turns of loops of a millisecond or more, from SIGHUP until shortly after First. QuietTurns are
	// such turns in the same time before SIGHUP.
	LongTurns report.Number `json:"long_turns"`
	// Overruns are the LongTurns that used a millisecond of CPU time. The other LongTurns waited for a CPU, or
	// yielded to goroutines.
	Overruns   report.Number `json:"overruns"`
	QuietTurns report.Number `json:"quiet_long_turns"`
	// LongestTurn is known only if it is the longest since the process began.
	LongestTurn report.Number `json:"longest_turn_seconds"`
}

func (r *Row) sum() {
	if len(r.Rounds) == 0 {
		return
	}
	r.Median, r.Worst = report.Over(r.Rounds, report.Sample.Median), report.Over(r.Rounds, report.Sample.Most)
}

// Long has the figures of many reloads in a row.
type Long struct {
	Reloads   int           `json:"reloads"`
	Listeners int           `json:"listeners"`
	Endpoints int           `json:"endpoints"`
	Elapsed   report.Number `json:"elapsed_seconds"`
	Clients   *Clients      `json:"clients"`
	Held      []Held        `json:"held"` // several times during the reloads, and at the end
	// Violations are the faults, one line each.
	Violations []string `json:"violations,omitempty"`
}

// Held is the resources that the process holds after a number of reloads.
type Held struct {
	Reloads     int           `json:"reloads"`
	RssAnon     report.Number `json:"rss_anon_bytes"`
	Descriptors int           `json:"descriptors"`
	Goroutines  int64         `json:"goroutines"`
}

// How much more the process may hold at the end than after a tenth of the reloads. It may hold more because
// clients come and go, and because of the times of garbage collections.
const (
	moreDescriptors = 100
	moreGoroutines  = 50
	moreMemory      = 1.25
	restMemory      = 8 << 20
)

func (l *Long) judge() {
	add := func(format string, args ...any) { l.Violations = append(l.Violations, fmt.Sprintf(format, args...)) }
	if c := l.Clients; c != nil && c.Closed+c.Failed > 0 {
		add("%d of %d connections that rested were closed, %d of %d others failed: %s", c.Closed, c.Idle, c.Failed, c.Served+c.Failed, c.Said)
	}
	if len(l.Held) < 2 {
		return
	}
	first, last := l.Held[0], l.Held[len(l.Held)-1]
	if last.Descriptors > first.Descriptors+moreDescriptors {
		add("descriptors rose from %d to %d", first.Descriptors, last.Descriptors)
	}
	if last.Goroutines > first.Goroutines+moreGoroutines {
		add("goroutines rose from %d to %d", first.Goroutines, last.Goroutines)
	}
	if float64(last.RssAnon) > moreMemory*float64(first.RssAnon)+restMemory {
		add("memory rose from %s to %s", report.Bytes(float64(first.RssAnon)), report.Bytes(float64(last.RssAnon)))
	}
}
