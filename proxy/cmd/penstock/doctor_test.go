package main

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/admin"
)

// TestDoctorRunningLane: the lane of a process is a check, with the reason that sessions stay in user space, or end with the process.
func TestDoctorRunningLane(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		of    *admin.Lane
		state doctor.State // "": no check
		found string
	}{
		"none":        {nil, "", ""},
		"not wanted":  {&admin.Lane{State: admin.LaneUnavailable}, "", ""},
		"on":          {&admin.Lane{State: admin.LaneOn, Wanted: true, Active: 3, Most: 64}, doctor.OK, "on; 3 of 64 sessions in the lane"},
		"opening":     {&admin.Lane{State: admin.LaneOpening, Wanted: true}, doctor.OK, "opening"},
		"off":         {&admin.Lane{State: admin.LaneOff, Wanted: true}, doctor.Degraded, "off"},
		"busy":        {&admin.Lane{State: admin.LaneBusy, Wanted: true, Why: "device lo"}, doctor.Degraded, "busy; 0 of 0 sessions in the lane; device lo"},
		"unavailable": {&admin.Lane{State: admin.LaneUnavailable, Wanted: true, Why: "CAP_BPF"}, doctor.Degraded, "CAP_BPF"},
		"pins":        {&admin.Lane{State: admin.LaneOn, Wanted: true, PinsProblem: "2 of 5 files are missing"}, doctor.Degraded, "2 of 5 files are missing"},
	} {
		got, there := checkRunningLane(c.of)
		if there != (c.state != "") || got.State != c.state || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v, %v", name, got, there)
		}
		if there && (got.State == doctor.OK) != (len(got.Mend) == 0) {
			t.Errorf("%s: what mends it is %q", name, got.Mend)
		}
	}
}
