package contestant_test

import (
	"testing"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/proxy/admin"
)

// TestNoLookalikeOfALane: a process that serves without a lane is refused, with its reason.
func TestNoLookalikeOfALane(t *testing.T) {
	for _, l := range []*admin.Lane{nil, {State: admin.LaneUnavailable, Why: "no TCX"}, {State: admin.LaneBusy, Why: "no TCX"}} {
		want := []string{"no lane"}
		if l != nil {
			want = []string{"stay in user space", l.State, "no TCX"}
		}
		wantText(t, contestant.LaneOn(l), want...)
	}
	if err := contestant.LaneOn(&admin.Lane{State: admin.LaneOn}); err != nil {
		t.Error(err)
	}
}

func TestALaneIsNotForEverybody(t *testing.T) {
	if privilege.Ordinary(t) {
		k, err := contestant.Named(contestant.LaneName)
		if err != nil {
			t.Fatal(err)
		}
		wantText(t, k.Available(t.Context(), setting(t)), "CAP_BPF", "run it as root")
	}
}
