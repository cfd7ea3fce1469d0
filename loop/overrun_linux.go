package loop

import "github.com/penstock/penstock/internal/sys"

func threadTime() cpuTime {
	thread := sys.Gettid()
	used, err := sys.ThreadCPUTime()
	if err != nil || sys.Gettid() != thread {
		return cpuTime{}
	}
	return cpuTime{thread, used}
}
