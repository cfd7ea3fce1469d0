// Package sessionlog writes lines on sessions: from the loops, which must not wait, to a file, a
// syslog server or the journal, which may be full, stuck or dead.
//
// A loop pushes the event of a [record.Record] into a ring of its own, by value: [Log.Add]. One
// goroutine takes the events out, makes lines of them, and writes the lines that came in one
// turn together. An event without a place in its ring, or a line that its destination does not
// take, is dropped and counted: in the end each added event is in [Counts] once.
package sessionlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/record"
)

// Config sets up a [Log].
type Config struct {
	// Loops is how many loops there are: their indexes are below it.
	Loops int
	// Now is the loops' clock.
	Now func() int64
	// Report is called after losses and errors, at most every ten seconds, by the log's
	// goroutine: how many lines were dropped since the last call, and the last error. With
	// neither, lines are written again after an error. nil: nothing is reported.
	Report func(dropped int64, err error)
}

// Slots is how many events have place in the ring of a loop.
const Slots = 1024

// A Log is made by [New]. Its methods may be called by any goroutine, unless they say otherwise.
type Log struct {
	cfg     Config
	context *context
	rings   []*queue      // of each loop, then one of all others; owned
	epoll   int           // owned; watches the rings and wake
	wake    int           // owned
	done    chan struct{} // closed when the writer has ended

	settings atomic.Pointer[Settings] // in force; nil: no lines are written
	mu       sync.Mutex
	next     []change
	closing  bool

	added, full, filtered atomic.Int64 // events
	lines, dropped, rated atomic.Int64 // lines

	failed atomic.Pointer[Failure] // nil: see Failed

	writer writer
}

// A Failure is an error of the destination, and when it was reported.
type Failure struct {
	Err error
	At  int64 // clock
}

// Failed returns the last failure of the present destination; nil: it has not failed, or has taken a line since.
func (l *Log) Failed() *Failure { return l.failed.Load() }

// A queue is a ring, and how full it is.
type queue struct {
	*evring.Ring
	pushed, drained atomic.Uint64
	called          atomic.Bool // the writer was woken since it is half full
}

// push adds an event, and wakes the writer from its rest when the ring gets half full.
func (q *queue) push(event []byte, wake func()) error {
	if err := q.Push(event); err != nil {
		return err
	}
	if q.pushed.Add(1)-q.drained.Load() >= Slots/2 && !q.called.Swap(true) {
		wake()
	}
	return nil
}

// A change is a task of the writer.
type change struct {
	settings *Settings
	reopen   bool
	close    bool
	done     chan struct{} // closed when it is done
}

// Counts count lines since the beginning.
type Counts struct {
	// Lines were written. Full were dropped because their loop's ring was full, Dropped because their
	// destination did not take them, and Rated because they exceeded the rate. Together these are all
	// lines that were to be written, except for lines under way.
	Lines, Full, Dropped, Rated int64
	// Filtered sessions have no line because of the filters.
	Filtered int64
}

// Lost are the lines that were to be written and are not.
func (c Counts) Lost() int64 { return c.Full + c.Dropped + c.Rated }

// Counts returns them.
func (l *Log) Counts() Counts {
	return Counts{l.lines.Load(), l.full.Load(), l.dropped.Load(), l.rated.Load(), l.filtered.Load()}
}

// New makes a log that writes nothing yet. The caller calls Close.
func New(cfg *Config) (*Log, error) {
	l := &Log{cfg: *cfg, context: newContext(), epoll: -1, wake: -1, done: make(chan struct{})}
	l.context.wall = record.NewWall(cfg.Now, time.Now).Of
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	l.writer.log = l
	go l.writer.run()
	return l, nil
}

