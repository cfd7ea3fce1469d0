package main

import (
	"errors"
	"strings"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/lane"
)

// laneFigures are those of the check lane.
type laneFigures struct {
	Missing []string `json:"missing"` // capabilities and features of the kernel
}

// checkLane finds out whether sessions could leave user space here: the module lane is no part of the library, and so
// not of its doctor.
func checkLane() doctor.Check {
	c := doctor.Check{Name: "lane", State: doctor.OK, Found: "sessions of listeners with lane may leave user space", Mend: []string{}, Figures: laneFigures{Missing: []string{}}}
	err := lane.Probe()
	if err == nil {
		return c
	}
	const cost = "sessions stay in user space: small messages take about three times as long, and twice the CPU, see lane.md"
	c.State, c.Found, c.Cost = doctor.Unknown, err.Error(), "if it is missing, "+cost
	var missing *lane.Unavailable
	if errors.As(err, &missing) {
		c.State, c.Found, c.Cost = doctor.Unused, "without "+strings.Join(missing.Missing, ", "), cost
		c.Figures = laneFigures{missing.Missing}
		c.Mend = []string{"for lane: auto or require of a listener: a process with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN on Linux 6.6 or later, x86-64, with BTF"}
	}
	return c
}
