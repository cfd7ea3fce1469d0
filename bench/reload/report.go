package reload

import (
	"fmt"

	"github.com/penstock/penstock/bench/report"
)

// Report is the result of a measurement, and the content of --json. A unit is part of the
// field's name; an unmeasured figure is null.
type Report struct {
	Listeners int    `json:"listeners"`
	Endpoints int    `json:"endpoints"`
	FileBytes int    `json:"file_bytes"`
	Rows      []Row  `json:"reloads"`
	Steady    *Long  `json:"in_a_row,omitempty"`
	Interval  string `json:"health_check_interval"`
}

// Row is one kind of reload.
type Row struct {
	Name   string  `json:"name"`
	About  string  `json:"about"`
	Rounds []Round `json:"rounds,omitempty"`
	Median *Round  `json:"median,omitempty"` // nil without rounds
	Worst  *Round  `json:"worst,omitempty"`  // of each figure
}

// Round is one reload.
type Round struct {
	// First is from SIGHUP to the greeting of the first connection that the new state
	// served.
	First report.Number `json:"first_seconds"`
	// ValidToSwapped is from a valid configuration until it is in force for new clients.
	// Prepared and Swapped are its parts: until it is made beside the old one, and from there
	// on. They are the process's own figures.
	ValidToSwapped report.Number `json:"valid_to_swapped_seconds"`
	Prepared       report.Number `json:"prepared_seconds"`
	Swapped        report.Number `json:"swapped_seconds"`
	// LongTurns are turns of loops of a millisecond or more between SIGHUP and First and
	// a little after, QuietTurns those in as much time before.
	LongTurns report.Number `json:"long_turns"`
	// Overruns are the LongTurns that used a millisecond of CPU time. The others have
	// waited for a CPU, or for goroutines that they gave way to.
	Overruns   report.Number `json:"overruns"`
	QuietTurns report.Number `json:"quiet_long_turns"`
	// LongestTurn is known only if it is the longest since the process began.
	LongestTurn report.Number `json:"longest_turn_seconds"`
}

// figures are all of a round's.
func (r *Round) figures() []*report.Number {
	return []*report.Number{&r.First, &r.ValidToSwapped, &r.Prepared, &r.Swapped, &r.LongTurns, &r.Overruns, &r.QuietTurns, &r.LongestTurn}
}

// sum works out the medians and the greatest.
func (r *Row) sum() {
	if len(r.Rounds) == 0 {
		return
	}
	r.Median, r.Worst = new(Round), new(Round)
	for f := range r.Median.figures() {
		values := report.SampleOf(r.Rounds, func(of *Round) report.Number { return *of.figures()[f] })
		_, most := values.Range()
		*r.Median.figures()[f], *r.Worst.figures()[f] = report.Number(values.Median()), report.Number(most)
	}
}

// Long is many reloads in a row.
type Long struct {
	Reloads   int           `json:"reloads"`
	Listeners int           `json:"listeners"`
	Endpoints int           `json:"endpoints"`
	Elapsed   report.Number `json:"elapsed_seconds"`
	Clients   *Clients      `json:"clients"`
	Held      []Held        `json:"held"` // on the way, the last one at the end
	// Violations are the faults, a line each.
	Violations []string `json:"violations,omitempty"`
}

// Held is the resources that the process holds after a number of reloads.
type Held struct {
	Reloads     int           `json:"reloads"`
	RssAnon     report.Number `json:"rss_anon_bytes"`
	Descriptors int           `json:"descriptors"`
	Goroutines  int64         `json:"goroutines"`
}

// How much more the process may hold in the end than after a tenth of the reloads:
// clients come and go, a collection is due or was just made.
const (
	moreDescriptors = 100
	moreGoroutines  = 50
	moreMemory      = 1.25
	restMemory      = 8 << 20
)

// judge fills in the violations.
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
