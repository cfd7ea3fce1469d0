package router

import (
	"errors"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// Why a client gets no endpoint.
var (
	// ErrNoRoute: no route of the listener is for it, and there is no default.
	ErrNoRoute = errors.New("no matching route")
	// ErrQueueFull: it would have to wait, and as many wait as may.
	ErrQueueFull = errors.New("every endpoint is at its limit, and the queue is full")
	// ErrQueueTimeout: it has waited for as long as it may.
	ErrQueueTimeout = errors.New("queue timeout: all endpoints at their connection limit")
	// ErrCircuitOpen: the upstream's circuit breaker is open.
	ErrCircuitOpen = errors.New("the circuit breaker is open")
	// ErrLoop: its original destination is the listener itself.
	ErrLoop = errors.New("the client's original destination is this listener itself")
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

// A refusal is a reason to refuse a client, as it is counted.
type refusal uint8

const (
	refusedUnavailable refusal = iota
	refusedFull
	refusedQueue
	refusedCircuit
	refusedLocal // for want of something on this machine alone
	refusedFailed
	refusals
)

func (r refusal) String() string {
	return [...]string{"unavailable", "full", "queue_timeout", "circuit_open", "local", "failed"}[r]
}

// refusalOf returns the counter of an error that ends a search.
func refusalOf(err error) refusal {
	switch {
	case errors.Is(err, ErrQueueTimeout):
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

// circuitError says why a breaker has refused.
func circuitError(r health.Refusal) error {
	switch r {
	case health.RefusedConnections, health.RefusedPending:
		return lb.ErrFull
	}
	return ErrCircuitOpen
}

// ownFault reports whether an attempt failed for want of something in this process or on
// this machine: that says nothing of the endpoint.
func ownFault(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL,
	}, func(errno syscall.Errno) bool { return errors.Is(err, errno) })
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
