package main

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
)

// TestPlanOfLane: a plan that has sessions of a listener stay in user space says how many come back for that.
func TestPlanOfLane(t *testing.T) {
	for _, c := range []struct {
		change admin.PlannedChange
		lane   int64
		want   string
	}{
		{admin.PlannedChange{Connections: 32, Disposition: admin.Keep}, 31, "    1 connection stays as it is\n    in the lane: 31 connections come back to user space\n"},
		{admin.PlannedChange{Connections: 1, Disposition: admin.Keep}, 1, "    in the lane: 1 connection comes back to user space\n"},
		{admin.PlannedChange{Connections: 5, Disposition: admin.Keep}, 0, "    5 connections stay as they are\n"},
		{
			admin.PlannedChange{Connections: 2, Disposition: admin.Reset, Kept: 3, Leaves: []admin.Bind{{Bind: ":1", Active: 2}}},
			1,
			"    at :1: 2 connections are reset at once\n    in the lane: 1 connection comes back to user space\n    2 connections stay as they are\n",
		},
	} {
		var text strings.Builder
		if returnFromLane(&c.change, c.lane); c.lane != c.change.LaneReturned {
			t.Errorf("%+v", c.change)
		}
		if writeDispositions(&text, &c.change); text.String() != c.want {
			t.Errorf("%q, want %q", text.String(), c.want)
		}
	}
	ends := admin.PlannedChange{Connections: 5, Disposition: admin.Keep}
	var text strings.Builder
	endInLane(&ends, 2)
	if writeDispositions(&text, &ends); text.String() != "    3 connections stay as they are\n    in the lane: 2 adopted connections end by the new timeouts\n" || ends.LaneEnded != 2 {
		t.Errorf("%q, %+v", text.String(), ends)
	}
	text.Reset()
	if err := writeReloaded(&text, admin.Reloaded{Generation: 2, Changes: []string{"l"}, LaneEnded: 1}); err != nil || text.String() != "  l\ngeneration 2 is in force: 1 change\nin the lane: 1 adopted connection ends by the new timeouts\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
	of := &config.Config{Listeners: []*config.Listener{{Name: "a", Lane: config.LaneAuto}, {Name: "b", Lane: config.LaneOff}, {Name: "c", Lane: config.LaneRequire, Transparent: true}}}
	if !mayLeave(of, "a") || mayLeave(of, "b") || mayLeave(of, "c") || mayLeave(of, "d") {
		t.Error("which sessions may leave")
	}
}

// TestChangesOfLane: a change of the keys of the lane takes a restart where it is open, but for that of default.
func TestChangesOfLane(t *testing.T) {
	before, next := &config.Config{Lane: config.Lane{Default: config.LaneOff, Sessions: 16}}, &config.Config{Lane: config.Lane{Default: config.LaneAuto, Sessions: 32}}
	for _, c := range []struct {
		lane *admin.Lane
		want string
	}{
		{nil, "lane changed: default: off → auto, sessions: 16 → 32"},
		{&admin.Lane{State: admin.LaneOpening}, "lane changed: default: off → auto, sessions: 16 → 32"},
		{&admin.Lane{State: admin.LaneOn}, "lane changed: default: off → auto, sessions: 16 → 32 (after a restart)"},
		{&admin.Lane{State: admin.LaneOff}, "lane changed: default: off → auto, sessions: 16 → 32 (after a restart)"},
	} {
		if got := lines(changesTo(before, next, c.lane)); len(got) != 1 || got[0] != c.want {
			t.Errorf("%+v: %q, want %q", c.lane, got, c.want)
		}
	}
}
