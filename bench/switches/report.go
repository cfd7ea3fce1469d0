package switches

import "github.com/penstock/penstock/bench/report"

// Report is the result of a comparison, and the content of --json. A unit is part of the
// field's name; an unmeasured figure is null.
type Report struct {
	MessageBytes  int           `json:"message_bytes"`
	Rounds        int           `json:"rounds"`
	WindowSeconds report.Number `json:"window_seconds"` // of measuring, in each trial
	// SystemCallCounter is the tool that counted, empty if none did.
	SystemCallCounter string  `json:"system_call_counter,omitempty"`
	Groups            []Group `json:"groups"`
}

// Group is one number of connections.
type Group struct {
	Connections int   `json:"connections"`
	Rows        []Row `json:"servers"`
}

// Row is one server under one number of connections.
type Row struct {
	Server string `json:"server"` // threads, goroutines, loops or coroutines
	About  string `json:"about"`
	// Missing says why there are no figures; empty if there are.
	Missing string    `json:"missing,omitempty"`
	Trials  []Figures `json:"trials,omitempty"` // by round
	Median  *Figures  `json:"median,omitempty"` // nil without trials
	// Ratio is to the threads' figures of the same round, the median of the
	// rounds; nil for the threads, and if one of the two has no figures.
	Ratio *Figures `json:"ratio_to_threads,omitempty"`
	// CallsPerRequest is of a run of its own, under the tool that counts; CallsFailed is the
	// reason why there is none. CallsPerSecond is that times the median of the trials'
	// requests per second, because a tool that counts slows down the server.
	CallsPerRequest report.Number `json:"system_calls_per_request"`
	CallsPerSecond  report.Number `json:"system_calls_per_second"`
	CallsFailed     string        `json:"system_calls_failed,omitempty"`
}

// sum works out the medians and the ratios to base.
func (r *Row) sum(base *Row) {
	if len(r.Trials) == 0 {
		return
	}
	m := median(r.Trials)
	r.Median = &m
	if r != base && len(base.Trials) > 0 {
		ratio := over(r.Trials, base.Trials)
		r.Ratio = &ratio
	}
}
