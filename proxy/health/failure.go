package health

import (
	"sync/atomic"
	"syscall"
)

// A failure is the last one that somebody was told of, for the line that tells of what
// followed from it.
type failure struct {
	outcome atomic.Uint32
	errno   atomic.Uint32 // of the last connect that failed; 0: it has none
}

// Because tells why the endpoint cannot be connected to, before that is reported; 0: no
// system call says so.
func (m *Member) Because(errno syscall.Errno) { m.last.because(errno) }

// Because is that of [Member], for a connection that was let through.
func (b *Breaker) Because(errno syscall.Errno) { b.last.because(errno) }

func (f *failure) because(errno syscall.Errno) {
	if no := uint32(errno); f.errno.Load() != no {
		f.errno.Store(no)
	}
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

// why is the rest of that, for those of which a system call says it.
func (f *failure) why(o Outcome) string {
	if errno := syscall.Errno(f.errno.Load()); o == ConnectFailed && errno != 0 {
		return ": " + errno.Error()
	}
	return ""
}
