package main

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
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
		{keep(32), 31, server.Draining{}, "    1 connection stays as it is\n    in the lane: 31 connections come back to user space\n"},
		{keep(1), 1, server.Draining{}, "    in the lane: 1 connection comes back to user space\n"},
		{keep(5), 0, server.Draining{Within: time.Hour}, "    5 connections stay as they are\n"},
		{reset, 1, server.Draining{}, "    at :1: 2 connections are reset at once\n    in the lane: 1 connection comes back to user space\n    2 connections stay as they are\n"},
		{keep(5), 0, server.Draining{Sessions: 2, Within: 70 * time.Second}, "    3 connections stay as they are\n    2 connections drain already, and are reset within 1m10s\n"},
		{keep(1), 0, server.Draining{Sessions: 1, Within: -time.Second}, "    1 connection drains already, and is reset within 0s\n"},
		{reset, 0, server.Draining{Sessions: 2, Within: 70 * time.Second}, "    at :1: 2 connections are reset at once\n    2 connections drain already, and are reset within 1m10s\n    1 connection stays as it is\n"},
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
