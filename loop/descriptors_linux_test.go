package loop_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// TestOutOfDescriptors: with RLIMIT_NOFILE reached, in a process of its own, a
// listener pauses, does not spin, and goes on when something was closed, or some
// time went by.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()

	if !inChild(t) {
		return
	}
	l := running(t, nil)
	s, fd := socket(t)
	accepted, paused := make(chan int, 16), make(chan error, 1000)
	var ln *loop.Listener
	do(t, l, func() {
		var err error
		ln, err = l.Listen(fd, &loop.ListenerConfig{
			Acceptor: &acceptor{then: func(fd int) { accepted <- fd }, paused: func(err error) { paused <- err }},
		})
		if err != nil {
			t.Error(err)
		}
	})
	connect(t, s, 2) // while there are descriptors
	for range 2 {
		sys.Close(await(t, accepted, "a connection"))
	}
	do(t, l, ln.Suspend)
	connect(t, s, 2)
	spare, undo := exhaust(t)
	before := l.Stats().Turns
	do(t, l, ln.Resume)
	for range 3 { // at once, and twice when a pause was over
		if err := await(t, paused, "a pause"); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("it paused for %v, want EMFILE", err)
		}
	}
	if turns := l.Stats().Turns - before; turns > 100 {
		t.Errorf("%d turns: it spins", turns)
	}
	sys.Close(spare)
	do(t, l, ln.Retry)
	first := await(t, accepted, "the connection for which a descriptor was closed")
	if err := await(t, paused, "the pause for the other one"); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("it paused for %v, want EMFILE", err)
	}
	sys.Close(first) // and nobody says so
	second := await(t, accepted, "the connection after a pause")
	if ln.Pauses() < 4 {
		t.Errorf("%d pauses were counted, want 4 or more", ln.Pauses())
	}
	sys.Close(second)
	undo()
	do(t, l, func() { _ = ln.Close() })
}

// do has f called by the loop, and waits for its end.
func do(t testing.TB, l *loop.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if err := l.Post(func() { f(); close(done) }); err != nil {
		t.Fatal(err)
	}
	await(t, done, fmt.Sprintf("%T", f))
}

// exhaust uses up the descriptors of this process, which get a low limit. spare is
// one of them; undo closes the rest.
func exhaust(t testing.TB) (spare int, undo func()) {
	t.Helper()
	soft, hard, err := sys.RlimitNoFileRange()
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.SetRlimitNoFile(64, hard); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for {
		fd, err := sys.Dup(0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	if len(fds) < 2 {
		t.Fatalf("%d descriptors could be had", len(fds))
	}
	return fds[0], func() {
		for _, fd := range fds[1:] {
			sys.Close(fd)
		}
		if err := sys.SetRlimitNoFile(soft, hard); err != nil {
			t.Error(err)
		}
	}
}
