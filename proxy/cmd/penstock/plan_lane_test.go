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
	of := &config.Config{Listeners: []*config.Listener{{Name: "a", Lane: config.LaneAuto}, {Name: "b", Lane: config.LaneOff}, {Name: "c", Lane: config.LaneRequire, Transparent: true}}}
	if !mayLeave(of, "a") || mayLeave(of, "b") || mayLeave(of, "c") || mayLeave(of, "d") {
		t.Error("which sessions may leave")
	}
}
