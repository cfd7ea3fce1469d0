package worker

import (
	"errors"

	"github.com/penstock/penstock/proxy/internal/source"
)

// Reasons to refuse a client that a [Search] has from a filter.
var (
	// ErrFiltered: it has denied the client.
	ErrFiltered = errors.New("denied by a filter")
	// ErrFilterFailed: it has not answered.
	ErrFilterFailed = errors.New("a filter has not answered")
	// ErrFilterOverload: too many clients wait for its answer.
	ErrFilterOverload = errors.New("too many clients wait for the filter")
)

// ErrCancelOverload is the error of a client whose CancelRequest of PostgreSQL is not sent.
var ErrCancelOverload = errors.New("too many requests to cancel a query are being sent")

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
	// RefusedFirstBytes: its first bytes do not decide its route.
	RefusedFirstBytes
	// RefusedByFilter: its search ended with [ErrFiltered].
	RefusedByFilter
	// RefusedFilterFailed: its search ended with [ErrFilterFailed].
	RefusedFilterFailed
	// RefusedFilterBusy: its search ended with [ErrFilterOverload].
	RefusedFilterBusy
	// RefusedOffLoop: it had been handed over, since TLS ends or begins here.
	RefusedOffLoop
	// RefusedPostgres: its first bytes are no negotiation of PostgreSQL, or it does not ask for TLS and has to.
	RefusedPostgres
	// RefusedCancelBusy: it ended with [ErrCancelOverload].
	RefusedCancelBusy
	// RefusedMemory: there was no memory for its first bytes, see [ErrPrereadMemory].
	RefusedMemory
	// RefusedSecondHello: its session has ended with [ErrSecondHello].
	RefusedSecondHello

	refusals // how many there are
)

var refusalNames = [refusals]string{
	"targets", "admission", "proxy_header", "hello", "preread_timeout", "preread_ended", "no_source", "first_bytes", "filter", "filter_failed", "filter_overload", "tls", "postgres", "cancel_overload", "preread_memory", "second_hello",
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
	case errors.Is(cause, ErrPrereadMemory):
		return RefusedMemory
	case errors.Is(cause, ErrSecondHello):
		return RefusedSecondHello
	case cause == source.ErrUnknown:
		return RefusedNoSource
	case searching && errors.Is(cause, ErrFiltered):
		return RefusedByFilter
	case searching && errors.Is(cause, ErrFilterFailed):
		return RefusedFilterFailed
	case searching && errors.Is(cause, ErrFilterOverload):
		return RefusedFilterBusy
	case p == awaitPostgres:
		return RefusedPostgres
	case searching:
		return RefusedByTargets
	case p == awaitHello:
		return RefusedHello
	case p == awaitHeader:
		return RefusedHeader
	case p.recognises():
		return RefusedFirstBytes
	default:
		return RefusedByAdmitter
	}
}

// refusedOffLoop says which it is, of a client on no loop.
func refusedOffLoop(cause error) Refusal {
	if errors.Is(cause, ErrCancelOverload) {
		return RefusedCancelBusy
	}
	return RefusedOffLoop
}

// EveryCount is Counts with those that did not occur.
func (r *Refusals) EveryCount() map[string]int64 {
	counts := make(map[string]int64, len(r))
	for i, n := range r {
		counts[Refusal(i).String()] = n
	}
	return counts
}
