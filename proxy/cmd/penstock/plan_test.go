package main

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
)

// TestPlanOfLane: a plan that has sessions of a listener stay in user space says how many come back for that, and sessions of an address
// that was given up before do not stay as they are, but drain on.
func TestPlanOfLane(t *testing.T) {
	t.Parallel()

	keep := func(n int64) admin.PlannedChange {
		return admin.PlannedChange{Connections: n, Disposition: admin.Keep}
	}
	reset := admin.PlannedChange{Connections: 2, Disposition: admin.Reset, Kept: 3, Leaves: []admin.Bind{{Bind: ":1", Active: 2}}}
	for _, c := range []struct {
		change admin.PlannedChange
		lane   int64
		drain  server.Draining
		want   string
	}{
		{keep(32), 31, server.Draining{}, "    1 connection goes on\n    in the lane: 31 connections come back to user space\n"},
		{keep(1), 1, server.Draining{}, "    in the lane: 1 connection comes back to user space\n"},
		{keep(5), 0, server.Draining{Within: time.Hour}, "    5 connections go on\n"},
		{reset, 1, server.Draining{}, "    at :1: 2 connections are reset at once\n    in the lane: 1 connection comes back to user space\n    2 connections go on\n"},
		{keep(5), 0, server.Draining{Sessions: 2, Within: 70 * time.Second}, "    3 connections go on\n    2 connections drain already, and are reset within 1m10s\n"},
		{keep(1), 0, server.Draining{Sessions: 1, Within: -time.Second}, "    1 connection drains already, and is reset within 0s\n"},
		{reset, 0, server.Draining{Sessions: 2, Within: 70 * time.Second}, "    at :1: 2 connections are reset at once\n    2 connections drain already, and are reset within 1m10s\n    1 connection goes on\n"},
	} {
		var text strings.Builder
		returnFromLane(&c.change, c.lane)
		drainOn(&c.change, c.drain)
		if writeDispositions(&text, &c.change); text.String() != c.want || c.change.LaneReturned != c.lane {
			t.Errorf("%q, %+v, want %q", text.String(), c.change, c.want)
		}
	}
	of := &config.Config{Listeners: []*config.Listener{{Name: "a", Lane: config.LaneAuto}, {Name: "b", Lane: config.LaneOff}, {Name: "c", Lane: config.LaneRequire, Transparent: true}}}
	if !mayLeave(of, "a") || mayLeave(of, "b") || mayLeave(of, "c") || mayLeave(of, "d") {
		t.Error("which sessions may leave")
	}
}

// TestPlanOfSessionsThatEnd: a changed listener's connections that end with their upstream or endpoint do not stay.
func TestPlanOfSessionsThatEnd(t *testing.T) {
	t.Parallel()

	changes := []config.Change{
		{Kind: config.KindListener, Name: "l"},
		{Kind: config.KindUpstream, Name: "old", Action: config.Removed},
		{Kind: config.KindUpstream, Name: "kept", Action: config.Removed},
		{Kind: config.KindEndpoint, Upstream: "up", Name: "e", Action: config.Removed},
		{Kind: config.KindListener, Name: "other"},
	}
	planned := []admin.PlannedChange{
		{Connections: 9, Disposition: admin.Keep},
		{Connections: 4, Disposition: admin.Drain},
		{Connections: 2, Disposition: admin.Keep},
		{Connections: 3, Disposition: admin.Reset},
		{Connections: 2, Disposition: admin.Drain, Kept: 1},
	}
	var sessions []admin.Session
	for s, n := range map[admin.Session]int{
		{Listener: "l", Upstream: "old", Name: "x"}: 4, {Listener: "l", Upstream: "kept", Name: "x"}: 2,
		{Listener: "l", Upstream: "up", Name: "e"}: 2, {Listener: "other", Upstream: "up", Name: "e"}: 1,
	} {
		sessions = append(sessions, slices.Repeat([]admin.Session{s}, n)...)
	}
	must(t, endWithUpstreams(changes, planned, func() (iter.Seq[admin.Session], error) { return slices.Values(sessions), nil }))
	if planned[0].Connections != 3 || planned[4].Connections != 2 || planned[4].Kept != 0 {
		t.Errorf("%+v", planned)
	}
}

