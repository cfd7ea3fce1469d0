// Package condition has tests wait for conditions and not for time to pass.
package condition

import (
	"testing"
	"time"
)

// Patience is how long a test waits for an event that comes soon on a quiet machine.
const Patience = 30 * time.Second

// pause is between two looks.
const pause = time.Millisecond

// Await waits until holds returns true, and fails the test if it does not within [Patience]:
// what names the condition. It must be called by the test's goroutine.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await(t, what, holds, Patience)
}

func await(t testing.TB, what string, holds func() bool, patience time.Duration) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
