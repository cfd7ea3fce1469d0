package evring_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

const childName = "evring-child"

// child is the other process: it has the descriptors of two rings, to read from and to
// write to.
func child(what string) int {
	in, err := evring.Open(3, 4)
	if err == nil {
		var out *evring.Ring
		if out, err = evring.Open(5, 6); err == nil {
			err = map[string]func(in, out *evring.Ring) error{"echo": echo, "crash": crash}[what](in, out)
		}
	}
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

// echo gives back each event that it gets, until it gets an empty one.
func echo(in, out *evring.Ring) error {
	p, err := openPoll(in.Eventfd(), sys.EPOLLIN)
	if err != nil {
		return err
	}
	for {
		n, err := in.Drain(0, func(e []byte) {
			if len(e) == 0 {
				os.Exit(0)
			}
			for out.Push(e) == evring.ErrFull {
				time.Sleep(time.Millisecond)
			}
		})
		if err != nil {
			return err
		}
		if n == 0 {
			sleep(in, p, -1)
		}
	}
}

// crash pushes one event and dies in the middle of the next two.
func crash(_, out *evring.Ring) error {
	out.Push([]byte("whole"))
	if _, n, err := out.Claim(2); n != 2 {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// start runs the child with two rings, at most as long as the test, and returns how it ends.
func start(t *testing.T, what string, in, out *evring.Ring) (wait func() error) {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Args = []string{childName, what}
	cmd.Stderr = os.Stderr
	for _, r := range []*evring.Ring{in, out} {
		m, e, err := r.Files()
		must.Do(t, err)
		defer m.Close()
		defer e.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, m, e)
	}
	must.Do(t, cmd.Start())
	return cmd.Wait
}

// TestTwoProcesses: events go to another process and come back, in order, with both
// sides asleep in between.
func TestTwoProcesses(t *testing.T) {
	for _, p := range []evring.Producers{evring.Single, evring.Multi} {
		in := newRing(t, &evring.Config{Slots: 16, Producers: p})
		out := newRing(t, &evring.Config{Slots: 16, Producers: p})
		wait := start(t, "echo", in, out)
		poll := newPoll(t, out.Eventfd())
		const total = 20_000
		for sent, got := uint64(0), uint64(0); got < total; {
			if sent < total && in.Push(binary.NativeEndian.AppendUint64(nil, sent)) == nil {
				sent++
				continue
			}
			n := must.Get(out.Drain(0, func(e []byte) {
				if v := binary.NativeEndian.Uint64(e); v != got {
					t.Fatalf("event %d came back as %d", got, v)
				}
				got++
			}))(t)
			if n == 0 && sent > got { // an answer is due
				out.Awake(out.Sleep() && awaken(t, poll))
			}
			runtime.Gosched()
		}
		for in.Push(nil) == evring.ErrFull { // the child has answered from within Drain, which frees the slots at its end
			runtime.Gosched()
		}
		must.Do(t, wait())
	}
}

func awaken(t *testing.T, p *poll) bool {
	t.Helper()
	if !p.wait(60_000) {
		t.Fatal("asleep, and no producer woke it")
	}
	return true
}

// TestCrash: a peer that dies in the middle of a push leaves the ring in a state in which
// the consumer can wait: the events that were whole arrive, and no more. A Single
// producer's successor continues. A Multi ring is stuck, and returns ErrFull when it is
// full.
func TestCrash(t *testing.T) {
	for _, p := range []evring.Producers{evring.Multi, evring.Single} {
		r := newRing(t, &evring.Config{Slots: 4, Producers: p})
		var exit *exec.ExitError
		if err := start(t, "crash", newRing(t, nil), r)(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("child: %v, want SIGKILL", err)
		}
		got := drained(t, r)
		if got != "whole " || !r.Sleep() {
			t.Fatalf("drained %q, or nothing to wait for; want the whole event", got)
		}
		r.Awake(false)
		n, err := r.PushBatch([][]byte{[]byte("a"), []byte("b"), []byte("c")})
		switch got := drained(t, r); {
		case p == evring.Single && (n != 3 || err != nil || got != "a b c "):
			t.Errorf("the successor pushed %d, %v, and %q came", n, err, got)
		case p == evring.Multi && (n != 2 || err != evring.ErrFull || got != "" || !r.Sleep()):
			t.Errorf("behind the gap %d were pushed, %v, and %q came", n, err, got)
		}
	}
}

// TestSuccessor: if a Single producer died between publishing and storing the tail, its
// successor keeps the published events.
func TestSuccessor(t *testing.T) {
	r := newRing(t, &evring.Config{Slots: 4, Producers: evring.Single})
	r.Push([]byte("first"))
	tail := r.Bytes()[evring.TailAt:]
	before := binary.NativeEndian.Uint64(tail)
	r.PushBatch([][]byte{[]byte("a"), []byte("b")})
	binary.NativeEndian.PutUint64(tail, before)
	m, e, err := r.Files()
	must.Do(t, err)
	defer m.Close()
	defer e.Close()
	next := reopen(t, m, e)
	must.Do(t, next.Push([]byte("c")))
	if err := next.Push([]byte("d")); err != evring.ErrFull {
		t.Fatalf("push: %v, want ErrFull", err)
	}
	if got := drained(t, r); got != "first a b c " {
		t.Errorf("drained %q", got)
	}
}

// reopen opens a ring by duplicates of files, which stay the caller's.
func reopen(t *testing.T, memory, event *os.File) *evring.Ring {
	t.Helper()
	m, err1 := sys.Dup(int(memory.Fd()))
	e, err2 := sys.Dup(int(event.Fd()))
	r, err3 := evring.Open(m, e)
	must.Do(t, errors.Join(err1, err2, err3))
	t.Cleanup(func() { r.Close() })
	return r
}

func drained(t *testing.T, r *evring.Ring) string {
	t.Helper()
	var out strings.Builder
	must.Get(r.Drain(0, func(e []byte) { io.WriteString(&out, string(e)+" ") }))(t)
	return out.String()
}

// TestSuccessorOfABatch: if a Single producer died in the middle of a batch, after it had filled some slots,
// none of its events comes, now or later.
func TestSuccessorOfABatch(t *testing.T) {
	t.Parallel()

	for lap := range 3 {
		r := newRing(t, &evring.Config{Slots: 4, Producers: evring.Single})
		for range 3 * lap {
			must.Do(t, r.Push([]byte("before")))
			drained(t, r)
		}
		pos, _, err := r.Claim(3)
		must.Do(t, err)
		tail := r.Bytes()[evring.TailAt:]
		r.Publish(pos, [][]byte{[]byte("lost"), []byte("lost"), []byte("lost")})
		first := r.Bytes()[evring.HeaderSize+int(pos%4)*evring.DefaultSlotSize:]
		binary.NativeEndian.PutUint64(first, pos/4<<32) // the word that shows the batch, and the tail, were not stored
		binary.NativeEndian.PutUint64(tail, pos)
		if got := drained(t, r); got != "" {
			t.Fatalf("drained %q of a batch that was not published", got)
		}
		m, e, err := r.Files()
		must.Do(t, err)
		defer m.Close()
		defer e.Close()
		next := reopen(t, m, e)
		for _, event := range []string{"a", "b", "c", "d", "e"} {
			must.Do(t, next.Push([]byte(event)))
			if got := drained(t, r); got != event+" " {
				t.Fatalf("drained %q, want %q", got, event)
			}
		}
	}
}
