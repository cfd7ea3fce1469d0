package loop

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/closed"
)

// ErrStale is returned for an [ID] that is not in force any more.
var ErrStale = errors.New("penstock: loop: the registration is not in force any more")

// ErrClosed is returned by a loop that is closed. It matches os.ErrClosed.
var ErrClosed error = closed.Error("penstock: loop: closed, or New has not made it")

// ErrConfig is wrapped by the error of [New] when a field of [Config] makes no
// sense.
var ErrConfig = errors.New("invalid loop configuration")

// Config sets up a [Loop]. The zero value, and a nil *Config, mean the defaults.
type Config struct {
	// BusyPoll is how long the loop goes on asking for events before it sleeps, once it has
	// nothing to do; 0 means that it sleeps at once, and a second is the most. It shortens the
	// way from an event to its handler by the time of waking a thread, and costs up to a whole
	// CPU for that time after each event.
	BusyPoll time.Duration

	// KeepPolicy has the loop leave the scheduling policy of its thread alone. Else it changes
	// that from SCHED_OTHER to SCHED_BATCH, see sched(7), while it is at work for a tenth of
	// the time and for three descriptors or more, listeners not counted: then the thread waits
	// for a CPU that is busy instead of taking it, for as long as a time slice, finds more to
	// do when it has it, and much CPU is saved on a machine that has none to spare. A thread
	// with any other policy when Run is called keeps it. A process or thread that is started
	// by a thread with SCHED_BATCH begins with it (sched(7)).
	KeepPolicy bool

	// TurnCPU has the CPU time of turns measured, for Stats.Overruns, which costs six
	// system calls a turn. That of a turn in the middle of which the loop has moved to
	// another thread is not known.
	TurnCPU bool

	// Now is the clock: nanoseconds that never go backwards. Nil means the system's. A caller
	// that moves a clock of its own wakes the loop with [Loop.Post].
	Now func() int64
}

// maxBusyPoll is the most that [Config.BusyPoll] may be.
const maxBusyPoll = time.Second

// batch is how many events one epoll_wait returns at most.
const batch = 256

// A Loop waits for the events of many descriptors and calls their handlers. Make
// it with [New]: the zero Loop is a closed one.
type Loop struct {
	poller  poller // owns the epoll instance
	table   table
	again   []ID // to be called in the next turn
	spare   []ID // the other list, empty
	wheel   wheel
	mail    mailbox // owns a memfd and an eventfd
	clock   func() int64
	spin    int64 // ns
	turnCPU bool
	now     int64 // clock of the present turn
	behind  int64 // see Behind
	yield   int64 // clock of the last time that other goroutines had their turn
	gather  int64 // ns that the next turn may be put off; the least that was asked for

	gathering int // how many asked for it in this turn
	stop      bool
	slept     bool  // since the present turn began
	direct    bool  // it has not looked for events before it slept
	futile    uint8 // see mostFutile
	prompt    uint8 // see mostPrompt
	asleep    int64 // clock when it last began to sleep
	counts    counts
	load      load
	others    others // owns an eventfd

	running atomic.Bool
	usable  atomic.Bool // from New to Close
}

// New makes a loop. The caller calls [Loop.Run], and [Loop.Close] after that. The
// error wraps [ErrConfig], or the cause for which the kernel refused; on systems
// without epoll it wraps errors.ErrUnsupported.
func New(cfg *Config) (*Loop, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	if cfg.BusyPoll < 0 || cfg.BusyPoll > maxBusyPoll {
		return nil, fmt.Errorf("penstock: loop: %w: BusyPoll is %v; write 0 for none, at most %v", ErrConfig, cfg.BusyPoll, maxBusyPoll)
	}
	l := &Loop{clock: cfg.Now, spin: int64(cfg.BusyPoll)}
	if l.clock == nil {
		l.clock = monotonic
	}
	l.table.free, l.load.keep, l.turnCPU = noSlot, cfg.KeepPolicy, cfg.TurnCPU
	l.now, l.gather = l.clock(), maxGather
	l.wheel.start(l.now, l.clock)
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("penstock: loop: %w", err)
	}
	return l, nil
}

var start = time.Now()

// monotonic is the system's clock.
func monotonic() int64 { return int64(time.Since(start)) + 1 }

func (l *Loop) open() error {
	if err := l.poller.open(); err != nil {
		return err
	}
	if err := l.mail.open(); err != nil {
		l.poller.close()
		return err
	}
	l.usable.Store(true)
	if err := l.poller.watch(l.mail.ring.Eventfd()); err != nil {
		l.Close()
		return err
	}
	return nil
}

