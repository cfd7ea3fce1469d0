package soak

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

// childName is the first argument of a test binary that is to be a proxy.
const childName = "penstock-soak-test"

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		if err := child(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leak.Main(m)
}
