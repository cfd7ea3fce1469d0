package reload

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestText: the measured configuration is valid, and has its stated size.
func TestText(t *testing.T) {
	s := &shape{Admin: "/run/a", Port: 10_000, Listeners: 300, Endpoints: 3000, Interval: "30s"}
	path := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(path, []byte(s.text(func(n int) int { return 1000 + n%2 }, 7)), 0o600); err != nil {
		t.Fatal(err)
	}
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
