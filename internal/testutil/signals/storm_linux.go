package signals

import (
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// Storm sends every thread of the process the runtime's signal for preemption, again and again until it is stopped.
func Storm() (stop func()) {
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !over.Load() {
			tasks, _ := os.ReadDir("/proc/self/task")
			for range 500 {
				for _, task := range tasks {
					if tid, _ := strconv.Atoi(task.Name()); tid != sys.Gettid() {
						_ = syscall.Tgkill(os.Getpid(), tid, syscall.SIGURG) // a thread that has ended is gone
					}
				}
			}
		}
	}()
	return func() { over.Store(true); <-ended }
}
