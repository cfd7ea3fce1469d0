package incident

import (
	"slices"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/report"
)

// The published results of another load balancer without and with protection: the mean is 842 and 127 ms, and 3.2
// and 0.18 % of the requests fail. On must reach the same ratios.
const (
	mustMean   = 842.0 / 127
	mustFailed = 3.2 / 0.18
)

// The 99th percentile counts as back once it is at most backMore above its value before the incident for
// backSeconds in a row.
const (
	backSeconds = 3
	backMore    = 50 * time.Millisecond
)

// Report is the result of the incidents, and the content of --json. A field's name has the unit. A figure that was
// not measured, or does not exist, is null.
type Report struct {
	Endpoints        int           `json:"endpoints"`
	Failing          int           `json:"failing"`
	RequestsPerS     float64       `json:"requests_per_second"`
	ServiceSeconds   report.Number `json:"service_seconds"`
	DelaySeconds     report.Number `json:"slow_mean_delay_seconds"`
	TimeoutSeconds   report.Number `json:"timeout_seconds"`
	FirstByteSeconds report.Number `json:"first_byte_seconds"`
	WithinSeconds    report.Number `json:"within_seconds"`
	BeforeSeconds    report.Number `json:"before_seconds"`
	DuringSeconds    report.Number `json:"during_seconds"`
	AfterSeconds     report.Number `json:"after_seconds"`

	Incidents []Incident `json:"incidents"`
	Standings []Standing `json:"standings"`
}

// Incident is one failure with every configuration.
type Incident struct {
	Failure endpoint.Failure `json:"failure"`
	Modes   []Trial          `json:"modes"`
}

// Trial is one failure with one configuration.
type Trial struct {
	Mode  string `json:"mode"`
	About string `json:"about"`
	File  string `json:"file"`

	Before Figures `json:"before"`
	During Figures `json:"during"`
	After  Figures `json:"after"`
	// Seconds are the figures of each second. The incident began at Began and ended at Ended.
	Seconds []Figures `json:"seconds"`
	Began   float64   `json:"incident_began_seconds"`
	Ended   float64   `json:"incident_ended_seconds"`

	Events []Event `json:"events"`
	// First is when the first endpoint was kept away, and All is when all failing endpoints were. The reason does
	// not matter. The times count from the beginning of the incident.
	First report.Number `json:"first_kept_away_seconds"`
	All   report.Number `json:"all_kept_away_seconds"`
	// Opened are the circuit breakers that opened in the incident, in the order of their first opening.
	// FirstOpened is the time of the first one.
	Opened      []Opened      `json:"breakers_opened"`
	FirstOpened report.Number `json:"first_breaker_opened_seconds"`
	// Back is when the 99th percentile was back to its value before the incident, for any reason. BackAfter is the
	// same, counted from the end of the incident, if Back is not known.
	Back      report.Number `json:"p99_back_seconds"`
	BackAfter report.Number `json:"p99_back_after_end_seconds"`
}

// Opened is a circuit breaker that opened.
type Opened struct {
	Subject string        `json:"subject"` // "endpoint shop/e0", "upstream shop"
	Seconds report.Number `json:"seconds"` // since the incident began
}

func newReport(s *Setup) *Report {
	seconds := func(d time.Duration) report.Number { return report.Number(d.Seconds()) }
	return &Report{
		Endpoints: s.Endpoints, Failing: s.Failing, RequestsPerS: s.Rate,
		ServiceSeconds: seconds(s.Service), DelaySeconds: seconds(s.Delay), TimeoutSeconds: seconds(s.Timeout), FirstByteSeconds: seconds(s.FirstByte), WithinSeconds: seconds(s.Within),
		BeforeSeconds: seconds(s.Before), DuringSeconds: seconds(s.During), AfterSeconds: seconds(s.After),
	}
}

func (t *Trial) sum(s *Setup) {
	t.First, t.All = t.keptAway(s.Failing)
	t.Opened, t.FirstOpened = t.opened(), report.Unmeasured()
	if len(t.Opened) > 0 {
		t.FirstOpened = t.Opened[0].Seconds
	}
	t.Back, t.BackAfter = t.back(t.Began, t.Ended), report.Unmeasured()
	if !t.Back.Known() {
		t.BackAfter = t.back(t.Ended, float64(len(t.Seconds)))
	}
}

