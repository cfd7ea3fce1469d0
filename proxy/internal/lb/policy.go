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
	// moves no client but those of an endpoint that goes or to one that comes.
	SourceIP
	// First takes the first in the order given that has room.
	First
)

var policies = []string{"round_robin", "least_conn", "random_two", "maglev", "source_ip", "first"}

// ErrPolicy is wrapped by the error of a policy that does not exist.
var ErrPolicy = errors.New("no such policy")

// ParsePolicy returns the policy of that name.
func ParsePolicy(name string) (Policy, error) {
	for i, p := range policies {
		if p == name {
			return Policy(i), nil
		}
	}
	return 0, fmt.Errorf("%w as %q: write one of %s", ErrPolicy, name, strings.Join(policies, ", "))
}

// String returns the name that ParsePolicy takes.
func (p Policy) String() string {
	if int(p) < len(policies) {
		return policies[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Keyed reports whether the policy chooses by the client.
func (p Policy) Keyed() bool { return p == Maglev || p == SourceIP }
