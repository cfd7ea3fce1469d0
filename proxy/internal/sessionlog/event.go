package sessionlog

import (
	"crypto/tls"
	"errors"
	"strings"
	"syscall"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
)

// A Kind says at which moment of a session a line is written.
type Kind uint8

const (
	// Start: the client was joined to an endpoint.
	Start Kind = iota
	// Progress: the session continues, and another interval is over.
	Progress
	// End: the session has ended, or the client left or was refused before.
	End
)

var kindNames = [...]string{"start", "progress", "end"}

// String returns the kind's name in a line.
func (k Kind) String() string { return kindNames[k] }

// Bounds of names in a line, in bytes. Names from the network have their own bounds in a record.
const (
	maxName  = 64
	maxPath  = 80
	maxError = 96
)

// An Event is the content of a line.
type Event struct {
	Kind          Kind
	record.Record // its Err is nil, except for [record.ErrOperator] and [record.ErrQueueTimeout]

	now   int64 // loops' clock when the event was made
	error string
}

// set fills e in for a record. It keeps no memory that the record's owner uses again.
func (e *Event) set(k Kind, now int64, r *record.Record) {
	*e = Event{Kind: k, Record: *r, now: now, error: errorText(r)}
	e.Result.Legs = nil
	switch {
	case errors.Is(r.Err, record.ErrQueueTimeout):
		e.Err = record.ErrQueueTimeout
	case !errors.Is(r.Err, record.ErrOperator):
		e.Err = nil
	}
}

// bound cuts the names that are too long, and marks them.
func (e *Event) bound() {
	e.Listener, e.Upstream, e.Endpoint = record.Bounded(e.Listener, maxName), record.Bounded(e.Upstream, maxName), record.Bounded(e.Endpoint, maxName)
	e.EndpointPath, e.error = record.Bounded(e.EndpointPath, maxPath), record.Bounded(e.error, maxError)
}

// lastFailure returns the last failed attempt that the record describes, or the zero value.
func (e *Event) lastFailure() record.Failure {
	if e.NumFailures == 0 {
		return record.Failure{}
	}
	return e.Failures[min(int(e.NumFailures), len(e.Failures))-1]
}

func errorText(r *record.Record) string {
	if r.Err == nil {
		return ""
	}
	if unverified, ok := errors.AsType[*tls.CertificateVerificationError](r.Err); ok {
		return unverified.Err.Error() // the text before it repeats other fields, and the reason after them would be cut off
	}
	// TLS that ended without close_notify has no errno, and its text says more.
	if _, reset := errors.AsType[syscall.Errno](r.Err); reset && r.Outcome == record.Joined && r.Result.Reason == relay.ReasonReset {
		switch r.Result.Culprit {
		case relay.SideA:
			return "the client has reset the connection"
		case relay.SideB:
			return "the endpoint has reset the connection"
		}
	}
	return strings.TrimPrefix(r.Err.Error(), "penstock: relay: ")
}
