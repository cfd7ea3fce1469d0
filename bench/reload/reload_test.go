package reload

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/proxy/config"
)

func number(x float64) report.Number { return report.Number(x) }

// childName is the first argument of a test binary that runs as a child.
const childName = "penstock-reload-test"

func TestMain(m *testing.M) { child.Main(m, childName, run) }

// self is this program.
var self = contestant.Program{Path: "/proc/self/exe", Name: childName, Part: []string{"part"}, Run: []string{"run"}}

// run does the work of a part, or serves a configuration and does not follow it.
func run(args []string) error {
	if args[0] == "part" {
		return RunPart(context.Background(), args[1], os.Stdin, os.Stdout)
	}
	signal.Ignore(syscall.SIGHUP)
	return standin.Serve(context.Background(), args[2], 500)
}

// TestMeasureNeedsTheNewState: a program that does not follow its configuration is not measured
// by mistake.
func TestMeasureNeedsTheNewState(t *testing.T) {
	g, _ := process.NewGroupWherePossible()
	t.Cleanup(g.Close)
	s := Setup{
		Setup: rounds.Setup{Group: g, Rounds: 1}, Program: self, Dir: t.TempDir(), Listeners: 5, Endpoints: 20, Interval: "30s",
		Reloads: 20, Idle: 40, Busy: 2, RowListeners: 3,
	}
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
