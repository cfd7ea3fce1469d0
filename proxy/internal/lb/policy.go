package lb

import (
	"errors"
	"fmt"
	"strings"
)

// A Policy is a way to choose among endpoints.
type Policy uint8

const (
	// RoundRobin takes them in turn, smoothly by weight.
	RoundRobin Policy = iota
	// LeastConn takes the one with the fewest sessions for its weight; among equals it
	// draws by weight.
	LeastConn
	// RandomTwo draws two by weight and takes the one with fewer sessions for its
	// weight; of equals the one drawn first.
	RandomTwo
	// Maglev maps the client's address to an endpoint, the same on every node, as
	// evenly as can be.
	Maglev
	// SourceIP maps the client's address to an endpoint, the same on every node, and
	// moves no client except from an endpoint that goes, or to one that comes.
	SourceIP
	// First takes the first in the order given that has room.
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

// Policies returns every policy, in the order of the constants. The slice is the caller's.
func Policies() []Policy {
	all := make([]Policy, policyCount)
	for i := range all {
		all[i] = Policy(i)
	}
	return all
}

// ErrPolicy is wrapped by the error of a policy that does not exist.
var ErrPolicy = errors.New("no such policy")

// ParsePolicy returns the policy of that name.
func ParsePolicy(name string) (Policy, error) {
	for i, n := range policyNames {
		if n == name {
			return Policy(i), nil
		}
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

// Keyed reports whether the policy chooses by the client.
func (p Policy) Keyed() bool { return p == Maglev || p == SourceIP }
