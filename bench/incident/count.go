package incident

import (
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/report"
)

// Figures are the results of some requests. Times are in seconds. They include failed requests, with the time
// until the failure.
type Figures struct {
	Requests int64         `json:"requests"`
	Failed   int64         `json:"failed"`
	Mean     report.Number `json:"mean_seconds"`
	P50      report.Number `json:"p50_seconds"`
	P99      report.Number `json:"p99_seconds"`
	Max      report.Number `json:"max_seconds"`
	// Reasons counts the failed requests by reason.
	Reasons map[string]int64 `json:"reasons,omitempty"`
}

// FailedShare returns the share of the requests that failed.
func (f *Figures) FailedShare() report.Number {
	if f.Requests == 0 {
		return report.Unmeasured()
	}
	return report.Number(f.Failed) / report.Number(f.Requests)
}

// count adds up requests by phase, and by the second in which they began. If a request was in progress at an
// event, it belongs to the phase that begins with the event.
func (s *Setup) count(all []endpoint.Outcome) (phases [3]Figures, seconds []Figures) {
	var byPhase [3][]endpoint.Outcome
	bySecond := make([][]endpoint.Outcome, (s.trial()+time.Second-1)/time.Second)
	for _, o := range all {
		phase := 2
		switch {
		case o.Began < s.Before-min(margin, s.Before/2):
			phase = 0
		case o.Began < s.Before+s.During:
			phase = 1
		}
		byPhase[phase] = append(byPhase[phase], o)
		bySecond[o.Began/time.Second] = append(bySecond[o.Began/time.Second], o)
	}
	for i := range phases {
		phases[i] = figures(byPhase[i])
	}
	for _, s := range bySecond {
		seconds = append(seconds, figures(s))
	}
	return phases, seconds
}

func figures(of []endpoint.Outcome) Figures {
	f := Figures{Requests: int64(len(of))}
	var times report.Sample
	var sum float64
	for _, o := range of {
		took := (o.Ended - o.Began).Seconds()
		times, sum = append(times, took), sum+took
		if o.Lost != "" {
			f.fail(o.Lost)
		}
	}
	f.Mean = report.Number(sum / float64(len(of)))
	f.P50, f.P99, f.Max = report.Number(times.At(0.5)), report.Number(times.At(0.99)), report.Number(times.At(1))
	return f
}

func (f *Figures) fail(why string) {
	f.Failed++
	if f.Reasons == nil {
		f.Reasons = make(map[string]int64)
	}
	f.Reasons[why]++
}
