package incident

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/balancer"
	"github.com/penstock/penstock/proxy/config"
)

// childName is the first argument of a test binary that is to be a part, whose name
// follows, or a load balancer with a file.
const childName = "penstock-incident-test"

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		if err := child(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leak.Main(m)
}

func child(args []string) error {
	if args[0] != "--config" {
		return RunPart(context.Background(), args[0], os.Stdin, os.Stdout)
	}
	cfg, problems := config.Load(args[1], os.LookupEnv)
	if len(problems) > 0 {
		return problems[0]
	}
	server := &proxy.Config{MaxConnections: 10_000, Loops: 1, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	b, err := balancer.Open(context.Background(), cfg, balancer.Options{Server: server})
	if err != nil {
		return err
	}
	return errors.Join(b.Serve(context.Background()))
}

// spec is this test binary as a part, balance as `penstock run`.
func spec(part string) process.Spec {
	return process.Spec{Name: part, Path: "/proc/self/exe", Args: []string{childName, part}}
}

func balance(args ...string) process.Spec {
	return process.Spec{Name: "the balancer", Path: "/proc/self/exe", Args: append([]string{childName}, args...)}
}
