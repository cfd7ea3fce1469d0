package incident

import (
	"context"
	"os"
	"testing"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
)

// childName is the first argument of a test binary that runs as a part, whose name follows, or as
// a load balancer with a file.
const childName = "penstock-incident-test"

func TestMain(m *testing.M) { child.Main(m, childName, run) }

func run(args []string) error {
	switch args[0] {
	case endpoint.Part:
		return endpoint.RunPart(context.Background(), os.Stdin, os.Stdout)
	case endpoint.PartLoad:
		return endpoint.RunLoad(context.Background(), os.Stdin, os.Stdout)
	}
	return standin.Serve(context.Background(), args[1], 10_000)
}

// spec runs this test binary as a part, balance as `penstock run`.
func spec(part string) process.Spec {
	return process.Spec{Name: part, Path: "/proc/self/exe", Args: []string{childName, part}}
}

func balance(args ...string) process.Spec {
	return process.Spec{Name: "the balancer", Path: "/proc/self/exe", Args: append([]string{childName}, args...)}
}
