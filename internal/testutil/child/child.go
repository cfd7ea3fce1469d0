// Package child makes a test binary act as another program when it is called by another name. A package with
// tests that start such children declares
//
//	func TestMain(m *testing.M) { child.Main(m, childName, run) }
package child

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

// Main is [leak.Main], unless the binary was called by name. Then it calls run with the arguments, and exits
// with 0, or with 1 and the error on standard error.
func Main(m *testing.M, name string, run func(args []string) error) {
	if os.Args[0] != name {
		leak.Main(m)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
