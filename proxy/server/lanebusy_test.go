package server_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneOffBeforeItIsOpen: while another process has the lane it can be switched off, and is off once it is there.
func TestLaneOffBeforeItIsOpen(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	other, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r := start(t, laneConfig(sockets.Server(t, sockets.Echo), "lane: auto"))
	r.Until("the lane is busy", func() bool { return r.Status().Lane.State == admin.LaneBusy })
	for _, ask := range []func(string) (admin.LaneChanged, error){
		func(by string) (admin.LaneChanged, error) { return r.SwitchLane(false, by) }, r.ReturnLane,
	} {
		if changed, err := ask("test"); err != nil || changed.State != admin.LaneOff {
			t.Errorf("%+v, %v", changed, err)
		}
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r.Until("the lane is there, and off", func() bool { return r.Status().Lane.State == admin.LaneOff })
	c := client(t, r.At("l"))
	if changed, err := r.SwitchLane(true, "test"); err != nil || changed.State != admin.LaneOn {
		t.Errorf("%+v, %v", changed, err)
	}
	r.leaves(t, c)
}
