package sessionlog

import (
	"errors"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/vecio"
)

// A writer is the goroutine that makes lines of events.
type writer struct {
	log      *Log
	settings *Settings // nil: no lines are written
	event    Event
	line     []byte
	looked   time.Time // at the destination

	tokens   float64 // of the rate
	refilled time.Time

	reported     time.Time
	saidOf       string // the error that was reported last, if no line was lost by it
	failing      bool   // nothing was written since the last error
	saidFailed   bool   // an error was reported, and not that lines are written again
	unreported   int64  // lines dropped
	err          error  // the last one, unreported
	fullReported int64  // how many of the events that loops dropped were reported
}

const (
	// gatherTime is how long events gather after a turn that had some, unless a ring gets half full:
	// one write has the lines of all, and the writer is not woken for each. A wake-up costs the
	// process some hundred microseconds, because the runtime looks for blocked threads after each
	// (runtime/proc.go, sysmon).
	gatherTime = 200 * time.Millisecond
	// lookEvery is how often the destination is looked at, while there are lines.
	lookEvery = time.Second
	// reportEvery is how often, at most, dropped lines are reported. againEvery is how often an error
	// is repeated that has cost no line yet.
	reportEvery = 10 * time.Second
	againEvery  = 10 * time.Minute
)

func (w *writer) run() {
	defer close(w.log.done)
	for {
		n := w.turn()
		closing := w.change()
		switch {
		case closing:
			return
		case n >= Slots/4:
		case n > 0:
			w.poll(gatherTime)
		default:
			w.wait()
		}
	}
}

// turn writes the lines of all present events. Without settings they wait for the next settings,
// which may be in force for the loops already.
func (w *writer) turn() (events int) {
	if w.settings == nil {
		return 0
	}
	if now := time.Now(); now.Sub(w.looked) >= lookEvery {
		w.looked = now
		w.settings.sink.look(false)
	}
	for _, r := range w.log.rings {
		r.called.Store(false)
		n, _ := r.Drain(0, w.add)
		r.drained.Add(uint64(n))
		events += n
	}
	w.flush()
	return events
}

// add makes the line of an event.
func (w *writer) add(b []byte) {
	l := w.log
	switch {
	case !w.event.read(b):
		l.dropped.Add(1)
		return
	case !w.allowed():
		l.rated.Add(1)
		w.unreported++
		return
	}
	w.line = w.settings.format(w.line[:0], &w.event, l.context)
	w.settings.sink.add(w.line, &w.event)
}

// allowed takes a token of the rate, if there is one.
func (w *writer) allowed() bool {
	rate := float64(w.settings.PerSecond)
	if rate <= 0 {
		return true
	}
	now := time.Now()
	w.tokens = min(w.tokens+now.Sub(w.refilled).Seconds()*rate, rate)
	w.refilled = now
	if w.tokens < 1 {
		return false
	}
	w.tokens--
	return true
}

// flush writes the lines of a turn, and counts.
func (w *writer) flush() {
	w.settings.sink.flush()
	w.count()
}

func (w *writer) count() {
	l := w.log
	written, dropped, err := w.settings.sink.counts()
	l.lines.Add(written)
	l.dropped.Add(dropped)
	w.unreported += dropped
	switch {
	case err != nil:
		w.err, w.failing = err, written == 0 || !w.caughtUp() // lines may have been written after the error, in the same turn
		if l.failed.Load() != nil {                           // it goes on
			l.failed.Store(&Failure{err, l.cfg.Now()})
		}
	case written > 0 && !w.astray():
		w.failing = false
		if w.unreported+l.full.Load() == w.fullReported {
			w.err = nil // nothing was lost by it
		}
	}
	w.report()
}

// tell notes the error, and calls the log's Report.
func (w *writer) tell(lost int64, err error) {
	switch {
	case err != nil:
		w.log.failed.Store(&Failure{err, w.log.cfg.Now()})
	case lost == 0:
		w.log.failed.Store(nil)
	}
	if w.log.cfg.Report != nil {
		w.log.cfg.Report(lost, err)
	}
}

// cause returns what an operator can act on: why a write has failed, without its progress.
func cause(err error) error {
	if failed, ok := errors.AsType[*vecio.WriteError](err); ok {
		err = failed.Err
	}
	if failed, ok := errors.AsType[syscall.Errno](err); ok {
		return failed
	}
	return err
}

