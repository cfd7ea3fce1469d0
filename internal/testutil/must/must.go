// Package must has checks of errors that end a test.
package must

import "errors"

// A test is a *testing.T, *testing.B or *rapid.T.
type test interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Do ends the test if one of the errors is not nil.
func Do(t test, errs ...error) {
	for _, err := range errs {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
}

// Get takes the results of a function, and returns for a test the value, or ends the test if there is an error:
//
//	c := must.Get(net.Dial("tcp", address))(t)
func Get[V any](v V, err error) func(t test) V {
	return func(t test) V {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}

// Is ends the test unless err is want by [errors.Is].
func Is(t test, err, want error) {
	if !errors.Is(err, want) {
		t.Helper()
		t.Fatalf("got the error %v, want %v", err, want)
	}
}

// Fail is [Is] for the error of a function with another result:
//
//	must.Fail(conn.Read(b))(t, net.ErrClosed)
func Fail[V any](_ V, err error) func(t test, want error) {
	return func(t test, want error) {
		t.Helper()
		Is(t, err, want)
	}
}
