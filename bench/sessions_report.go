package bench

import "github.com/penstock/penstock/bench/report"

// SessionsReport is the result of Sessions, and the content of --json. A unit is part of a
// field's name; an unmeasured figure is null.
type SessionsReport struct {
	// NetworkNamespace: the run had one of its own. If not, NamespaceMissing
	// says why.
	NetworkNamespace bool   `json:"network_namespace"`
	NamespaceMissing string `json:"namespace_missing,omitempty"`
	KernelSlab       string `json:"kernel_slab"` // the source of the slab figures
	Asked            int    `json:"sessions_asked"`
	Sessions         int    `json:"sessions"` // that were measured
	// Limit is the one that was met if those are fewer, and else the one that
	// would be met next.
	Limit        Limit         `json:"limit"`
	Talking      int           `json:"sessions_talking"`
	MessageBytes int           `json:"message_bytes"`
	Rounds       int           `json:"rounds"`
	QuietSeconds report.Number `json:"quiet_seconds"`
	TalkSeconds  report.Number `json:"talk_seconds"`
	Rows         []SessionsRow `json:"contestants"` // ratios are to the first
}

// SessionsRow is one contestant.
type SessionsRow struct {
	Contestant string           `json:"contestant"`
	About      string           `json:"about"`
	Trials     []SessionFigures `json:"trials,omitempty"` // by round
	Median     *SessionFigures  `json:"median,omitempty"` // nil without trials
	// Ratio is the median of the rounds' ratios to the first contestant; nil for
	// that one, and without trials of both.
	Ratio *SessionFigures `json:"ratio,omitempty"`
}

// SessionFigures are the figures of one trial, or the medians of several.
type SessionFigures struct {
	// Of each idle session: memory and descriptors of the contestant, the
	// kernel's slab for both of its ends and the far ones, and goroutines, all
	// that there are.
	RssAnonBytes report.Number `json:"rss_anon_bytes_per_session"`
	SlabBytes    report.Number `json:"slab_bytes_per_session"`
	Descriptors  report.Number `json:"descriptors_per_session"`
	Goroutines   report.Number `json:"goroutines_per_session"`
	// Message is the time that passed for one message, of all that talked
	// together; P50 and P99 are of one message's way there and back, CPU is the
	// contestant's.
	Message report.Number `json:"seconds_per_message"`
	P50     report.Number `json:"latency_p50_seconds"`
	P99     report.Number `json:"latency_p99_seconds"`
	CPU     report.Number `json:"cpu_seconds_per_message"`
	// CollectP99 is of a second talk, in the middle of which garbage was
	// collected, where that can be asked for.
	CollectP99 report.Number `json:"latency_p99_seconds_collecting"`
	// The longest time for which the Go runtime stopped the world, while the
	// sessions were opened and while some talked; 0 if it never did.
	OpenPause   report.Number `json:"longest_pause_seconds_opening"`
	TalkPause   report.Number `json:"longest_pause_seconds_talking"`
	Collections report.Number `json:"collections"`
}

// figures lists where each figure is.
func (f *SessionFigures) figures() []*report.Number {
	return []*report.Number{
		&f.RssAnonBytes, &f.SlabBytes, &f.Descriptors, &f.Goroutines, &f.Message, &f.P50, &f.P99, &f.CPU,
		&f.CollectP99, &f.OpenPause, &f.TalkPause, &f.Collections,
	}
}

// sum works out the medians and the ratios.
func (r *SessionsReport) sum() {
	for i := range r.Rows {
		row := &r.Rows[i]
		if len(row.Trials) == 0 {
			continue
		}
		row.Median = each(func(f int) float64 { return sessionSample(row.Trials, f).Median() })
		if base := &r.Rows[0]; i > 0 && len(base.Trials) > 0 {
			row.Ratio = each(func(f int) float64 {
				return sessionSample(row.Trials, f).Over(sessionSample(base.Trials, f)).Median()
			})
		}
	}
}

// each makes figures by the place of each.
func each(make func(figure int) float64) *SessionFigures {
	f := new(SessionFigures)
	for i, x := range f.figures() {
		*x = report.Number(make(i))
	}
	return f
}

// sessionSample is one of the figures in every trial.
func sessionSample(trials []SessionFigures, figure int) report.Sample {
	return report.SampleOf(trials, func(f *SessionFigures) report.Number { return *f.figures()[figure] })
}
