package endpoint

import (
	"context"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/child"
)

// childName is the first argument of a test binary that runs as a process of endpoints.
const childName = "penstock-endpoint-test"

func TestMain(m *testing.M) {
	child.Main(m, childName, func([]string) error { return RunPart(context.Background(), os.Stdin, os.Stdout) })
}
