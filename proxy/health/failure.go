package health

import "sync/atomic"

// A failure is the last one that was reported, for the line that tells of what followed from
// it.
type failure struct {
	outcome atomic.Uint32
	cause   atomic.Pointer[string] // of the last connect that failed; nil: none is known
}

// Because takes the reason, in a line, for which the endpoint cannot be connected to, before
// that is reported; "": none is known. It allocates only if the reason is another one than
// the last.
func (m *Member) Because(cause string) { m.last.because(cause) }

// Because is that of [Member], for a connection that was let through.
func (b *Breaker) Because(cause string) { b.last.because(cause) }

func (f *failure) because(cause string) {
	if f.reason() != cause {
		kept := cause // or each call would allocate
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

// String says what it was.
func (f *failure) String() string {
	o := Outcome(f.outcome.Load())
	return o.String() + f.why(o)
}

// why is the rest of that, for a connection that could not be made.
func (f *failure) why(o Outcome) string {
	if cause := f.reason(); o == ConnectFailed && cause != "" {
		return ": " + cause
	}
	return ""
}
