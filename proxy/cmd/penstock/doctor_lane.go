package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
)

// staysCost is the cost of sessions that may not leave user space.
const staysCost = "sessions stay in user space: small messages take about three times as long, and twice the CPU, see lane.md"

// checkLane finds out whether sessions could leave user space here: the module lane is no part of the library, and so
// not of its doctor.
func checkLane() doctor.Check {
	c := doctor.Check{Name: "lane", State: doctor.OK, Found: "sessions of listeners with lane may leave user space", Mend: []string{}}
	err := lane.Probe()
	if err == nil {
		return c
	}
	c.State, c.Found, c.Cost = doctor.Unknown, err.Error(), "if it is missing, "+staysCost
	var missing *lane.Unavailable
	if errors.As(err, &missing) {
		c.State, c.Found, c.Cost = doctor.Unused, "without "+strings.Join(missing.Missing, ", "), staysCost
		c.Mend = []string{"for lane: auto or require of a listener: a process with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN on Linux 6.6 or later, x86-64, with BTF"}
	}
	return c
}

// checkRunningLane is the check lane of a process; false: no listener wants it, and there is none.
func checkRunningLane(l *admin.Lane) (c doctor.Check, there bool) {
	if l == nil || !l.Wanted && l.State != admin.LaneOn {
		return c, false
	}
	c = doctor.Check{Name: "lane", State: doctor.OK, Mend: []string{}}
	c.Found = fmt.Sprintf("%s; %d of %s in the lane", l.State, l.Active, plural(l.Most, "session", "sessions"))
	if l.Why != "" {
		c.Found += "; " + l.Why
	}
	switch l.State {
	case admin.LaneOff:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"penstock lane on"}
	case admin.LaneBusy:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"wait for the end of the process that has the lane", "bpftool net, which has one that was forgotten"}
	case admin.LaneUnavailable:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"penstock doctor, which has what is missing", "penstock check, which has what is wrong with devices and pins"}
	}
	if l.PinsProblem != "" {
		c.State, c.Cost, c.Found = doctor.Degraded, "the death of the process ends the sessions in the lane", c.Found+"; "+l.PinsProblem
		c.Mend = []string{"remove what is left in the directory of lane.pins: the process pins all anew", "a restart, if the directory itself was removed"}
	}
	return c, true
}
