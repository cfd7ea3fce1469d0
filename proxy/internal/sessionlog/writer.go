package sessionlog

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/vecio"
)

// A writer is the goroutine that turns events into lines.
type writer struct {
	log      *Log
	former   atomic.Bool // this writer hung, and another one has its tasks: it closes its destination, and ends; set with the log's lock
	settings *Settings   // nil if no lines are written
	context  *context
	taken    []*record.Queued[Event]
	line     []byte
	looked   time.Time // when it last looked at the destination

	tokens   float64 // of the rate limit
	refilled time.Time

	reported   time.Time
	saidOf     string // the last reported error, if it has cost no line
	failing    bool   // no line was written since the last error
	saidFailed bool   // an error was reported, but not its end
	err        error  // the last unreported error
}

const (
	// gatherTime is how long events gather after a turn that had some, unless a queue gets half full:
	// one write has the lines of all, and the writer is not woken for each.
	gatherTime = 200 * time.Millisecond
	// lookEvery is how often the writer looks at the destination while there are lines.
	lookEvery = time.Second
	// reportEvery is the shortest time between two reports of dropped lines. An error that has cost no line yet is
	// reported again every againEvery.
	reportEvery = 10 * time.Second
	againEvery  = 10 * time.Minute
)

func (w *writer) run() {
	for {
		n := w.turn()
		changed, closing := w.change()
		switch {
		case w.former.Load():
			w.leave()
			return
		case closing:
			close(w.log.done)
			return
		case changed, n >= Slots/4:
		case n > 0:
			w.wait(nil, gatherTime)
		case w.log.untold() > 0 || w.err != nil || w.pending() || w.astray():
			w.wait(w.log.some, lookEvery)
		default:
			w.wait(w.log.some, 0)
		}
	}
}

// wait waits for something urgent, for some events unless some is nil, or for a time unless that is 0.
func (w *writer) wait(some <-chan struct{}, limit time.Duration) {
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	select {
	case <-w.log.urgent:
	case <-some:
	case <-over:
	}
}

// turn writes the lines of all present events. Without settings the events wait for the next settings, which the loops
// may already use.
func (w *writer) turn() (events int) {
	if w.settings == nil {
		return 0
	}
	if now := time.Now(); now.Sub(w.looked) >= lookEvery {
		w.looked = now
		w.settings.sink.look(false)
	}
	for i := range w.log.queues {
		if w.former.Load() {
			break
		}
		q := &w.log.queues[i]
		q.called.Store(false)
		n := q.Take(func(p *record.Queued[Event]) { w.taken = append(w.taken, p) })
		w.log.taken.Add(int64(n))
		q.Done(n) // now: the destination may hang
		for i, p := range w.taken {
			w.add(&p.Of)
			q.Free(p)
			w.taken[i] = nil
		}
		w.taken, events = w.taken[:0], events+n
	}
	w.flush()
	return events
}

func (w *writer) add(e *Event) {
	if !w.allowed() {
		w.log.rated.Add(1)
		return
	}
	e.bound()
	if w.log.waits.Load() == 0 && !w.former.Load() {
		w.log.waits.Store(w.log.cfg.Now())
	}
	w.line = w.settings.format(w.line[:0], e, w.context)
	w.settings.sink.add(w.line, e)
}

// allowed takes a token of the rate limit, if there is a limit. It returns false without a token.
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

// flush writes the lines of a turn, and counts them.
func (w *writer) flush() {
	w.settings.sink.flush()
	w.count()
}

func (w *writer) count() {
	l := w.log
	written, dropped, err := w.settings.sink.counts()
	l.lines.Add(written)
	l.dropped.Add(dropped)
	if w.former.Load() {
		return
	}
	switch {
	case !w.pending():
		l.waits.Store(0)
	case written > 0:
		l.waits.Store(l.cfg.Now())
	}
	switch {
	case err != nil:
		w.err, w.failing = err, written == 0 || !w.caughtUp() // lines of the same turn may have been written after the error
		if l.failed.Load() != nil {                           // it goes on
			l.failed.Store(&Failure{err, l.cfg.Now()})
		}
	case written > 0 && !w.astray():
		w.failing = false
		if l.untold() == 0 {
			w.err = nil // it has cost no line
		}
	}
	w.report()
}

