// Package reactor is an epoll loop for the benchmark's own ends of a connection. These ends share the machine with
// the measured proxies, so their cost hides the cost of the proxies. That is why one thread serves many
// connections, events are level-triggered, and nothing is between an event and the system call that answers it.
package reactor

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// batch is how many events one epoll_wait returns at most.
const batch = 256

// Handler receives the ready events of a descriptor. Events are level-triggered: as long as a condition remains,
// it is reported again. EPOLLERR and EPOLLHUP are always reported.
type Handler interface {
	Ready(events uint32)
}

// Loop waits for the events of many descriptors and calls their handlers on one thread, one after the other. Only
// Post may be called from other goroutines. Everything else may be called by handlers, timers and posted
// functions, or before Run.
type Loop struct {
	epfd, wake int    // owned; wake is an eventfd
	slots      []slot // by descriptor
	clock      clock
	ended      bool
	err        error

	mu     sync.Mutex
	closed bool     // guarded by mu; if true, wake is closed
	posted []func() // guarded by mu
}

// slot is the handler of a descriptor. The generation tells the events of the present descriptor from events,
// still in the batch, of an earlier descriptor with the same number.
type slot struct {
	handler    Handler
	generation int32
}

// New makes a loop. Close must be called.
func New() (*Loop, error) {
	l := &Loop{epfd: -1, wake: -1, clock: clock{fd: -1}}
	for _, open := range []struct {
		name string
		call func() (int, error)
		fd   *int
	}{
		{"epoll_create1", sys.EpollCreate1, &l.epfd},
		{"eventfd", sys.Eventfd, &l.wake},
		{"timerfd_create", sys.TimerfdCreate, &l.clock.fd},
	} {
		fd, err := open.call()
		if err != nil {
			l.Close()
			return nil, os.NewSyscallError(open.name, err)
		}
		*open.fd = fd
	}
	err := l.Add(l.wake, sys.EPOLLIN, (*waker)(l))
	if err == nil {
		err = l.Add(l.clock.fd, sys.EPOLLIN, (*alarm)(l))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close closes the loop's own descriptors. Added descriptors still belong to their owners. Close must not be
// called while Run runs.
func (l *Loop) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for _, fd := range []int{l.epfd, l.wake, l.clock.fd} {
		if fd >= 0 {
			_ = sys.Close(fd)
		}
	}
}

// Add registers fd, and h receives its events. fd still belongs to the caller, who calls Forget and then closes
// it.
func (l *Loop) Add(fd int, events uint32, h Handler) error {
	for fd >= len(l.slots) {
		l.slots = append(l.slots, make([]slot, fd+1)...)
	}
	l.slots[fd].handler = h
	l.slots[fd].generation++
	return l.control(sys.EPOLL_CTL_ADD, fd, events)
}

// Want changes the events that fd's handler receives.
func (l *Loop) Want(fd int, events uint32) error {
	return l.control(sys.EPOLL_CTL_MOD, fd, events)
}

// Hand makes h the handler of fd.
func (l *Loop) Hand(fd int, h Handler) { l.slots[fd].handler = h }

// Forget stops the events of fd. The caller closes fd next: only that removes fd from the kernel's list.
func (l *Loop) Forget(fd int) { l.slots[fd].handler = nil }

func (l *Loop) control(op, fd int, events uint32) error {
	e := sys.EpollEvent{Events: events, Fd: int32(fd), Pad: l.slots[fd].generation}
	return os.NewSyscallError("epoll_ctl", sys.EpollCtl(l.epfd, op, fd, &e))
}

// Post calls f on the loop's thread, later. It is safe to call from any goroutine. A closed loop drops f.
func (l *Loop) Post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.posted = append(l.posted, f)
	// The write fails only if the counter is full, and then the loop is awake anyway.
	_, _ = sys.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// Stop makes Run return err after the present handler has returned. Only the first call counts.
func (l *Loop) Stop(err error) {
	if !l.ended {
		l.ended, l.err = true, err
	}
}

// Run serves events until Stop is called, and returns Stop's error. If ctx ends first, it returns the cause. It
// occupies its thread meanwhile.
func (l *Loop) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer context.AfterFunc(ctx, func() {
		l.Post(func() { l.Stop(context.Cause(ctx)) })
	})()
	events := make([]sys.EpollEvent, batch)
	for !l.ended {
		n, err := sys.EpollWait(l.epfd, events, -1)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("epoll_wait", err)
		}
		for _, e := range events[:n] {
			if s := &l.slots[e.Fd]; s.handler != nil && s.generation == e.Pad && !l.ended {
				s.handler.Ready(e.Events)
			}
		}
	}
	return l.err
}

// waker calls the posted functions.
type waker Loop

func (w *waker) Ready(uint32) {
	var counter [8]byte
	_, _ = sys.Read(w.wake, counter[:])
	w.mu.Lock()
	posted := w.posted
	w.posted = nil
	w.mu.Unlock()
	for _, f := range posted {
		f()
	}
}

// clock calls functions when their time has come. It is a descriptor of the loop, like any other, so a busy loop
// makes no calls to read the time.
type clock struct {
	fd     int     // a timerfd, owned by the loop
	timers []timer // the next timer comes first
}

// timer is a function, and the time at which to call it.
type timer struct {
	when time.Time
	call func()
}

// After calls f once on the loop's thread, not before d has passed.
func (l *Loop) After(d time.Duration, f func()) {
	t := timer{time.Now().Add(d), f}
	i, _ := slices.BinarySearchFunc(l.clock.timers, t, func(a, b timer) int { return a.when.Compare(b.when) })
	l.clock.timers = slices.Insert(l.clock.timers, i, t)
	if i == 0 {
		l.arm()
	}
}

func (l *Loop) arm() {
	var d time.Duration // none: disarm
	if t := l.clock.timers; len(t) > 0 {
		d = max(time.Until(t[0].when), 1)
	}
	if err := sys.TimerfdSettime(l.clock.fd, d); err != nil {
		l.Stop(os.NewSyscallError("timerfd_settime", err))
	}
}

// alarm is the handler of the timerfd.
type alarm Loop

func (l *alarm) Ready(uint32) {
	var expirations [8]byte
	_, _ = sys.Read(l.clock.fd, expirations[:])
	for now := time.Now(); len(l.clock.timers) > 0 && !l.clock.timers[0].when.After(now) && !l.ended; {
		next := l.clock.timers[0].call
		l.clock.timers = l.clock.timers[1:]
		next()
	}
	(*Loop)(l).arm()
}
