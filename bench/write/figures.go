package write

import (
	"github.com/penstock/penstock/bench/report"
)

// Figures are the results of one trial, or of several.
type Figures struct {
	BitsPerSecond report.Number `json:"bits_per_second"`
	// UserPerGB and SystemPerGB are CPU of the process that writes, in seconds. The kernel
	// knows their sum, and divides it by its samples at ticks, a few hundred in a second. So
	// for several trials they are those of all of them together.
	UserPerGB   report.Number `json:"user_cpu_seconds_per_gb"`
	SystemPerGB report.Number `json:"system_cpu_seconds_per_gb"`
	// Objects and Allocated are objects and bytes of the heap, allocated in a round.
	Objects     report.Number `json:"allocated_objects"`
	Allocated   report.Number `json:"allocated_bytes"`
	Collections report.Number `json:"collections"`
	// Copied are bytes copied in user space for each byte written; for those that
	// count nothing, worked out from how they work.
	Copied report.Number `json:"copied_in_user_space_per_byte"`
}

// figures of one trial.
func (a *account) figures() Figures {
	bytes := float64(a.Bytes)
	return Figures{
		BitsPerSecond: report.Number(bytes * 8 / a.Elapsed.Seconds()),
		UserPerGB:     report.Number(a.User.Seconds() / bytes * 1e9),
		SystemPerGB:   report.Number(a.System.Seconds() / bytes * 1e9),
		Objects:       report.Number(a.Objects),
		Allocated:     report.Number(a.Allocated),
		Collections:   report.Number(a.Collections),
		Copied:        report.Number(float64(a.Copied) / bytes),
	}
}

// figures lists where each figure is.
func (f *Figures) figures() []*report.Number {
	return []*report.Number{
		&f.BitsPerSecond, &f.UserPerGB, &f.SystemPerGB, &f.Objects, &f.Allocated, &f.Collections, &f.Copied,
	}
}

// median returns the median of each figure by itself, but of the CPU times, which
// are means.
func median(trials []Figures) *Figures {
	m := new(Figures)
	for i, f := range m.figures() {
		s := report.SampleOf(trials, func(f *Figures) report.Number { return *f.figures()[i] })
		*f = report.Number(s.Median())
	}
	m.UserPerGB = mean(report.SampleOf(trials, userPerGB))
	m.SystemPerGB = mean(report.SampleOf(trials, systemPerGB))
	return m
}

func userPerGB(f *Figures) report.Number   { return f.UserPerGB }
func systemPerGB(f *Figures) report.Number { return f.SystemPerGB }

// mean of trials that have all written the same is that of all of them together.
func mean(s report.Sample) report.Number {
	sum := 0.0
	for _, x := range s {
		sum += x
	}
	return report.Number(sum / float64(len(s)))
}
