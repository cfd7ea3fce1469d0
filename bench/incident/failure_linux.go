package incident

import (
	"fmt"
	"slices"
	"strings"
)

// A Failure is what befalls endpoints.
type Failure string

// The failures.
const (
	Silent  Failure = "silent"
	Slow    Failure = "slow"
	Refuse  Failure = "refuse"
	healthy Failure = "" // as it should be
)

// Failures are all that can be measured, in the order of a report.
var Failures = []Failure{Silent, Slow, Refuse}

// About says in a line what becomes of an endpoint.
func (f Failure) About() string {
	return map[Failure]string{
		Silent: "accept connections, and say nothing on them",
		Slow:   "answer late",
		Refuse: "refuse connections, and have reset those there were",
	}[f]
}

// ParseFailure finds the failure of a name.
func ParseFailure(name string) (Failure, error) {
	if f := Failure(name); slices.Contains(Failures, f) {
		return f, nil
	}
	return "", fmt.Errorf("no failure %q: write %s", name, list(Failures))
}

func list[S ~string](all []S) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
