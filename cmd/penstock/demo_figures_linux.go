package main

import (
	"fmt"
	"math"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
)

// figure is a row of the comparison.
type figure struct {
	name  string
	of    func(*bench.Trial) float64
	write func(float64) string
}

// figures are what is compared under a workload.
func figures(w load.Workload) []figure {
	if w == load.Echo {
		return []figure{
			{"requests", requestsPerSecond, requestRate},
			{"latency, p50", func(t *bench.Trial) float64 { return t.Result.P50.Seconds() }, report.Seconds},
			{"latency, p99", func(t *bench.Trial) float64 { return t.Result.P99.Seconds() }, report.Seconds},
			{"CPU per request", cpuPerRequest, report.Seconds},
			{"pipes held in mid-round", pipes, report.Count},
		}
	}
	return []figure{
		{"throughput", bytesPerSecond, byteRate},
		{"CPU seconds per GB", cpuPerGB, report.Ratio},
		{"context switches per GB", switchesPerGB, report.Count},
		{"pipes held in mid-round", pipes, report.Count},
	}
}

// sample is the figure in each of the trials.
func (f *figure) sample(trials []bench.Trial) report.Sample {
	s := make(report.Sample, len(trials))
	for i := range trials {
		s[i] = f.of(&trials[i])
	}
	return s
}

// cell writes the median of s and, if wide, half of its range in percent of
// that.
func (f *figure) cell(s report.Sample, wide bool) string {
	low, high := s.Range()
	stray := (high - low) / 2 / s.Median() * 100
	if !wide || math.IsNaN(stray) { // of nothing, or of zeros
		return f.write(s.Median())
	}
	return fmt.Sprintf("%s +-%.0f%%", f.write(s.Median()), stray)
}

func gigabytes(t *bench.Trial) float64 { return float64(t.Result.Received) / 1e9 }

func bytesPerSecond(t *bench.Trial) float64 {
	return report.PerSecond(t.Result.Received, t.Result.Elapsed)
}

func requestsPerSecond(t *bench.Trial) float64 {
	return report.PerSecond(t.Result.Requests, t.Result.Elapsed)
}

func cpuPerGB(t *bench.Trial) float64 { return t.Usage.CPU.Seconds() / gigabytes(t) }

func cpuPerRequest(t *bench.Trial) float64 {
	return t.Usage.CPU.Seconds() / float64(t.Result.Requests)
}

func switchesPerGB(t *bench.Trial) float64 { return float64(t.Usage.Switches) / gigabytes(t) }

// pipes is not a number if nobody looked.
func pipes(t *bench.Trial) float64 {
	if t.Pipes < 0 {
		return math.NaN()
	}
	return float64(t.Pipes)
}
