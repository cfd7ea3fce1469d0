package doctor

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/feature"
)

// An answer is the error of the call that is probed. A failure of the scaffolding around it, a
// listener or a connection, is no answer.
type answer struct{ error }

// Unwrap returns the call's error.
func (a answer) Unwrap() error { return a.error }

// answered makes an answer of a call's error, unless that may be different next time. It is
// nil if the call succeeded.
func answered(call string, err error) error {
	named := os.NewSyscallError(call, err)
	switch err {
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EINVAL, syscall.ENOPROTOOPT, syscall.EOPNOTSUPP:
		return answer{named}
	}
	return named
}

// expect compares the value that was set with the wanted one; call is how it was read.
func expect(got, wanted int, call string, err error) error {
	if err == nil && got != wanted {
		return errNoEffect
	}
	return os.NewSyscallError(call, err)
}

// isAnswer reports whether an error is of the probed call.
func isAnswer(err error) bool {
	var a answer
	return errors.As(err, &a) || errors.Is(err, errNoEffect) || errors.Is(err, feature.ErrNotSupported)
}

// refused reports whether an error means that the probed call is forbidden.
func refused(err error) bool {
	return isAnswer(err) && (forbidden(err) || errors.Is(err, feature.ErrNotSupported))
}

// errNoEffect is the error of an option that can be set and does nothing.
var errNoEffect = errors.New("it is accepted and has no effect")

// forbidden reports whether the kernel or a sandbox refuses to do a thing at all.
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

// callOf names the system call that failed, "" if that is unknown. The word after it in a
// SyscallError, as in "setsockopt SO_RCVLOWAT", is an argument.
func callOf(err error) string {
	var failed *os.SyscallError
	if !errors.As(err, &failed) {
		return ""
	}
	call, _, _ := strings.Cut(failed.Syscall, " ")
	return call
}

// tristate is whether something is so, which may not be known.
type tristate struct{ yes, known bool }

// works is the finding of a probe by its error.
func works(err error) tristate { return tristate{err == nil, err == nil || isAnswer(err)} }

// IsZero leaves unknown findings out of the JSON (omitzero).
func (t tristate) IsZero() bool { return !t.known }

// MarshalJSON writes true or false, and null if it is unknown.
func (t tristate) MarshalJSON() ([]byte, error) {
	switch {
	case !t.known:
		return []byte("null"), nil
	case t.yes:
		return []byte("true"), nil
	}
	return []byte("false"), nil
}
