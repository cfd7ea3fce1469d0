package loop

import (
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// follow gives the policy to the thread that is about to sleep. One with any other
// policy than the usual one keeps that.
func (l *load) follow() {
	tid := sys.Gettid()
	if tid == l.tid {
		return
	}
	l.tid = tid
	if slices.Contains(l.threads, tid) {
		return
	}
	if err := sys.ChangeSchedPolicy(tid, sys.SCHED_OTHER, sys.SCHED_BATCH); err != nil {
		bump(&l.refused, 1)
		return
	}
	l.threads = append(l.threads, tid)
}

// leave takes it back from all.
func (l *load) leave() {
	for _, tid := range l.threads {
		// It fails for a thread that has ended, or that somebody else has given another.
		_ = sys.ChangeSchedPolicy(tid, sys.SCHED_BATCH, sys.SCHED_OTHER)
	}
	l.batch, l.tid, l.threads = false, 0, l.threads[:0]
}