// TestChangesOfLane: a change of a key says that it takes a restart if the key waits for one: not where there is no lane yet, nor where it gets
// back the value that is in force.
func TestChangesOfLane(t *testing.T) {
	t.Parallel()

	before := &config.Config{Lane: config.Lane{Default: config.LaneOff, Sessions: 16}, StateFile: "/a"}
	next := &config.Config{Lane: config.Lane{Default: config.LaneAuto, Sessions: 32}, StateFile: "/b", Limits: config.ProcessLimits{Connections: 5, Memory: config.MemoryLimits{Mlock: true}}}
	for _, c := range []struct{ awaiting, want string }{
		{"", "limits changed: connections: 0 → 5, memory.mlock: false → true; state_file changed: state_file: /a → /b; lane changed: default: off → auto, sessions: 16 → 32"},
		{"lane.sessions", "limits changed: connections: 0 → 5, memory.mlock: false → true; state_file changed: state_file: /a → /b; lane changed: default: off → auto, sessions: 16 → 32 (after a restart)"},
		{"state_file limits.memory.mlock", "limits changed: connections: 0 → 5, memory.mlock: false → true (after a restart); state_file changed: state_file: /a → /b (after a restart); lane changed: default: off → auto, sessions: 16 → 32"},
	} {
		if got := strings.Join(lines(changesTo(before, next, strings.Fields(c.awaiting))), "; "); got != c.want {
			t.Errorf("awaiting %q: %q, want %q", c.awaiting, got, c.want)
		}
	}
}

// TestAReloadWaitsForOneModule: the modules of a file that callers look at are loaded one at a time, once for all callers, and a reload comes
// between any two of them.
func TestAReloadWaitsForOneModule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "upstreams: [{name: up, endpoints: [\"127.0.0.1:1\"]}]\nlisteners:\n"
	for i := range 3 {
		text += fmt.Sprintf("  - {name: l%d, bind: \"127.0.0.1:%[1]d\", upstream: up, filter: {wasm: m.wasm, config: %[2]q}, routes: [{match: {port: 1}, upstream: up, filter: {wasm: none.wasm, name: n%[1]d}}]}\n", i+1, dir) // none that was loaded before
	}
	path := filepath.Join(dir, "p.yaml")
	for name, content := range map[string]string{"p.yaml": text, "m.wasm": allowing(), "none.wasm": dir} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	synctest.Test(t, func(t *testing.T) {
		r := newDaemon(&daemonConfig{}, &cli.Env{}, &server.Options{})
		defer r.end()
		read := func() (*config.Config, []*config.Unknown, error) { return knownConfig(path, os.LookupEnv) }
		if _, unknown, _ := read(); len(unknown) != 4 {
			t.Fatal(len(unknown))
		}
		r.turn <- struct{}{} // of a reload
		looked, left := make(chan error, 2), make(chan int, 1)
		for range 2 {
			go func() {
				_, err := r.look(t.Context(), read)
				looked <- err
			}()
		}
		synctest.Wait()
		go func() { // another one, that comes later
			err := r.take(t.Context())
			_, unknown, _ := read()
			left <- len(unknown)
			if err == nil {
				<-r.turn
			}
		}()
		synctest.Wait()
		<-r.turn
		if n := <-left; n != 3 {
			t.Errorf("%d modules are left to be loaded when the reload has its turn, want 3 of 4", n)
		}
		for range 2 {
			if err, of := <-looked, new(admin.ConfigError); !errors.As(err, &of) || strings.Count(strings.Join(of.Problems, "\n"), "none.wasm: not a valid module") != 3 {
				t.Errorf("%v: %q, want each of three modules to be rejected", err, of.Problems)
			}
		}
	})
}
