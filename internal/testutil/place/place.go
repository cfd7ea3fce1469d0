// Package place has what the tests of the build tag invariants share: checks that panic and name places.
package place

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Next returns the line after its call, as file:line.
func Next() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", file, line+1)
}

// Panic returns the text of f's panic, or "" if it does not panic.
func Panic(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// Named fails the test unless the text contains each of the phrases.
func Named(t testing.TB, text string, phrases ...string) {
	t.Helper()
	for _, p := range phrases {
		if !strings.Contains(text, p) {
			t.Errorf("%q lacks %q", text, p)
		}
	}
}
