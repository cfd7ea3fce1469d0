// Package condition lets tests wait for conditions instead of fixed times.
package condition

import (
	"testing"
	"time"
)

// Patience is how long a test waits for anything that is sure to happen: a connection's deadline, a program's
// start, a condition. It only decides how late a failure shows, so it is long enough for a machine with forty
// programs to a CPU.
const Patience = 3 * time.Minute

// Await waits until holds returns true, and fails the test if it does not within [Patience]; what names the
// condition. It must be called on the test's goroutine.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Eventually(holds) {
		t.Fatalf("not within %v: %s", Patience, what)
	}
}

// Eventually reports whether holds returned true within [Patience].
func Eventually(holds func() bool) bool {
	for end := time.Now().Add(Patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Receive waits for a value from a channel, and fails the test if none comes within [Patience]. It must be
// called on the test's goroutine.
func Receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Patience):
		t.Fatalf("not within %v: %s", Patience, what)
	}
	return v
}
