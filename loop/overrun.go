package loop

import "time"

// overrun is the CPU time from which on a turn is one.
const overrun = time.Millisecond

// cpuTime is the CPU time that a thread has used.
type cpuTime struct {
	thread int // 0: it is not known
	used   time.Duration
}

// since is the thread's CPU time since before, 0 if it was another one then.
func (t cpuTime) since(before cpuTime) time.Duration {
	if t.thread == 0 || t.thread != before.thread {
		return 0
	}
	return t.used - before.used
}

// used is that of the present thread, if it is to be measured.
func (l *Loop) used() cpuTime {
	if !l.turnCPU {
		return cpuTime{}
	}
	return threadTime()
}
