package rolling

import (
	"context"
	"os"
	"testing"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
)

// childName is the first argument of a test binary that runs as a child.
const childName = "penstock-rolling-test"

// self is this program.
var self = contestant.Program{Path: "/proc/self/exe", Name: childName, Part: []string{"part"}, Run: []string{"run"}}

func TestMain(m *testing.M) { child.Main(m, childName, run) }

// run does the work of the program with these arguments.
func run(args []string) error {
	ctx := context.Background()
	switch {
	case args[0] == "run":
		return standin.Serve(ctx, args[2], 10_000)
	case args[1] == endpoint.Part:
		return endpoint.RunPart(ctx, os.Stdin, os.Stdout)
	}
	return endpoint.RunLoad(ctx, os.Stdin, os.Stdout)
}
