package core

// A Refusal is why a client was reset.
type Refusal uint8

const (
	// RefusedByTargets: no target took it.
	RefusedByTargets Refusal = iota
	// RefusedByAdmitter: its [Admitter] said so.
	RefusedByAdmitter
	// RefusedHeader: what it has sent is no PROXY header, or none that is accepted.
	RefusedHeader
	// RefusedHello: what it has sent is no ClientHello.
	RefusedHello
	// RefusedTimeout: it has not sent in time what is looked at first.
	RefusedTimeout
	// RefusedEnded: it has ended in the middle of that.
	RefusedEnded

	refusals // how many there are
)

var refusalNames = [refusals]string{"targets", "admission", "proxy header", "hello", "preread timeout", "preread ended"}

// String says in a word or two what it was about.
func (r Refusal) String() string { return refusalNames[r] }

// Refusals are counts of clients that were reset, by [Refusal].
type Refusals [refusals]int64

func (r *Refusals) merge(o *Refusals) {
	for i, n := range o {
		r[i] += n
	}
}

// refusalOf says which it is, of a client in some phase.
func refusalOf(p phase, searching bool, cause error) Refusal {
	switch {
	case cause == ErrPrereadTimeout, cause == ErrHeaderTimeout:
		return RefusedTimeout
	case cause == ErrPrereadEnded:
		return RefusedEnded
	case searching:
		return RefusedByTargets
	case p == awaitHello:
		return RefusedHello
	case p == awaitHeader:
		return RefusedHeader
	default:
		return RefusedByAdmitter
	}
}
