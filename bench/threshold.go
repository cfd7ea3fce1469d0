package bench

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// Thresholds are the bounds that Penstock must reach in the mix.
type Thresholds struct {
	Failed  int64         // failures at most, of all trials together
	ChatP99 time.Duration // 99th percentile of a chat's latency at most; 0: whatever it is
	Bulk    float64       // bytes per second of the streams at least
}

// Missed returns the thresholds that Penstock's engines missed, a text for each.
func (t *Thresholds) Missed(d *report.Document) []string {
	var missed []string
	for _, s := range d.Scenarios {
		if s.Workload != "mix" {
			continue
		}
		for _, c := range s.Cells {
			if report.IsPenstock(c.Contestant) && c.Role != report.Again && c.Figures != nil {
				for _, text := range t.missed(s, c) {
					missed = append(missed, fmt.Sprintf("%s, %s: %s", s.Name, c.Contestant, text))
				}
			}
		}
	}
	return missed
}

// missed is Missed for one cell.
func (t *Thresholds) missed(s *report.Scenario, c *report.Cell) []string {
	var missed []string
	add := func(format string, args ...any) { missed = append(missed, fmt.Sprintf(format, args...)) }
	if n, said := failures(s, c.Contestant); n > t.Failed {
		add("%d failed, more than %d (--max-failed): %s", n, t.Failed, said)
	}
	if p99 := median(c, "chat_latency_p99_seconds"); t.ChatP99 > 0 && !(p99 <= t.ChatP99.Seconds()) {
		add("chat p99 is %s, more than %v (--max-chat-p99)", report.Seconds(p99), t.ChatP99)
	}
	if bulk := median(c, "bulk_gigabytes_per_second") * 1e9; t.Bulk > 0 && !(bulk >= t.Bulk) {
		add("bulk is %s/s, less than %s/s (--min-bulk)", report.Bytes(bulk), report.Bytes(t.Bulk))
	}
	return missed
}

// median returns the median of a cell's figure, or not a number if it was not measured: then
// no threshold is reached.
func median(c *report.Cell, name string) float64 {
	if f, ok := c.Figures[name]; ok {
		return float64(f.Median)
	}
	return math.NaN()
}

// failures adds up the failures in a contestant's trials, and returns the message of the first
// one.
func failures(s *report.Scenario, contestant string) (n int64, said string) {
	for _, t := range s.Trials {
		if t.Contestant != contestant {
			continue
		}
		n += t.Failures()
		for _, c := range t.Classes {
			if said == "" && c.Failed > 0 {
				said = c.Name + ": " + c.Said
			}
		}
	}
	return n, said
}
