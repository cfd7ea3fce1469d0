package main

import (
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/syscalls"
)

// hostInfo is the host of a measurement, as part of its document.
type hostInfo struct {
	// NetworkNamespace is set if the run had one of its own. If not, NamespaceMissing is the
	// reason.
	NetworkNamespace bool   `json:"network_namespace"`
	NamespaceMissing string `json:"namespace_missing,omitempty"`
	// CounterMissing is the reason for which no tool counted system calls.
	CounterMissing string `json:"system_call_counter_missing,omitempty"`
}

// group returns a group of processes, in a network namespace of their own if possible. The
// caller closes it.
func (s *hostInfo) group() *process.Group {
	group, missing := process.NewGroupWherePossible()
	s.NetworkNamespace, s.NamespaceMissing = missing == "", missing
	return group
}

// counter returns the tool that counts system calls, if it is requested and found.
func (s *hostInfo) counter(asked bool) (c *syscalls.Counter, found bool) {
	if !asked {
		s.CounterMissing = "not asked for"
		return nil, false
	}
	c, err := syscalls.Find()
	if err != nil {
		s.CounterMissing = err.Error()
	}
	return c, err == nil
}

func (s *hostInfo) network() string {
	return report.Network(s.NetworkNamespace, s.NamespaceMissing)
}

// counted describes how system calls were counted.
func (s *hostInfo) counted(tool string) string {
	if s.CounterMissing != "" {
		return "not counted: " + s.CounterMissing
	}
	return "counted by " + tool + " in separate, untimed trials"
}
