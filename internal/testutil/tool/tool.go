// Package tool is a stand-in for perf and strace in tests of their counts.
package tool

import "context"

// A Tool counts as one of the operating system would, or fails.
type Tool struct {
	PIDs   []int // that it was asked to count
	Events int64 // how many it says there were
	Err    error // why it fails, unless nil
}

// Tool is its name.
func (*Tool) Tool() string { return "a test" }

// Count calls during, unless it fails.
func (t *Tool) Count(_ context.Context, pids []int, during func() error) (int64, error) {
	t.PIDs = append(t.PIDs, pids...)
	if t.Err != nil {
		return 0, t.Err
	}
	return t.Events, during()
}