// Close closes the loop's own descriptors. Those that were added stay their owners'. Posted
// functions that have not run are dropped. It must not be called while Run runs; calling it
// again does nothing.
func (l *Loop) Close() error {
	if !l.usable.Swap(false) {
		return nil
	}
	return errors.Join(l.mail.close(), l.poller.close(), l.others.knock.close())
}

// Now is the clock at the beginning of this turn of the loop, in nanoseconds, by [Config.Now].
// While the loop does not run, it is the present time of the clock.
func (l *Loop) Now() int64 {
	switch {
	case l.running.Load():
		return l.now
	case l.clock == nil: // the zero Loop
		return 0
	}
	return l.clock()
}

// Behind returns how long the events of this turn may have waited for the loop: the time from the beginning of
// the turn before to that of this one, or 0 if the loop has slept between them. It lacks the time for which a
// loop that slept waited for a CPU. It belongs to the loop's goroutine.
func (l *Loop) Behind() time.Duration { return time.Duration(l.behind) }

// Add reports events of fd to h. fd must be non-blocking and stays the caller's: [Loop.Drop]
// it, then close it. Readiness that is there already is reported as well. The error wraps that
// of epoll_ctl(2): EPERM for a descriptor that cannot be waited for, such as that of a regular
// file, EEXIST for one that is there already. Without a handler it wraps os.ErrInvalid.
func (l *Loop) Add(fd int, which uint8, h Handler) (ID, error) {
	if h == nil {
		return 0, fmt.Errorf("penstock: loop: add descriptor %d: no handler: %w", fd, os.ErrInvalid)
	}
	return l.register(fd, which, h, edges)
}

// register is Add with the bits that epoll is asked for.
func (l *Loop) register(fd int, which uint8, h Handler, interest uint32) (ID, error) {
	if !l.usable.Load() {
		return 0, ErrClosed
	}
	id := l.table.take(fd, h)
	if err := l.poller.add(fd, id, which, interest); err != nil {
		l.table.drop(id)
		return 0, fmt.Errorf("penstock: loop: %w", os.NewSyscallError("epoll_ctl", err))
	}
	return id, nil
}

// Hand makes h the handler of a registration. Events that were reported before are not
// repeated. It does nothing for one that is stale.
func (l *Loop) Hand(id ID, h Handler) {
	if s := l.table.find(id); s != nil {
		s.handler = h
	}
}

// Drop ends a registration: its handler is not called any more, not even for
// events that have been collected already. It leaves it to close(2) to take the
// descriptor off the kernel's list, so the caller closes it next, all its
// duplicates included; [Loop.Detach] is for one that lives on. It does nothing for
// one that is stale.
func (l *Loop) Drop(id ID) {
	if l.table.find(id) != nil {
		l.table.drop(id)
	}
}

// Detach is Drop for a descriptor that is not going to be closed.
func (l *Loop) Detach(id ID) error {
	s := l.table.find(id)
	if s == nil {
		return ErrStale
	}
	fd := int(s.fd)
	l.table.drop(id)
	if err := l.poller.remove(fd); err != nil {
		return fmt.Errorf("penstock: loop: %w", os.NewSyscallError("epoll_ctl", err))
	}
	return nil
}

// Again has the handler of a registration called once more, with no events, after
// those of the other descriptors that are ready had their turn. It does nothing for
// one that is stale.
func (l *Loop) Again(id ID) { l.again = append(l.again, id) }

// lateTime is how long a turn may take before it is late.
const lateTime = int64(2 * time.Millisecond)

// Late reports whether the turn at work has taken so long already, two milliseconds, that a
// handler should do as little as it can and call Again for the rest: all other handlers that
// were ready with it, or have become ready since, wait. While the loop does not run there is
// no turn, and nothing is late.
func (l *Loop) Late() bool { return l.running.Load() && l.clock()-l.now > lateTime }

// maxGather bounds the delay of Gather.
const maxGather = int64(time.Millisecond)

// Gather says that the handler at work would rather have more to do at a time than be
// called soon: it is asked for at most once in a call. If all handlers that are called
// in a turn say so the loop sleeps for the least of the times, at most a millisecond,
// before it collects events again; whatever comes meanwhile, mail and timers included,
// waits for so long.
func (l *Loop) Gather(d time.Duration) {
	l.gathering++
	l.gather = min(l.gather, int64(d))
}

// Stop makes Run return when the turn at work is over. It may be called by any
// goroutine at any time.
func (l *Loop) Stop() {
	_ = l.Post(func() { l.stop = true }) // it fails if the loop is closed
}
