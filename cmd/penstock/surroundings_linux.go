package main

import (
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/syscalls"
)

// surroundings are where a command measures, as its document has it.
type surroundings struct {
	// NetworkNamespace: the run had one of its own. If not, NamespaceMissing
	// says why.
	NetworkNamespace bool   `json:"network_namespace"`
	NamespaceMissing string `json:"namespace_missing,omitempty"`
	// CounterMissing says why nothing counted system calls.
	CounterMissing string `json:"system_call_counter_missing,omitempty"`
}

// group is one whose children are in a network namespace of their own, if that may
// be. The caller closes it.
func (s *surroundings) group() *process.Group {
	group, missing := process.NewGroupWherePossible()
	s.NetworkNamespace, s.NamespaceMissing = missing == "", missing
	return group
}

// counter is what counts system calls here, if it is asked for.
func (s *surroundings) counter(asked bool) (c *syscalls.Counter, found bool) {
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

func (s *surroundings) network() string {
	return report.Network(s.NetworkNamespace, s.NamespaceMissing)
}

// counted says what counted, in trials of their own.
func (s *surroundings) counted(tool string) string {
	if s.CounterMissing != "" {
		return "not counted: " + s.CounterMissing
	}
	return "counted by " + tool + " in separate, untimed trials"
}
