package write

import (
	"context"
	"os"
	"testing"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/child"
)

// childName is the first argument of a test binary that runs as a part; its name follows.
const childName = "penstock-write-test"

func TestMain(m *testing.M) {
	child.Main(m, childName, func(args []string) error {
		return RunPart(context.Background(), args[0], os.Stdin, os.Stdout)
	})
}

// spec runs this test binary as a part.
func spec(part string) process.Spec {
	return process.Spec{Name: part, Path: "/proc/self/exe", Args: []string{childName, part}}
}
