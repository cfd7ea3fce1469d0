package vecio

import (
	"fmt"
	"time"
)

// A Policy decides when a [Writer] hands its pieces to the kernel, and which of them the
// kernel may send. The matrix is in docs/vecio.md.
//
// With every policy TCP_NODELAY is set on a TCP socket, and stays so: bytes that are given to
// the kernel, and are not under a cork, leave at once, however long an acknowledgement takes.
// A flush that takes several calls is one to TCP: it is done under TCP_CORK.
type Policy uint8

const (
	// Latency: End flushes.
	Latency Policy = iota

	// Batch: End does not flush; Flush does, for all complete units and the pieces appended
	// since. Pieces that have to leave before, because more than Config.High would be pending,
	// leave under TCP_CORK, in full segments.
	Batch

	// Adaptive: End flushes, as with Latency. The beginning of an incomplete unit is handed
	// over, under TCP_CORK, as soon as it fills a segment, so that long units leave while they
	// are made; and the rest is due, see [Writer.Due], when it has waited for Config.Bound.
	Adaptive
)

// DefaultBound is how long Adaptive lets an incomplete unit wait if Config.Bound is 0.
const DefaultBound = 200 * time.Microsecond

// ParsePolicy returns the policy of that name. Its error names the policies there are.
func ParsePolicy(name string) (Policy, error) {
	for _, p := range []Policy{Latency, Batch, Adaptive} {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("penstock: vecio: policy %q: write latency, batch or adaptive", name)
}

// String returns "latency", "batch" or "adaptive".
func (p Policy) String() string {
	switch p {
	case Latency:
		return "latency"
	case Batch:
		return "batch"
	case Adaptive:
		return "adaptive"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// check returns the error of the fields of a Config that are about policies.
func (p Policy) check(bound time.Duration) error {
	switch {
	case p > Adaptive:
		return fmt.Errorf("penstock: vecio: %v: give Latency, Batch or Adaptive", p)
	case bound < 0:
		return fmt.Errorf("penstock: vecio: a bound of %v: give 0 or more", bound)
	}
	return nil
}
