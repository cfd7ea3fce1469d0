package loop_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// TestSignals: epoll_wait is interrupted again and again (EINTR, signal(7)), which
// nobody is told of.
func TestSignals(t *testing.T) {
	l := newLoop(t, nil)
	fd, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	told := make(chan loop.Events, 1)
	add(t, l, fd, 0, &scripted{then: func(_ uint8, events loop.Events) {
		if events&loop.Readable != 0 {
			told <- events
		}
	}})
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	for range 20 {
		slept := l.Stats().Blocked
		for i := 0; l.Stats().Blocked == slept; i++ {
			// One that comes while the loop sleeps ends that; others follow if it came
			// too early.
			if i%100 == 0 {
				interrupt(t)
			}
			time.Sleep(100 * time.Microsecond)
		}
		write8(t, fd)
		await(t, told, "an event")
	}
	l.Stop()
	if err := await(t, ended, "the end of the loop"); err != nil {
		t.Fatal(err)
	}
}

// interrupt sends every thread of this process the signal with which the runtime
// itself interrupts threads.
func interrupt(t *testing.T) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range threads {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Tgkill(os.Getpid(), id, syscall.SIGURG); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
}
