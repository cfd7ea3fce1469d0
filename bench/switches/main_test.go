package switches

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/child"
)

// childName is the first argument of a test binary that runs as a part; its name follows.
const childName = "penstock-switches-test"

// partLoad is the load, partMute a server that ends at once.
const (
	partLoad = "load"
	partMute = "mute"
)

func TestMain(m *testing.M) { child.Main(m, childName, play) }

func play(args []string) error {
	part := args[0]
	switch part {
	case partLoad:
		return load.Serve(context.Background(), os.Stdin, os.Stdout)
	case partMute:
		return fmt.Errorf("runtime: failed to create new OS thread (have 7 already; errno=11)")
	}
	return RunPart(context.Background(), part, os.Stdin, os.Stdout)
}

// spec runs this test binary as a part.
func spec(part string) process.Spec {
	return process.Spec{Name: part, Path: "/proc/self/exe", Args: []string{childName, part}}
}
