package verdict

import (
	"cmp"
	"slices"
)

// A Report is the result of an Experiment.
type Report struct {
	Seed          uint64  `json:"seed"`
	SessionS      float64 `json:"session_seconds"`
	WindowS       float64 `json:"window_seconds"`
	CongestionOwn string  `json:"congestion_control"` // of the faults without Reno
	Trials        []Trial `json:"trials"`
}

// Part returns the report on the faults in the lane, or on the others.
func (r *Report) Part(lane bool) *Report {
	part := *r
	part.Trials = nil
	for i := range r.Trials {
		if t := &r.Trials[i]; t.Lane == lane {
			part.Trials = append(part.Trials, *t)
		}
	}
	return &part
}

// A Matrix counts the verdicts given for each right one.
type Matrix map[string]map[string]int

// Matrix returns that of the verdicts of one kind.
func (r *Report) Matrix(of func(*Trial) string) Matrix {
	m := make(Matrix)
	for i := range r.Trials {
		t := &r.Trials[i]
		if m[t.Want] == nil {
			m[t.Want] = make(map[string]int)
		}
		m[t.Want][cmp.Or(of(t), "none")]++
	}
	return m
}

// Names returns the verdicts that were right or given, the right ones first.
func (m Matrix) Names() (names []string) {
	for _, want := range []string{"client", "client_network", "endpoint", "endpoint_network", "proxy", "limit", "idle", "unknown", "none"} {
		used := m[want] != nil
		for _, given := range m {
			used = used || given[want] > 0
		}
		if used {
			names = append(names, want)
		}
	}
	return names
}

// Right returns how many of how many verdicts were right: of one kind, or of all if it is "".
func (m Matrix) Right(want string) (right, all int) {
	for kind, given := range m {
		if want != "" && kind != want {
			continue
		}
		for name, n := range given {
			if all += n; name == kind {
				right += n
			}
		}
	}
	return right, all
}

// A Delay is how long it took to the right live verdict on the faults of a cause.
type Delay struct {
	Cause                  Cause
	Faults, Found          int // found within the time
	Median, Longest        float64
	HealthCheck, ErrorRate int // how many of them would have noticed
}

// Delays returns those of each cause.
func (r *Report) Delays() (list []Delay) {
	for _, c := range Causes {
		d := Delay{Cause: c}
		var times []float64
		for i := range r.Trials {
			t := &r.Trials[i]
			if t.Cause != c || !t.Sought {
				continue
			}
			d.Faults++
			if t.Detected >= 0 {
				times = append(times, t.Detected)
			}
			if t.Health {
				d.HealthCheck++
			}
			if t.ErrorRate {
				d.ErrorRate++
			}
		}
		if d.Found = len(times); d.Found > 0 {
			slices.Sort(times)
			d.Median, d.Longest = times[len(times)/2], times[len(times)-1]
		}
		if d.Faults > 0 {
			list = append(list, d)
		}
	}
	return list
}
