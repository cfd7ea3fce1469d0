package doctor

import "slices"

// State is the verdict of one check.
type State string

// The states, from the best to the worst but for Unknown, which says that it could
// not be found out.
const (
	OK       State = "ok"
	Degraded State = "degraded"
	Missing  State = "missing"
	Unknown  State = "unknown"

	// Unused is missing, and this release does not use it.
	Unused State = "unused"
)

// Check is the finding on one thing.
type Check struct {
	Name  string   `json:"name"`  // of the thing, for programs
	State State    `json:"state"` // the verdict
	Found string   `json:"found"` // the finding, with its figures
	Cost  string   `json:"cost"`  // the cost of the state; empty if it is OK
	Mend  []string `json:"mend"`  // commands or settings, any of which mends it

	// Figures are the measured values that Found speaks of. A value that could not
	// be had is left out. See the package's documentation for their names.
	Figures any `json:"figures"`

	needs  []string // capabilities, which together mend it too
	unable bool     // Penstock cannot run
}

// Report is all findings.
type Report struct {
	Checks []Check `json:"checks"` // in their order
	Place  string  `json:"place"`  // where it was found, on which Mend depends

	// Able is whether Penstock can run here at all.
	Able bool `json:"able"`

	// PID is the running Penstock that the report is on; 0: it is on the host, and on a Penstock to be started.
	PID int `json:"pid,omitempty"`
}

// newReport gathers checks of a place.
func newReport(place string, checks []Check) *Report {
	return &Report{
		Checks: checks, Place: place,
		Able: !slices.ContainsFunc(checks, func(c Check) bool { return c.unable }),
	}
}

// count returns how many checks have that state.
func (r *Report) count(s State) int {
	n := 0
	for _, c := range r.Checks {
		if c.State == s {
			n++
		}
	}
	return n
}
