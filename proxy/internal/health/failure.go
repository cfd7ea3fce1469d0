package health

import "sync/atomic"

// failure is the last failure reported, for log lines of its consequences.
type failure struct {
	outcome atomic.Uint32
	cause   atomic.Pointer[string] // of the last connect that failed; nil: none is known
}

// SetCause sets the reason, in a line, for which the endpoint cannot be connected to, before
// that is reported; "" if none is known. It allocates only if the reason differs from the
// last.
func (m *OutlierMonitor) SetCause(cause string) { m.last.set(cause) }

// SetCause is like [OutlierMonitor.SetCause], for a connection that was let through.
func (b *Breaker) SetCause(cause string) { b.last.set(cause) }

func (f *failure) set(cause string) {
	if f.reason() != cause {
		kept := cause // without the copy each call would allocate
		f.cause.Store(&kept)
	}
}

// reason returns the reason, "" if none is known.
func (f *failure) reason() string {
	if c := f.cause.Load(); c != nil {
		return *c
	}
	return ""
}

func (f *failure) note(o Outcome) {
	if n := uint32(o); f.outcome.Load() != n {
		f.outcome.Store(n)
	}
}

// String returns the outcome and its cause.
func (f *failure) String() string {
	o := Outcome(f.outcome.Load())
	return o.String() + f.why(o)
}

// why returns the cause, for a connect that failed.
func (f *failure) why(o Outcome) string {
	if cause := f.reason(); o == ConnectFailed && cause != "" {
		return ": " + cause
	}
	return ""
}
