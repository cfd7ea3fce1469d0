package record

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/penstock/penstock/relay"
)

// ErrOperator is the error of a session that an operator has ended by the admin API. ErrOperatorNow wraps it, and
// says that nobody waited until the session was quiet.
var (
	ErrOperator    = errors.New("ended by an operator")
	ErrOperatorNow = fmt.Errorf("%w without waiting for quiet", ErrOperator)
)

// ErrEnds is the error of a client that was cut because the process ends.
var ErrEnds = errors.New("the process ends")

// Reason returns why the session of r has ended, in one word: the result's reason, or operator.
func (r *Record) Reason() string {
	if r.Result.Reason == relay.ReasonCanceled && errors.Is(r.Err, ErrOperator) {
		return "operator"
	}
	return r.Result.Reason.String()
}

// A Cause is why an attempt to reach an endpoint has failed, in one word.
type Cause uint8

const (
	// CauseOther means any other cause.
	CauseOther Cause = iota
	// CauseRefused means that nothing listens at the address.
	CauseRefused
	// CauseTimeout means that no answer came in time.
	CauseTimeout
	// CauseReset means that the connection was reset.
	CauseReset
	// CauseUnreachable means that there is no route to the address.
	CauseUnreachable
	// CauseResolve means that the endpoint's name has no address.
	CauseResolve
	// CauseLocal means that this machine lacked something, such as memory, a port or a permission.
	CauseLocal
	// CauseTLS means that the TLS handshake has failed.
	CauseTLS
	// CauseAbandoned means that the attempt was given up early, for [ErrAbandoned].
	CauseAbandoned
)

// ErrAbandoned is the error of an attempt that was given up, because its endpoint must not get new connections any
// more or the client is no longer admitted.
var ErrAbandoned = errors.New("given up early")

// ErrQueueTimeout is wrapped by the error of a client that has waited for room as long as it may.
var ErrQueueTimeout = errors.New("queue timeout: all endpoints at their connection limit")

// ErrTLS is wrapped by the error of any TLS handshake. Errors of crypto/tls have no type in common.
var ErrTLS = errors.New("TLS handshake")

var causeNames = [...]string{"other", "refused", "timeout", "reset", "unreachable", "resolve", "local", "tls", "abandoned"}

// String returns the name of the cause in a line.
func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return causeNames[CauseOther]
}

// CauseOf returns the cause of an error.
func CauseOf(err error) Cause {
	var errno syscall.Errno
	switch {
	case err == nil:
		return CauseOther
	case errors.Is(err, ErrAbandoned):
		return CauseAbandoned
	case errors.As(err, new(*net.DNSError)):
		return CauseResolve
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	case errors.As(err, &errno):
		return causeOfErrno(errno)
	case errors.Is(err, ErrTLS):
		return CauseTLS
	}
	return CauseOther
}

func causeOfErrno(e syscall.Errno) Cause {
	switch e {
	case syscall.ECONNREFUSED, syscall.ENOENT:
		return CauseRefused
	case syscall.ETIMEDOUT:
		return CauseTimeout
	case syscall.ECONNRESET, syscall.EPIPE:
		return CauseReset
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return CauseUnreachable
	case syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EBUSY, syscall.EACCES, syscall.EPERM:
		return CauseLocal
	}
	return CauseOther
}
