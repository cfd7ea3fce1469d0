package topology

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// ErrNotAllowed is wrapped by Confine's error if this process may not run on some of the CPUs.
var ErrNotAllowed = errors.New("not allowed for this process")

// Confine makes every thread of this process run only on these CPUs, now and later: a thread inherits the CPUs
// of the thread that starts it (sched_setaffinity(2)). restore gives all threads the CPUs that the calling
// thread had before. After an error nothing has changed.
//
// The kernel leaves out CPUs that a cpuset forbids or that are offline, without an error, so Confine reads the
// result back: then the error wraps ErrNotAllowed, and names them.
func Confine(to Set) (restore func() error, err error) {
	before, err := sys.SchedGetaffinity(0)
	if err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var mask sys.CPUMask
	for _, cpu := range to {
		mask.Set(cpu)
	}
	if err := confineAll(&mask); err != nil {
		return nil, errors.Join(err, confineAll(&before))
	}
	return func() error { return confineAll(&before) }, nil
}

// passes bounds how many times the threads are listed again. Each pass but the last found a new thread.
const passes = 1000

// confineAll sets the mask of all threads, until a pass finds that all have it: during a pass a thread without
// it may have started another.
func confineAll(mask *sys.CPUMask) error {
	for range passes {
		threads, err := Threads()
		if err != nil {
			return err
		}
		changed := false
		for _, tid := range threads {
			did, err := confine(tid, mask)
			if err != nil {
				return err
			}
			changed = changed || did
		}
		if !changed {
			return nil
		}
	}
	return errors.New("sched_setaffinity: threads start faster than they can be confined")
}

// confine sets the mask of one thread, unless it has it or has ended.
func confine(tid int, mask *sys.CPUMask) (changed bool, err error) {
	now, err := sys.SchedGetaffinity(tid)
	if err == nil && now == *mask {
		return false, nil
	}
	if err == nil {
		err = sys.SchedSetaffinity(tid, mask)
	}
	switch {
	case err == syscall.ESRCH:
		return false, nil
	case err == syscall.EINVAL: // the process may use none of them
		return false, fmt.Errorf("CPU %v is %w", Set(mask.CPUs()), ErrNotAllowed)
	case err != nil:
		return false, os.NewSyscallError("sched_setaffinity", err)
	}
	now, err = sys.SchedGetaffinity(tid)
	if err == syscall.ESRCH {
		return false, nil
	}
	if err != nil {
		return false, os.NewSyscallError("sched_getaffinity", err)
	}
	if lacking := Set(mask.CPUs()).Without(now.CPUs()); len(lacking) > 0 {
		return false, fmt.Errorf("CPU %v is %w", lacking, ErrNotAllowed)
	}
	return true, nil
}

// Threads returns the IDs of this process's threads.
func Threads() (tids []int, err error) {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, entry := range list {
		tid, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	return tids, nil
}
