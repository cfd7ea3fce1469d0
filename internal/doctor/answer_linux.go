package doctor

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/feature"
)

// An answer is what the call that a probe is about failed with. What failed of the
// scaffolding around it, a listener or a connection, answers nothing.
type answer struct{ error }

// Unwrap returns the call's error.
func (a answer) Unwrap() error { return a.error }

// answered makes an answer of what a call said, unless that may be different next
// time. It is nil if the call succeeded.
func answered(call string, err error) error {
	named := os.NewSyscallError(call, err)
	switch err {
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EINVAL, syscall.ENOPROTOOPT, syscall.EOPNOTSUPP:
		return answer{named}
	}
	return named
}

// expect compares what was set with what was wanted; call is how it was read.
func expect(got, wanted int, call string, err error) error {
	if err == nil && got != wanted {
		return errNoEffect
	}
	return os.NewSyscallError(call, err)
}

// isAnswer tells whether an error says something of what was probed.
func isAnswer(err error) bool {
	var a answer
	return errors.As(err, &a) || errors.Is(err, errNoEffect) || errors.Is(err, feature.ErrNotSupported)
}

// refused tells whether an error says that what was probed is forbidden.
func refused(err error) bool {
	return isAnswer(err) && (forbidden(err) || errors.Is(err, feature.ErrNotSupported))
}

// errNoEffect is what an option gets that can be set and does nothing.
var errNoEffect = errors.New("it is accepted and has no effect")

// forbidden tells whether the kernel or a sandbox refuses to do a thing at all.
func forbidden(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSYS)
}

// cause is an error without the names of the endpoints.
func cause(err error) string {
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Error()
	}
	return err.Error()
}

// callOf names the system call that failed, "" if that cannot be told. What follows
// it in a SyscallError, as in "setsockopt SO_RCVLOWAT", is an argument.
func callOf(err error) string {
	var failed *os.SyscallError
	if !errors.As(err, &failed) {
		return ""
	}
	call, _, _ := strings.Cut(failed.Syscall, " ")
	return call
}

// truth is whether something is so, which may not be known.
type truth struct{ yes, known bool }

// works is what a probe's error says of what was probed.
func works(err error) truth { return truth{err == nil, err == nil || isAnswer(err)} }

// IsZero leaves what is not known out of the JSON (omitzero).
func (t truth) IsZero() bool { return !t.known }

// MarshalJSON writes true or false, and null for what is not known.
func (t truth) MarshalJSON() ([]byte, error) {
	switch {
	case !t.known:
		return []byte("null"), nil
	case t.yes:
		return []byte("true"), nil
	}
	return []byte("false"), nil
}
