package iperf3

import "github.com/penstock/penstock/bench/report"

// Report is the result of a comparison, and the content of --json. A unit is part of the
// field's name; an unmeasured figure is null.
type Report struct {
	Rounds      int           `json:"rounds"`
	FlowSeconds report.Number `json:"flow_seconds"`
	// SystemCallCounter is the tool that counted, empty if none did.
	SystemCallCounter string `json:"system_call_counter,omitempty"`
	Rows              []Row  `json:"contestants"`
}

// Row is one contestant.
type Row struct {
	Contestant string    `json:"contestant"`
	About      string    `json:"about"`
	Flows      []Figures `json:"flows,omitempty"`  // by round
	Median     *Figures  `json:"median,omitempty"` // nil without flows
	// Throughput and CPU are ratios to the first row's of the same round; nil of
	// itself, and where one of the two has none.
	Throughput *report.Band `json:"throughput_ratio"`
	CPU        *report.Band `json:"cpu_ratio"`
	// CallsPerMB is of a flow of its own, under the tool that counts; CallsFailed
	// says why there is none.
	CallsPerMB  report.Number `json:"system_calls_per_mb"`
	CallsFailed string        `json:"system_calls_failed,omitempty"`
}

// Figures are the results of one flow, or the medians of several.
type Figures struct {
	Bytes         int64         `json:"bytes"` // received
	BitsPerSecond report.Number `json:"bits_per_second"`
	Retransmits   int64         `json:"retransmits"` // of the client's segments
	// CPUPerGB is the proxy's, user and system, in seconds; null, as SwitchesPerGB,
	// where there is none.
	CPUPerGB      report.Number `json:"cpu_seconds_per_gb"`
	SwitchesPerGB report.Number `json:"switches_per_gb"`
	// Spliced is which part of the bytes the proxy says to have spliced; the rest it
	// has copied. Null if it says nothing.
	Spliced report.Number `json:"spliced"`
}

func bitsPerSecond(f *Figures) report.Number { return f.BitsPerSecond }
func cpuPerGB(f *Figures) report.Number      { return f.CPUPerGB }

// sum works out the medians and the ratios to base.
func (r *Row) sum(base *Row) {
	if len(r.Flows) == 0 {
		return
	}
	median := func(of func(*Figures) report.Number) report.Number {
		return report.Number(report.SampleOf(r.Flows, of).Median())
	}
	r.Median = &Figures{
		Bytes:         int64(median(func(f *Figures) report.Number { return report.Number(f.Bytes) })),
		BitsPerSecond: median(bitsPerSecond),
		Retransmits:   int64(median(func(f *Figures) report.Number { return report.Number(f.Retransmits) })),
		CPUPerGB:      median(cpuPerGB),
		SwitchesPerGB: median(func(f *Figures) report.Number { return f.SwitchesPerGB }),
		Spliced:       median(func(f *Figures) report.Number { return f.Spliced }),
	}
	if r != base {
		r.Throughput, r.CPU = r.over(base, bitsPerSecond), r.over(base, cpuPerGB)
	}
}

// over is a figure's ratio to base's, round by round.
func (r *Row) over(base *Row, of func(*Figures) report.Number) *report.Band {
	ratios := report.SampleOf(r.Flows, of).Over(report.SampleOf(base.Flows, of))
	m := report.Number(ratios.Median())
	if !m.Known() {
		return nil
	}
	low, high := ratios.Stray()
	return &report.Band{Median: m, Low: report.Number(low), High: report.Number(high), Values: len(ratios)}
}
