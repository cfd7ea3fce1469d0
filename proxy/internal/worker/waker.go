package worker

// WakerFunc returns a Waker that calls f, which must not wait, for searches that go on
// where there is no loop.
func WakerFunc(f func()) Waker { return Waker{to: &wakeFunc{f}} }

type wakeFunc struct{ f func() }

func (w *wakeFunc) wake(uint64) { w.f() }

// hungUp is not known of a client on a goroutine.
func (w *wakeFunc) hungUp(uint64) bool { return false }
