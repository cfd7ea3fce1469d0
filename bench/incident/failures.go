package incident

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/endpoint"
)

// Failures are all measured failures, in the order of a report.
var Failures = []endpoint.Failure{endpoint.Silent, endpoint.Slow, endpoint.Refuse}

// ParseFailure returns the failure with a name.
func ParseFailure(name string) (endpoint.Failure, error) {
	if f := endpoint.Failure(name); slices.Contains(Failures, f) {
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