// tell notes an error, and calls Report.
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

// cause returns the reason of a failed write, on which an operator can act, without the writer's progress.
func cause(err error) error {
	if failed, ok := errors.AsType[*vecio.WriteError](err); ok {
		err = failed.Err
	}
	if failed, ok := errors.AsType[syscall.Errno](err); ok {
		return failed
	}
	return err
}

// report reports losses and the last error from time to time, and then that lines are written again.
func (w *writer) report() {
	w.reportLosses()
	if w.saidFailed && !w.failing {
		w.saidFailed, w.saidOf = false, ""
		w.tell(0, nil)
	}
}

func (w *writer) reportLosses() {
	lost, since := w.log.untold(), time.Since(w.reported)
	switch {
	case lost == 0 && w.err == nil, since < reportEvery:
		return
	case lost == 0 && w.err.Error() == w.saidOf && since < againEvery:
		w.err = nil
		return
	}
	w.reported, w.saidOf = time.Now(), ""
	w.log.told.Add(lost)
	if lost == 0 {
		w.saidOf = w.err.Error()
	}
	if w.err != nil {
		w.saidFailed = true
	}
	w.tell(lost, w.err)
	w.err = nil
}

// change performs the tasks that others have given, and reports whether there were any, and whether the log is to end.
// A task that hangs is performed by the next writer.
func (w *writer) change() (changed, closing bool) {
	for c := w.task(); c != nil; c = w.task() {
		w.turn() // with the old settings
		switch {
		case c.reopen && w.settings != nil:
			w.settings.sink.look(true)
		case !c.reopen:
			w.leave()
		}
		if !w.take() {
			break
		}
		if !c.reopen {
			w.use(c.settings)
		}
		if changed = true; c.close {
			w.drop()
			w.report() // for the last time
			closing = true
		}
		close(c.done)
	}
	return changed, closing
}

// task returns the next task, or nil if there is none for this writer.
func (w *writer) task() *change {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if w.former.Load() || len(w.log.next) == 0 {
		return nil
	}
	return w.log.next[0]
}

// take takes the next task out of the list, unless another writer has the list.
func (w *writer) take() bool {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if w.former.Load() {
		return false
	}
	w.log.next = w.log.next[1:]
	return true
}

// drop counts the events that will not be written.
func (w *writer) drop() {
	for i := range w.log.queues {
		n := w.log.queues[i].Take(func(*record.Queued[Event]) {})
		w.log.taken.Add(int64(n))
		w.log.dropped.Add(int64(n))
	}
}

// leave closes the destination. Everything about it is reported now.
func (w *writer) leave() {
	w.reported = time.Time{}
	if w.settings != nil {
		w.settings.sink.close()
		w.count()
	}
	w.settings = nil
}

// use puts settings into force. The first error of their destination is reported at once.
func (w *writer) use(s *Settings) {
	w.reported, w.saidOf = time.Time{}, ""
	w.log.failed.Store(nil)
	w.log.waits.Store(0)
	w.settings = s
	if s == nil {
		return
	}
	switch sink := s.sink.(type) {
	case *syslog:
		sink.context = w.context
	case *journal:
		sink.context = w.context
	}
	w.tokens, w.refilled = float64(s.PerSecond), time.Now()
	w.count() // the next line may be long in coming
}

// pending reports whether lines wait to be written again.
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

// caughtUp reports whether the sink is a stream that has written all its lines.
func (w *writer) caughtUp() bool {
	s, ok := w.settings.sink.(*stream)
	return ok && len(s.ends) == 0 && s.astray == nil
}