// keptAway returns when the first subject was kept away, and when as many subjects as all were kept away.
func (t *Trial) keptAway(all int) (first, last report.Number) {
	first, last = report.Unmeasured(), report.Unmeasured()
	var away []string
	for _, e := range t.Events {
		if !e.Bad || !t.within(&e) || slices.Contains(away, e.Subject) {
			continue
		}
		away = append(away, e.Subject)
		if len(away) == 1 {
			first = report.Number(e.Seconds)
		}
		if len(away) == all {
			last = report.Number(e.Seconds)
		}
	}
	return first, last
}

func (t *Trial) within(e *Event) bool { return e.Seconds >= 0 && e.Seconds <= t.Ended-t.Began }

// opened returns the circuit breakers that opened, from the circuit events of the log.
func (t *Trial) opened() []Opened {
	all := []Opened{}
	for _, e := range t.Events {
		of := func(o Opened) bool { return o.Subject == e.Subject }
		if e.Kind == "circuit" && e.State == "open" && t.within(&e) && !slices.ContainsFunc(all, of) {
			all = append(all, Opened{e.Subject, report.Number(e.Seconds)})
		}
	}
	return all
}

// back returns how long it takes, from the time from on, until the 99th percentile is back to its value
// before the incident. It must stay there for backSeconds, which must be over by the time to.
func (t *Trial) back(from, to float64) report.Number {
	bound := t.Before.P99 + report.Number(backMore.Seconds())
	row := 0
	for i := int(from); i < len(t.Seconds) && float64(i) < to; i++ {
		if f := &t.Seconds[i]; f.P99 > bound || !f.P99.Known() {
			row = 0
			continue
		}
		if row++; row == backSeconds {
			return max(report.Number(float64(i+1-backSeconds)-from), 0)
		}
	}
	return report.Unmeasured()
}

// mode returns the trial of a mode, or nil if there is none.
func (in *Incident) mode(name string) *Trial {
	i := slices.IndexFunc(in.Modes, func(t Trial) bool { return t.Mode == name })
	if i < 0 {
		return nil
	}
	return &in.Modes[i]
}

// Standing compares a mode with a bound.
type Standing struct {
	Failure endpoint.Failure `json:"failure"`
	Figure  string           `json:"figure"`
	Mode    string           `json:"mode"`
	// Value is the value with the mode Off divided by the value with this mode. If this mode lost no request, it
	// counts as if it had lost one.
	Value   report.Number  `json:"times_less"`
	Must    report.Number  `json:"must"`
	Verdict report.Verdict `json:"verdict"`
}

// judge compares all modes with Off. Only incidents in which endpoints turn silent or slow have bounds, because an
// endpoint that refuses costs no time.
func (r *Report) judge() {
	for i := range r.Incidents {
		in := &r.Incidents[i]
		off := in.mode(Off)
		if off == nil || in.Failure == endpoint.Refuse {
			continue
		}
		for j := range in.Modes {
			if t := &in.Modes[j]; t.Mode == Defaults || t.Mode == On {
				mean := off.During.Mean / t.During.Mean
				r.stand(in.Failure, "mean", t.Mode, mean, mustMean)
				r.stand(in.Failure, "failed", t.Mode, off.During.failedOver(&t.During), mustFailed)
			}
		}
	}
}

// failedOver returns how many times as many of these requests failed as of the others. If none of the others
// failed, one of them counts as failed. If none of these failed, the result is unknown.
func (f *Figures) failedOver(other *Figures) report.Number {
	if f.Failed == 0 || other.Requests == 0 {
		return report.Unmeasured()
	}
	return f.FailedShare() / (report.Number(max(other.Failed, 1)) / report.Number(other.Requests))
}

func (r *Report) stand(f endpoint.Failure, figure, mode string, value, must report.Number) {
	s := Standing{Failure: f, Figure: figure, Mode: mode, Value: value, Must: must, Verdict: report.Missed}
	switch {
	case !value.Known():
		s.Verdict = report.Unjudged
	case value >= must:
		s.Verdict = report.MustReached
	}
	r.Standings = append(r.Standings, s)
}

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
