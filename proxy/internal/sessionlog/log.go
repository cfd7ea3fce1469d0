// Package sessionlog writes lines about sessions to a file, a syslog server or the journal. The event loops must never
// wait for such a destination, which may be full, stuck or dead.
//
// A loop adds the event of a [record.Record] to a bounded queue of its own, by value: [Log.Add]. One
// goroutine takes the events out, formats them, and writes the lines of one turn together. An event
// that finds its queue full, or a line that its destination does not take, is dropped and counted:
// in the end [Counts] has each event once.
package sessionlog

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// Config sets up a [Log].
type Config struct {
	// Loops is the number of loops. Their indexes are 0 to Loops-1.
	Loops int
	// Now is the loops' clock.
	Now func() int64
	// Report is called by the log's goroutine after losses and errors, at most every ten seconds. It gets the number of
	// lines dropped since the last call, and the last error. A call with 0 and nil says that lines are written again
	// after an error. Report may be nil.
	Report func(dropped int64, err error)
}

// Slots is how many events have place in the queue of a loop.
const Slots = 1024

// A Log is made by [New]. Its methods may be called by any goroutine, unless they say otherwise.
type Log struct {
	cfg    Config
	wall   func(clock int64) time.Time
	queues []queue       // one for each loop, then one for all other goroutines
	some   chan struct{} // a queue that was empty has an event
	urgent chan struct{} // a queue is half full, or there is a change
	done   chan struct{} // closed when the writer has ended

	settings atomic.Pointer[Settings] // in force; nil if no lines are written
	mu       sync.Mutex
	next     []*change // tasks that are not done
	closing  bool
	writer   *writer // who has the tasks

	full, filtered, taken atomic.Int64 // events
	lines, dropped, rated atomic.Int64 // lines

	told atomic.Int64 // lost lines that were reported

	failed atomic.Pointer[Failure] // see Failed
	waits  atomic.Int64            // see Waits
}

// A Failure is an error of the destination, and when it was reported.
type Failure struct {
	Err error
	At  int64 // of the loops' clock
}

// Failed returns the last failure of the present destination. It returns nil if the destination has not failed, or has
// taken a line since.
func (l *Log) Failed() *Failure { return l.failed.Load() }

// Waits returns since when lines wait and the destination takes none, on the loops' clock, or 0 if none wait. It knows
// this even while the writer hangs in a call and reports nothing.
func (l *Log) Waits() (since int64) { return l.waits.Load() }

type queue struct {
	record.Queue[Event]
	called atomic.Bool // the writer was woken since it is half full
}

// A change is a task of the writer.
type change struct {
	settings *Settings
	reopen   bool
	close    bool
	done     chan struct{} // closed when it is done
}

// Counts holds the numbers of lines since the start.
type Counts struct {
	// Lines were written. Full lines were dropped because their loop's queue was full, Dropped because their destination
	// did not take them, and Rated because they exceeded the rate. The sum of the four is the number of lines to write,
	// except for lines that are still on their way.
	Lines, Full, Dropped, Rated int64
	// Filtered is the number of lines that the filters left out.
	Filtered int64
}

// Lost returns the number of lines that were dropped.
func (c Counts) Lost() int64 { return c.Full + c.Dropped + c.Rated }

// untold returns the number of lost lines that were not reported.
func (l *Log) untold() int64 { return l.Counts().Lost() - l.told.Load() }

// Counts returns the counts until now.
func (l *Log) Counts() Counts {
	return Counts{l.lines.Load(), l.full.Load(), l.dropped.Load(), l.rated.Load(), l.filtered.Load()}
}

// New makes a log that writes nothing yet. The caller calls Close.
func New(cfg *Config) *Log {
	l := &Log{cfg: *cfg, wall: record.NewWall(cfg.Now, time.Now).Of, queues: make([]queue, cfg.Loops+1), some: make(chan struct{}, 1), urgent: make(chan struct{}, 1), done: make(chan struct{})}
	l.write()
	return l
}

// write makes a writer. It needs the lock, except in New.
func (l *Log) write() {
	l.writer = &writer{log: l, context: newContext()}
	l.writer.context.wall = l.wall
	go l.writer.run()
}

// Records reports whether a listener's client may get a line, so that its record must be kept.
func (l *Log) Records(listener string, id record.ID) bool {
	s := l.settings.Load()
	return s != nil && !s.Without[listener] && s.sampled(id)
}

// Add adds an event for a record if the settings want a line. The loop with this index calls it; any other goroutine
// passes a negative index. Add does not wait, and keeps no reference to the record.
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
	q := &l.queues[loop]
	place, held := q.Place(Slots)
	if place == nil {
		l.full.Add(1)
		return
	}
	place.Of.set(k, now, r)
	if q.Add(place) {
		wake(l.some)
	}
	if held >= Slots/2 && !q.called.Swap(true) {
		wake(l.urgent)
	}
}

// Has reports whether a listener's clients get lines of a kind. Filters may still leave some lines out.
func (l *Log) Has(k Kind, listener string) bool {
	s := l.settings.Load()
	return s != nil && !s.Without[listener] && s.has(k)
}

// Every returns the interval of progress lines, or 0 without such lines.
func (l *Log) Every() time.Duration {
	if s := l.settings.Load(); s != nil {
		return s.Every
	}
	return 0
}

// hangs is how long a destination may take no lines before the next one is used.
const hangs = 3 * time.Second

// Set puts settings into force that [Settings.Open] has opened. With nil, no more lines are written. Earlier events are
// still written with the earlier settings, unless their destination hangs.
func (l *Log) Set(s *Settings) {
	if s == nil && l.settings.Load() == nil {
		return
	}
	l.settings.Store(s)
	c := &change{settings: s}
	l.change(c)
	time.AfterFunc(hangs, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if slices.Contains(l.next, c) {
			l.writer.former.Store(true)
			l.write()
		}
	})
}

// Reopen opens files again, for example after they were moved away. It returns at once.
func (l *Log) Reopen() { l.change(&change{settings: l.settings.Load(), reopen: true}) }

// change gives the writer a task, and returns a channel that is closed when the task is done.
func (l *Log) change(c *change) <-chan struct{} {
	c.done = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		close(c.done)
		return c.done
	}
	l.closing = c.close
	l.next = append(l.next, c)
	wake(l.urgent)
	return c.done
}

// wake ends the writer's wait for a channel.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// closeWait is how long Close waits for a stuck destination.
const closeWait = time.Second

// Close writes all events that were added, for at most a second, and ends the log. Nothing may be added afterwards.
func (l *Log) Close() error {
	l.settings.Store(nil)
	select {
	case <-l.change(&change{close: true}):
	case <-time.After(closeWait):
		c := l.Counts()
		left := l.taken.Load() - c.Lines - c.Dropped - c.Rated
		for i := range l.queues {
			left += l.queues[i].Held()
		}
		return fmt.Errorf("session log: its destination accepts no lines, and up to %d lines are lost", left)
	}
	<-l.done
	return nil
}