func (l *Log) open() (err error) {
	if l.epoll, err = sys.EpollCreate1(); err != nil {
		return fmt.Errorf("session log: epoll: %w", err)
	}
	if l.wake, err = sys.Eventfd(); err != nil {
		return fmt.Errorf("session log: eventfd: %w", err)
	}
	watched := []int{l.wake}
	for i := range l.cfg.Loops + 1 {
		producers := evring.Single
		if i == l.cfg.Loops {
			producers = evring.Multi
		}
		ring, err := evring.New(&evring.Config{Slots: Slots, SlotSize: MaxEvent + 8, Producers: producers, Name: "sessionlog"})
		if err != nil {
			return fmt.Errorf("session log: %w", err)
		}
		l.rings = append(l.rings, &queue{Ring: ring})
		watched = append(watched, ring.Eventfd())
	}
	for _, fd := range watched {
		if err := sys.EpollCtl(l.epoll, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: sys.EPOLLIN | sys.EPOLLET}); err != nil {
			return fmt.Errorf("session log: epoll: %w", err)
		}
	}
	return nil
}

// release gives back all descriptors.
func (l *Log) release() error {
	var errs []error
	for _, r := range l.rings {
		errs = append(errs, r.Close())
	}
	for _, fd := range []int{l.epoll, l.wake} {
		if fd >= 0 {
			errs = append(errs, sys.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// Records reports whether a client of a listener may get a line, so that its record is to be
// kept.
func (l *Log) Records(listener string, id record.ID) bool {
	s := l.settings.Load()
	return s != nil && !s.Without[listener] && s.sampled(id)
}

// Add adds the event of a record, for a line, if the settings want it. It is called by the loop of
// that index alone, or with a negative one by any other goroutine. It does not wait, and keeps
// nothing of the record.
func (l *Log) Add(loop int, k Kind, r *record.Record) {
	s := l.settings.Load()
	now := l.cfg.Now()
	switch {
	case s == nil || s.Without[r.Listener] || !s.has(k):
		return
	case !s.wants(k, now, r):
		l.filtered.Add(1)
		return
	}
	if loop < 0 || loop >= l.cfg.Loops {
		loop = l.cfg.Loops
	}
	var b [MaxEvent]byte
	l.added.Add(1)
	if l.rings[loop].push(appendEvent(b[:0], k, now, r), l.wakeUp) != nil {
		l.full.Add(1)
	}
}

// Has reports whether there are lines of a kind, for clients of a listener; filters may leave some of them out.
func (l *Log) Has(k Kind, listener string) bool {
	s := l.settings.Load()
	return s != nil && !s.Without[listener] && s.has(k)
}

// Room reports whether half of the places for events of no loop are free. A caller that may wait
// adds no further events before. If it reports false the writer is awake.
func (l *Log) Room() bool {
	q := l.rings[l.cfg.Loops]
	return q.pushed.Load()-q.drained.Load() < Slots/2
}

// Every is how often a session that goes on has a line; 0: never.
func (l *Log) Every() time.Duration {
	if s := l.settings.Load(); s != nil {
		return s.Every
	}
	return 0
}

// Set brings settings into force that [Settings.Open] has opened; nil: no lines are written any
// more. The lines of events that were added before are written by the settings before.
func (l *Log) Set(s *Settings) {
	if s == nil && l.settings.Load() == nil {
		return
	}
	l.settings.Store(s)
	l.change(change{settings: s})
}

// Reopen opens files again, as after they were moved. It returns at once.
func (l *Log) Reopen() { l.change(change{settings: l.settings.Load(), reopen: true}) }

// change gives the writer a task, and returns a channel that is closed when it is done.
func (l *Log) change(c change) <-chan struct{} {
	c.done = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		close(c.done)
		return c.done
	}
	l.closing = c.close
	l.next = append(l.next, c)
	l.wakeUp()
	return c.done
}

// wakeUp ends the writer's wait. An error means that the counter is full: the writer is awake
// anyway.
func (l *Log) wakeUp() { _, _ = sys.Write(l.wake, one[:]) }

var one = [8]byte{7: 1} // in either order of bytes it is no 0

// closeWait is how long Close waits for a destination that is stuck.
const closeWait = time.Second

// Close writes all events that were added, for a second at most, and ends the log. Nothing may be
// added any more.
func (l *Log) Close() error {
	l.settings.Store(nil)
	select {
	case <-l.change(change{close: true}):
	case <-time.After(closeWait):
		return errors.New("session log: its destination accepts no lines, and some lines may be missing")
	}
	<-l.done
	return l.release()
}
