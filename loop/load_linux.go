package loop

import (
	"slices"
	"sync"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// batched counts for each thread the loops of this process that have given it SCHED_BATCH: a thread that one
// loop has left may serve another loop.
var batched = struct {
	sync.Mutex
	loops map[int]int
}{loops: map[int]int{}}

// owned reports whether the program itself has set the thread's policy, for a locked thread or for the whole
// process.
func owned() bool {
	batched.Lock()
	defer batched.Unlock()
	policy, err := sys.SchedPolicy(0)
	return err != nil || policy != sys.SCHED_OTHER && batched.loops[sys.Gettid()] == 0
}

// follow gives the policy to the thread that is about to sleep.
func (l *load) follow() {
	tid := sys.Gettid()
	if tid == l.tid {
		return
	}
	l.tid = tid
	if slices.ContainsFunc(l.threads, func(t heldThread) bool { return t.tid == tid }) {
		return
	}
	err := hold(tid, l.owned)
	if err != nil {
		bump(&l.refused, 1)
	}
	l.threads = append(l.threads, heldThread{tid, err == nil})
}

// leave takes the policy back from all threads of the loop.
func (l *load) leave() {
	for _, t := range l.threads {
		if t.has {
			release(t.tid)
		}
	}
	l.batch, l.tid, l.threads = false, 0, l.threads[:0]
}

// hold gives a thread SCHED_BATCH if its policy is SCHED_OTHER. Unless the program sets policies, a thread that
// already has SCHED_BATCH is held too: it was held by another loop, or started by such a thread.
func hold(tid int, owned bool) error {
	batched.Lock()
	defer batched.Unlock()
	err := sys.ChangeSchedPolicy(tid, sys.SCHED_OTHER, sys.SCHED_BATCH)
	if err == syscall.EINVAL && !owned && len(batched.loops) > 0 {
		if policy, _ := sys.SchedPolicy(tid); policy == sys.SCHED_BATCH {
			err = nil
		}
	}
	if err == nil {
		batched.loops[tid]++
	}
	return err
}

// release undoes hold, unless another loop still holds the thread.
func release(tid int) {
	batched.Lock()
	defer batched.Unlock()
	if batched.loops[tid]--; batched.loops[tid] > 0 {
		return
	}
	delete(batched.loops, tid)
	// This fails for a thread that has ended or was given another policy.
	_ = sys.ChangeSchedPolicy(tid, sys.SCHED_BATCH, sys.SCHED_OTHER)
}
