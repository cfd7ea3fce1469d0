package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Freeze stops the child by SIGSTOP, and returns when all its threads have stopped. Threads on other processors
// get the signal a little later. SIGCONT continues the child.
func (c *Child) Freeze(ctx context.Context) error {
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	const longest = 10 * time.Millisecond
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, longest) {
		if stopped, err := c.stopped(); stopped || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stopped reports whether all threads are stopped (T in proc_pid_stat(5)).
func (c *Child) stopped() (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", c.Pid()))
	if err == nil && len(threads) == 0 {
		err = os.ErrProcessDone
	}
	for i := 0; err == nil && i < len(threads); i++ {
		var s stat
		s, err = statOf(threads[i])
		switch {
		case gone(err):
			err = nil // the thread has ended
		case err == nil && s.state != 'T':
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("threads of %s: %w", c.name, err)
	}
	return true, nil
}
