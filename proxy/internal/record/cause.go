package record

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/penstock/penstock/relay"
)

// ErrOperator is the error of a session that an operator has ended, by the admin API. ErrOperatorNow wraps it: nobody
// waited until the session was quiet.
var (
	ErrOperator    = errors.New("ended by an operator")
	ErrOperatorNow = fmt.Errorf("%w without waiting for quiet", ErrOperator)
)

// Reason is why the session of r has ended, in one word: the result's reason, or operator.
func (r *Record) Reason() string {
	if r.Result.Reason == relay.ReasonCanceled && errors.Is(r.Err, ErrOperator) {
		return "operator"
	}
	return r.Result.Reason.String()
}

// A Cause is why an attempt at an endpoint has failed, in one word.
type Cause uint8

const (
	// CauseOther is any cause that is none of the others.
	CauseOther Cause = iota
	// CauseRefused: nothing listens there.
	CauseRefused
	// CauseTimeout: there was no answer in time.
	CauseTimeout
	// CauseReset: it was reset.
	CauseReset
	// CauseUnreachable: there is no way to it.
	CauseUnreachable
	// CauseResolve: its name has no address.
	CauseResolve
	// CauseLocal: this machine lacked something.
	CauseLocal
	// CauseTLS: the handshake has failed.
	CauseTLS
)

var causeNames = [...]string{"other", "refused", "timeout", "reset", "unreachable", "resolve", "local", "tls"}

// String is its name in a line.
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
	case errors.As(err, new(*net.DNSError)):
		return CauseResolve
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(tls.AlertError)), errors.As(err, new(tls.RecordHeaderError)):
		return CauseTLS
	case errors.As(err, &errno):
		return causeOfErrno(errno)
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
	case syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EACCES, syscall.EPERM:
		return CauseLocal
	}
	return CauseOther
}
