package bench

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// Missed returns the bounds of the mix that Penstock's engines missed, a text for each: the failures of all trials together, and the 99th
// percentile of a chat's latency; 0 is any.
func Missed(d *report.Document, failures int64, chatP99 time.Duration) (missed []string) {
	for _, s := range d.Scenarios {
		if s.Workload != "mix" {
			continue
		}
		for _, c := range s.Cells {
			if !report.IsPenstock(c.Contestant) || c.Role == report.Again || c.Figures == nil {
				continue
			}
			if n, said := failed(s, c.Contestant); n > failures {
				missed = append(missed, fmt.Sprintf("%s, %s: %d failed, more than %d (--max-failed): %s", s.Name, c.Contestant, n, failures, said))
			}
			if p99 := c.Figures["chat_latency_p99_seconds"].Median; chatP99 > 0 && !(float64(p99) <= chatP99.Seconds() && p99 > 0) {
				missed = append(missed, fmt.Sprintf("%s, %s: chat p99 is %s, more than %v (--max-chat-p99)", s.Name, c.Contestant, report.Seconds(float64(p99)), chatP99))
			}
		}
	}
	return missed
}

// failed adds up the failures in a contestant's trials, and returns the message of the first
// one.
func failed(s *report.Scenario, contestant string) (n int64, said string) {
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
