package lb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Policy is a way to choose among endpoints.
type Policy uint8

const (
	// RoundRobin takes the endpoints in turn, smoothly by weight.
	RoundRobin Policy = iota
	// LeastConn takes the endpoint with the fewest sessions for its weight. Among equal endpoints it draws by weight.
	LeastConn
	// RandomTwo draws two endpoints by weight, and takes the one with fewer sessions for its weight, or the first if
	// they are equal.
	RandomTwo
	// Maglev maps the client's address to an endpoint, the same on every node, and as evenly as possible.
	Maglev
	// SourceIP maps the client's address to an endpoint, the same on every node. A client moves only if its endpoint
	// goes, or to an endpoint that comes.
	SourceIP
	// First takes the first endpoint with room, in the order of the configuration.
	First

	policyCount = iota
)

// policyNames are the names of the policies in a configuration.
var policyNames = [policyCount]string{
	RoundRobin: "round_robin",
	LeastConn:  "least_conn",
	RandomTwo:  "random_two",
	Maglev:     "maglev",
	SourceIP:   "source_ip",
	First:      "first",
}

// Policies returns every policy, in the order of the constants. The slice belongs to the
// caller.
func Policies() []Policy {
	all := make([]Policy, policyCount)
	for i := range all {
		all[i] = Policy(i)
	}
	return all
}

// ErrPolicy is wrapped by the error for an unknown policy.
var ErrPolicy = errors.New("no such policy")

// ParsePolicy returns the policy with a name.
func ParsePolicy(name string) (Policy, error) {
	if i := slices.Index(policyNames[:], name); i >= 0 {
		return Policy(i), nil
	}
	return 0, fmt.Errorf("%w as %q: write one of %s", ErrPolicy, name, strings.Join(policyNames[:], ", "))
}

// String returns the name that ParsePolicy takes.
func (p Policy) String() string {
	if p < policyCount {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Keyed reports whether the endpoint depends on who the client is.
func (p Policy) Keyed() bool { return p == Maglev || p == SourceIP }
