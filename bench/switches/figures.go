package switches

import (
	"github.com/penstock/penstock/bench/report"
)

// Figures are the results of one trial, or the medians of several, for the window in which all
// connections were active. The latencies are the load's, of the requests that came back in it
// and the moment that the load goes on after it.
type Figures struct {
	RequestsPerSecond report.Number `json:"requests_per_second"`
	// Switches are the operating system's context switches of the server's
	// threads, voluntary or not.
	SwitchesPerSecond  report.Number `json:"switches_per_second"`
	SwitchesPerRequest report.Number `json:"switches_per_request"`
	// CPU is the server's own, user and system, in seconds.
	CPUPerRequest report.Number `json:"cpu_seconds_per_request"`
	// Mean, P50 and P99 are latencies in seconds.
	Mean report.Number `json:"mean_seconds"`
	P50  report.Number `json:"p50_seconds"`
	P99  report.Number `json:"p99_seconds"`
	// Memory is the server's anonymous memory (RssAnon) in bytes, less its memory without
	// connections; kernel memory is no part of it.
	MemoryPerConnection report.Number `json:"memory_bytes_per_connection"`
	// Threads are all that the server has, its runtime's own included.
	ThreadsPerConnection report.Number `json:"threads_per_connection"`
}

// figures lists where each figure is.
func (f *Figures) figures() []*report.Number {
	return []*report.Number{
		&f.RequestsPerSecond, &f.SwitchesPerSecond, &f.SwitchesPerRequest, &f.CPUPerRequest,
		&f.Mean, &f.P50, &f.P99, &f.MemoryPerConnection, &f.ThreadsPerConnection,
	}
}

// median returns the median of each figure by itself.
func median(trials []Figures) Figures {
	var m Figures
	for i, f := range m.figures() {
		*f = report.Number(sample(trials, i).Median())
	}
	return m
}

// sample is the i-th of the figures in every trial.
func sample(trials []Figures, i int) report.Sample {
	return report.SampleOf(trials, func(f *Figures) report.Number { return *f.figures()[i] })
}

// over returns the median of the ratios of each figure to base's of the same
// round.
func over(trials, base []Figures) Figures {
	var ratio Figures
	for i, f := range ratio.figures() {
		*f = report.Number(sample(trials, i).Over(sample(base, i)).Median())
	}
	return ratio
}

// between returns the difference of two accounts of a server.
func between(first, last *account) Figures {
	elapsed := (last.At - first.At).Seconds()
	requests := float64(last.Echoed-first.Echoed) / Size
	switches := float64(last.Switches - first.Switches)
	return Figures{
		RequestsPerSecond:  report.Number(requests / elapsed),
		SwitchesPerSecond:  report.Number(switches / elapsed),
		SwitchesPerRequest: report.Number(switches / requests),
		CPUPerRequest:      report.Number((last.CPU - first.CPU).Seconds() / requests),
	}
}
