package arena_test

import (
	"os/exec"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// TestFork: a child of fork(2) has the slots as they were, in a copy of its own: it does not see what the parent
// writes later, nor does the parent see what the child writes. A program that os/exec starts has nothing of the
// arena, and nothing changes in the parent.
func TestFork(t *testing.T) {
	if !privilege.Ordinary(t) { // in a process of few threads, which may stop its collector
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, pages := range []arena.Pages{arena.PagesPlain, arena.PagesAuto} {
		a, err := arena.New(&arena.Config{Size: 4 << 20, Locals: 1, Pages: pages})
		if err != nil {
			t.Fatal(err)
		}
		l := a.Local(0)
		h := get(t, l, 4096, arena.Other)
		b, err := l.Bytes(h)
		if err != nil {
			t.Fatal(err)
		}
		b[0] = 1
		var ends [2]int
		if err := syscall.Pipe(ends[:]); err != nil {
			t.Fatal(err)
		}
		pid, err := sys.ForkAndLook(b, ends[0])
		if err != nil {
			t.Fatal(err)
		}
		b[0] = 3 // before the child looks
		syscall.Write(ends[1], []byte{0})
		if code := exitCode(t, pid); code != 1 {
			t.Errorf("%v: the child has found %d in its slot, want 1", a.Pages(), code)
		}
		syscall.Close(ends[0])
		syscall.Close(ends[1])
		if b[0] != 3 {
			t.Errorf("%v: the parent has %d in its slot, want its own 3", a.Pages(), b[0])
		}

		if err := exec.Command("/bin/true").Run(); err != nil {
			t.Error(err)
		}
		if got, err := l.Bytes(h); err != nil || got[0] != 3 {
			t.Errorf("%v: after os/exec: %v", a.Pages(), err)
		}
		put(t, l, h)
		h = get(t, l, arena.MaxSlot, arena.Other)
		put(t, l, h)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// exitCode waits for a child.
func exitCode(t *testing.T, pid int) int {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var s syscall.WaitStatus
		got, err := syscall.Wait4(pid, &s, syscall.WNOHANG, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case got == pid && !s.Exited():
			t.Fatalf("the child has died: %v", s.Signal())
		case got == pid:
			return s.ExitStatus()
		case time.Now().After(deadline):
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child hangs")
		}
	}
}
