package sys

import (
	"fmt"
	"os"
)

// Schedstat returns for how many nanoseconds a thread of this process has waited for a
// CPU, and how often it has got one (/proc/pid/task/tid/schedstat, see
// Documentation/scheduler/sched-stats.rst). The error wraps os.ErrNotExist for a thread
// that is not, and on a kernel without CONFIG_SCHED_INFO.
func Schedstat(tid int) (waited, slices int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", tid))
	if err != nil {
		return 0, 0, err
	}
	var ran int64
	if _, err := fmt.Sscan(string(text), &ran, &waited, &slices); err != nil {
		return 0, 0, fmt.Errorf("schedstat: %w", err)
	}
	return waited, slices, nil
}