// report reports losses and the last error, once in a while, and then that lines are written again.
func (w *writer) report() {
	w.reportLosses()
	if w.saidFailed && !w.failing {
		w.saidFailed, w.saidOf = false, ""
		w.tell(0, nil)
	}
}

func (w *writer) reportLosses() {
	full := w.log.full.Load()
	lost := w.unreported + full - w.fullReported
	since := time.Since(w.reported)
	switch {
	case lost == 0 && w.err == nil, since < reportEvery:
		return
	case lost == 0 && w.err.Error() == w.saidOf && since < againEvery:
		w.err = nil
		return
	}
	w.reported, w.fullReported, w.saidOf = time.Now(), full, ""
	if lost == 0 {
		w.saidOf = w.err.Error()
	}
	if w.err != nil {
		w.saidFailed = true
	}
	w.tell(lost, w.err)
	w.unreported, w.err = 0, nil
}

// change performs the tasks that others have given, and reports whether the log is to end.
func (w *writer) change() (closing bool) {
	l := w.log
	l.mu.Lock()
	next := l.next
	l.next = nil
	l.mu.Unlock()
	for _, c := range next {
		w.turn() // with the settings before
		switch {
		case c.reopen && w.settings != nil:
			w.settings.sink.look(true)
		case !c.reopen:
			w.use(c.settings)
		}
		if c.close {
			w.drop()
			w.report() // there is no later report
			closing = true
		}
		close(c.done)
	}
	return closing
}

// drop counts events that are not going to be written.
func (w *writer) drop() {
	for _, r := range w.log.rings {
		n, _ := r.Drain(0, func([]byte) {})
		w.log.dropped.Add(int64(n))
		w.unreported += int64(n)
	}
}

// use brings settings into force. What is to be reported of the destination before is reported now, and the errors of the
// new one are news.
func (w *writer) use(s *Settings) {
	w.reported = time.Time{}
	if w.settings != nil {
		w.settings.sink.close()
		w.count()
	}
	w.reported, w.saidOf = time.Time{}, ""
	w.log.failed.Store(nil)
	w.settings = s
	if s == nil {
		return
	}
	switch sink := s.sink.(type) {
	case *syslog:
		sink.context = w.log.context
	case *journal:
		sink.context = w.log.context
	}
	w.tokens, w.refilled = float64(s.PerSecond), time.Now()
	w.count() // no line may come for long
}

// wait waits for events, or for a change. While lines are pending, or something is to be
// reported, it does not wait for ever.
func (w *writer) wait() {
	l := w.log
	limit, sleeping := time.Duration(-1), true
	if w.unreported > 0 || w.err != nil || w.pending() || w.astray() {
		limit = lookEvery
	}
	if w.settings != nil {
		for _, r := range l.rings {
			sleeping = r.Sleep() && sleeping
		}
	}
	if !sleeping {
		limit = 0
	}
	w.poll(limit)
	for _, r := range l.rings {
		r.Awake(false) // watched by edges, so it need not be read
	}
}

// poll waits for a change, for an event of a ring that is asleep, or for a time unless that is negative. No
// timer of the runtime's is needed, which would cost more than the wait.
func (w *writer) poll(limit time.Duration) {
	msec := -1
	if limit >= 0 {
		msec = int(limit.Milliseconds())
	}
	var events [4]sys.EpollEvent
	_, _ = sys.EpollWait(w.log.epoll, events[:], msec)
}

// pending reports whether lines wait for the next try to write them.
func (w *writer) pending() bool {
	if w.settings == nil {
		return false
	}
	s, ok := w.settings.sink.(*stream)
	return ok && len(s.ends) > 0
}

// astray reports whether the sink is a file that could not be opened again.
func (w *writer) astray() bool {
	if w.settings == nil {
		return false
	}
	s, ok := w.settings.sink.(*stream)
	return ok && s.astray != nil
}

// caughtUp reports whether the sink is a stream that has written all that it was given.
func (w *writer) caughtUp() bool {
	s, ok := w.settings.sink.(*stream)
	return ok && len(s.ends) == 0 && s.astray == nil
}
