package write

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/leak"
)

// childName is the first argument of a test binary that is to be a part; its
// name follows.
const childName = "penstock-write-test"

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		if err := RunPart(context.Background(), os.Args[1], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leak.Main(m)
}

// spec is this test binary as a part.
func spec(part string) process.Spec {
	return process.Spec{Name: part, Path: "/proc/self/exe", Args: []string{childName, part}}
}
