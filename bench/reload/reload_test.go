package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
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

// setup is a measurement that takes some seconds.
func setup(t *testing.T) Setup {
	t.Helper()
	g, _ := process.NewGroupWherePossible()
	t.Cleanup(g.Close)
	return Setup{
		Setup: rounds.Setup{Group: g, Rounds: 1}, Program: self, Dir: t.TempDir(), Listeners: 5, Endpoints: 20, Interval: "30s",
		Reloads: 20, Idle: 40, Busy: 2, RowListeners: 3,
	}
}

func TestMeasure(t *testing.T) {
	s := setup(t)
	seen := make(map[string]int)
	s.Watch = func(p rounds.Progress) { seen[p.Case]++ }
	r := must.Get(Measure(t.Context(), s))(t)
	if len(r.Rows) != 2 || seen["everything"] != 2 || seen["one upstream"] != 2 || r.FileBytes == 0 {
		t.Fatalf("%+v, %v", r, seen)
	}
	for _, row := range r.Rows {
		m := row.Median
		if m == nil || !(m.First > 0) || !(m.Prepared > 0) || !(m.Swapped > 0) || !(m.ValidToSwapped > m.Prepared) || !(m.LongTurns >= 0) || !(row.Worst.First >= m.First) {
			t.Errorf("%s: %+v", row.Name, m)
		}
	}
	l := r.Steady
	if l == nil || l.Reloads != 20 || l.Clients == nil || l.Clients.Idle != 40 || l.Clients.Served == 0 || len(l.Violations) > 0 || len(l.Held) != 10 {
		t.Fatalf("%+v, %+v", l, l.Clients)
	}
	if h := l.Held[9]; h.Descriptors < 80 || h.Goroutines == 0 || !(h.RssAnon > 0) {
		t.Errorf("%+v", h)
	}
}

// TestMeasureNeedsTheNewState: a program that does not follow its configuration is not measured
// by mistake.
func TestMeasureNeedsTheNewState(t *testing.T) {
	t.Setenv("DEAF", "1")
	s := setup(t)
	reason := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, reason)
	defer cancel()
	if r, err := Measure(ctx, s); !errors.Is(err, reason) || len(r.Rows) != 1 || r.Rows[0].Median != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestText: the measured configuration is valid, and has its stated size.
func TestText(t *testing.T) {
	s := &shape{Admin: "/run/a", Port: 10_000, Listeners: 300, Endpoints: 3000, Interval: "30s"}
	path := filepath.Join(t.TempDir(), "penstock.yaml")
	must.Do(t, os.WriteFile(path, []byte(s.text(func(n int) int { return 1000 + n%2 }, 7)), 0o600))
	cfg, problems := config.Load(path, os.LookupEnv)
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	seen := make(map[string]bool)
	for _, u := range cfg.Upstreams {
		for _, e := range u.Endpoints {
			seen[e.Address.String()] = true
		}
	}
	if len(cfg.Listeners) != s.Listeners || len(seen) != s.Endpoints || cfg.Listeners[299].Bind[0].String() != s.address(299) {
		t.Errorf("%d listeners, the last at %v, %d endpoints", len(cfg.Listeners), cfg.Listeners[299].Bind, len(seen))
	}
}

func TestJudge(t *testing.T) {
	held := func(memory float64, descriptors int, goroutines int64) Held {
		return Held{RssAnon: number(memory), Descriptors: descriptors, Goroutines: goroutines}
	}
	for name, test := range map[string]struct {
		l    Long
		want int
	}{
		"well":        {Long{Clients: &Clients{Idle: 9}, Held: []Held{held(1e8, 1000, 20), held(1.1e8, 1050, 21)}}, 0},
		"closed":      {Long{Clients: &Clients{Idle: 9, Closed: 1}}, 1},
		"refused":     {Long{Clients: &Clients{Failed: 1}}, 1},
		"memory":      {Long{Held: []Held{held(1e8, 1, 1), held(1.4e8, 1, 1)}}, 1},
		"descriptors": {Long{Held: []Held{held(1e8, 1, 1), held(1e8, 102, 1)}}, 1},
		"goroutines":  {Long{Held: []Held{held(1e8, 1, 1), held(1e8, 1, 52)}}, 1},
	} {
		if test.l.judge(); len(test.l.Violations) != test.want {
			t.Errorf("%s: %q", name, test.l.Violations)
		}
	}
}
