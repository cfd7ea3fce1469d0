//go:build invariants

package pipe

import (
	"fmt"

	"github.com/penstock/penstock/internal/callsite"
)

const invariants = true

// returned is where a pipe was put, or 0 while the caller has it.
type returned struct{ at callsite.Site }

// take records that the pipe now belongs to the caller.
func (r *returned) take() { r.at = 0 }

// give records that the pipe is put, and panics if it was put before.
func (r *returned) give() {
	here := callsite.Here()
	if r.at != 0 {
		panic(fmt.Sprintf("pipe: put of a pipe that was already put\n\tput at %v\n\tput again at %v", r.at, here))
	}
	r.at = here
}

// refuse panics, for a pipe of another pool.
func (*returned) refuse() {
	panic(fmt.Sprintf("pipe: put of a pipe into a pool that it was not taken from\n\tput at %v", callsite.Here()))
}
