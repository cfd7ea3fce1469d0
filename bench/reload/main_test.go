package reload

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/server"
)

func number(x float64) report.Number { return report.Number(x) }

// childName is the first argument of a test binary that runs as a child.
const childName = "penstock-reload-test"

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

// self is this program.
var self = contestant.Program{Path: "/proc/self/exe", Name: childName, Part: []string{"part"}, Run: []string{"run"}}

func child(args []string) error {
	if args[0] == "part" {
		return RunPart(context.Background(), args[1], os.Stdin, os.Stdout)
	}
	return newToy(args[2])
}

// toy is a load balancer with only the needed parts of the program around it. A deaf one does not
// follow its configuration.
type toy struct {
	*server.Server
	mu     sync.Mutex
	path   string
	number int
}

func newToy(path string) error {
	cfg, problems := config.Load(path, os.LookupEnv)
	if len(problems) > 0 {
		return problems[0]
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP)
	log := slog.New(slog.DiscardHandler)
	s, err := server.Open(context.Background(), cfg, server.Options{MaxConnections: 500, Loops: 2, Log: log})
	if err != nil {
		return err
	}
	t := &toy{Server: s, path: path}
	a := admin.New(admin.Config{Balancer: s, Reloader: t, Stop: func() {}, Log: log})
	move, err := a.Prepare(context.Background(), admin.Access{Bind: cfg.Admin.Bind.String()})
	if err != nil {
		return err
	}
	move.Commit()
	go func() {
		for range signals {
			_, _ = t.Reload(context.Background(), rollback.Options{})
		}
	}()
	return s.Serve(context.Background())
}

func (t *toy) Reload(ctx context.Context, _ rollback.Options) (r admin.Reloaded, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if os.Getenv("DEAF") != "" {
		return r, nil
	}
	cfg, problems := config.Load(t.path, os.LookupEnv)
	if len(problems) > 0 {
		return r, problems[0]
	}
	t.number++
	return admin.Reloaded{Generation: t.number}, t.Apply(ctx, cfg)
}

func (*toy) Confirm(context.Context, int, string) (int, error)                     { return 0, nil }
func (*toy) Rollback(context.Context, int, string) (r admin.RolledBack, err error) { return r, nil }
func (*toy) Generations() rollback.Status                                          { return rollback.Status{} }
func (*toy) Plan(context.Context, string, bool) (p admin.Plan, err error)          { return p, nil }
