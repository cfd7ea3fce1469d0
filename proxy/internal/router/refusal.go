package router

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// Why a client gets no endpoint.
var (
	// ErrNoRoute: no route of the listener matches, and there is no default.
	ErrNoRoute = errors.New("no matching route")
	// ErrQueueFull: the client would have to wait, and the queue is full.
	ErrQueueFull = errors.New("every endpoint is at its limit, and the queue is full")
	// ErrCircuitOpen: the upstream's circuit breaker is open.
	ErrCircuitOpen = errors.New("the circuit breaker is open")
	// ErrLoop: the client's original destination is an address of this process.
	ErrLoop = errors.New("the client's original destination is this process itself")
)

// An UpstreamError is why a client gets no endpoint of an upstream.
type UpstreamError struct {
	Upstream string
	Err      error
}

// Error implements error.
func (e *UpstreamError) Error() string { return "upstream " + e.Upstream + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UpstreamError) Unwrap() error { return e.Err }

// A refusal is a counted reason to refuse a client.
type refusal uint8

const (
	refusedUnavailable refusal = iota
	refusedFull
	refusedQueue
	refusedCircuit
	refusedLocal // only because this machine lacked something
	refusedFailed
	refusedDeclined // endpoints were reached, and serve other clients
	refusals
)

var refusalNames = [refusals]string{"unavailable", "full", "queue_timeout", "circuit_open", "local", "failed", "declined"}

// refusalOf returns the counted reason of an error that ends a search.
func refusalOf(err error) refusal {
	switch {
	case errors.Is(err, record.ErrQueueTimeout):
		return refusedQueue
	case errors.Is(err, ErrQueueFull), errors.Is(err, lb.ErrFull):
		return refusedFull
	case errors.Is(err, ErrCircuitOpen):
		return refusedCircuit
	case errors.Is(err, lb.ErrUnavailable), errors.Is(err, lb.ErrNoEndpoint):
		return refusedUnavailable
	}
	return refusedFailed
}

// causes are several errors in one line.
type causes []error

func line(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return causes(slices.Clone(errs))
}

func (c causes) Unwrap() []error { return c }

func (c causes) Error() string {
	texts := make([]string, len(c))
	for i, err := range c {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// localFaults are the errors of connect(2), of socket(2) and bind(2) before it, and of epoll_ctl(2) after it, that mean that
// this process or this machine lacked something: descriptors, memory, watches of epoll (ENOSPC), ports, an address, a permission.
// EBUSY comes from package tlsterm, if too many handshakes were under way. EACCES is also the error for a unix
// socket to which this process may not write, and EPERM for a rule of the machine's firewall: for these the endpoint is
// judged anyway. The first ownFaults say nothing about it.
var localFaults = [...]syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC, syscall.EADDRNOTAVAIL, syscall.EBUSY, syscall.EACCES, syscall.EPERM,
}

const ownFaults = len(localFaults) - 2

func localFaultNames() (names []string) {
	for _, errno := range localFaults {
		names = append(names, errno.Error())
	}
	return names
}

// localFault returns the index of an error in localFaults; -1 if it is not there.
func localFault(err error) int {
	return slices.IndexFunc(localFaults[:], func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// An unreachedReason is why a connection to an endpoint could not be made, through the endpoint's
// fault.
type unreachedReason uint8

const (
	connectionRefused unreachedReason = iota
	connectionReset
	connectionTimedOut
	noRouteTo
	noAddressOf
	handshakeFailed
	otherwiseUnreached
	unreachedReasons
)

var unreachedNames = [unreachedReasons]string{"refused", "reset", "timed out", "no route", "name", "TLS handshake", "other"}

// unreachedBy returns the reason for an error.
func unreachedBy(err error) unreachedReason {
	switch {
	case errors.As(err, new(*tlsterm.Error)):
		return handshakeFailed
	case errors.As(err, new(*net.DNSError)):
		return noAddressOf
	}
	switch errnoOf(err) {
	case syscall.ECONNREFUSED:
		return connectionRefused
	case syscall.ECONNRESET, syscall.EPIPE:
		return connectionReset
	case syscall.ETIMEDOUT:
		return connectionTimedOut
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return noRouteTo
	}
	return otherwiseUnreached
}

// maxCause bounds the text of a failure, in bytes: it may quote names that the endpoint has chosen, such as names in its
// certificate.
const maxCause = 240

// causeOf returns why a connection could not be made, in a line of bounded length.
func causeOf(err error) string {
	var handshake *tlsterm.Error
	var name *net.DNSError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &handshake):
		return display.Excerpt("TLS handshake: "+handshake.Err.Error(), maxCause)
	case errors.As(err, &name):
		return display.Excerpt(name.Error(), maxCause)
	}
	if errno := errnoOf(err); errno != 0 {
		return errno.Error()
	}
	return display.Excerpt(err.Error(), maxCause)
}

// errnoOf returns the system's error within an error; 0: there is none.
func errnoOf(err error) (errno syscall.Errno) {
	var timeout net.Error
	if !errors.As(err, &errno) && errors.As(err, &timeout) && timeout.Timeout() {
		return syscall.ETIMEDOUT
	}
	return errno
}

// DeniedByHand returns how many clients were refused because an operator has denied their source.
func (state *ListenerState) DeniedByHand() int64 { return state.Refusals.Of(int(refusedDenied)) }

// Fault reports whether a reason of [ListenerState.Refusals] or [Upstream.Refusals] is a fault. The other reasons are the
// listener's rules, bytes that clients have sent, or what an endpoint does not do for a single client.
func Fault(reason string) bool {
	if i := slices.Index(refusalNames[:], reason); i >= 0 {
		return refusal(i) != refusedDeclined
	}
	switch admissionReject(slices.Index(admissionRejectNames[:], reason)) {
	case refusedSources, refusedFilterFailed, refusedUpstream, refusedOther:
		return true
	}
	return false
}
