package worker

import "github.com/penstock/penstock/proxy/internal/source"

// A Refusal is why a client was reset.
type Refusal uint8

const (
	// RefusedByTargets: no target took it.
	RefusedByTargets Refusal = iota
	// RefusedByAdmitter: its [Admitter] said so.
	RefusedByAdmitter
	// RefusedHeader: its first bytes are no PROXY header, or none that is accepted.
	RefusedHeader
	// RefusedHello: its first bytes are no ClientHello.
	RefusedHello
	// RefusedTimeout: it has not sent its first bytes in time.
	RefusedTimeout
	// RefusedEnded: it has ended in the middle of that.
	RefusedEnded
	// RefusedNoSource: it is not known where it comes from, see [source.ErrUnknown].
	RefusedNoSource
	// RefusedOffLoop: it had been handed over, since TLS ends or begins here.
	RefusedOffLoop

	refusals // how many there are
)

var refusalNames = [refusals]string{
	"targets", "admission", "proxy_header", "hello", "preread_timeout", "preread_ended", "no_source", "tls",
}

// String is its name in a summary.
func (r Refusal) String() string { return refusalNames[r] }

// Refusals are counts of clients that were reset, by [Refusal].
type Refusals [refusals]int64

// Counts returns those that occurred, by name.
func (r *Refusals) Counts() map[string]int64 {
	counts := make(map[string]int64)
	for i, n := range r {
		if n > 0 {
			counts[Refusal(i).String()] = n
		}
	}
	return counts
}

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
	case cause == source.ErrUnknown:
		return RefusedNoSource
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

// EveryCount is Counts with those that did not occur.
func (r *Refusals) EveryCount() map[string]int64 {
	counts := make(map[string]int64, len(r))
	for i, n := range r {
		counts[Refusal(i).String()] = n
	}
	return counts
}
