// Package traces exports sampled sessions as spans of OpenTelemetry, one for each, over OTLP.
//
// A session is sampled when its client is accepted, by its ID alone, so other programs that sample
// by the same ID agree. At its end its record is copied to a list of bounded length, without a lock
// and without waiting, and a goroutine sends the spans in batches. Each sampled session is counted
// once in the end: see [Stats].
package traces

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// A Drop is why a span was not delivered.
type Drop uint8

const (
	// QueueFull: the queue is full.
	QueueFull Drop = iota
	// Refused: the collector has refused it for good.
	Refused
	// Unavailable: the collector was not reached, or asked for another attempt, until the time
	// for attempts was over.
	Unavailable
	// Shutdown: the process has ended before it could be sent.
	Shutdown
	drops
)

var dropNames = [drops]string{"queue_full", "refused", "unavailable", "shutdown"}

// String is its name in a status.
func (d Drop) String() string { return dropNames[d] }

// Stats count sampled sessions. Once the exporter is closed and every session has ended,
// Sampled = Exported + Unconfirmed + the sum of Dropped. Before that, Open and Queued are the
// others.
type Stats struct {
	Sampled  int64 // ever
	Open     int64 // that go on
	Queued   int64 // that have ended, and wait to be sent or are being sent
	Exported int64 // that the collector has confirmed
	// Unconfirmed spans were sent, but no answer came within the time for attempts: the collector may
	// have them.
	Unconfirmed int64
	Dropped     [drops]int64 // that the collector does not have, by Drop
	// LastError is the last failure of an attempt to send, at LastErrorAt; nil: there was none.
	LastError   error
	LastErrorAt time.Time
}

// DroppedBy returns the numbers of dropped spans by reason; only reasons that occurred.
func (s *Stats) DroppedBy() map[string]int64 {
	by := make(map[string]int64)
	for d, n := range s.Dropped {
		if n > 0 {
			by[Drop(d).String()] = n
		}
	}
	return by
}

// A Config has the settings that do not change while an [Exporter] runs.
type Config struct {
	// Now is the clock of records, in nanoseconds.
	Now func() int64
	// Report is called by the exporter's goroutine when spans were lost, at most every
	// [ReportEvery], and in the end: with the numbers since the last call, and the last error
	// of an attempt, nil if there was none since. Nil: nothing is reported.
	Report func(lost Stats, err error)
}

// ReportEvery is the least time between two reports.
const ReportEvery = 30 * time.Second

// An Exporter is safe for concurrent use. Make it with [New]; it exports nothing until Set.
type Exporter struct {
	cfg      Config
	settings atomic.Pointer[Settings] // nil: none yet
	sampler  atomic.Pointer[sampler]  // nil: nothing is sampled
	samplers [256]atomic.Pointer[sampler]

	number uint8 // of the last sampler; Set's

	added  atomic.Pointer[span] // the span that was added last: the head of a list
	held   atomic.Int64         // spans that are in the list or in the sender's hands
	wake   chan struct{}        // there is something to look at
	spans  sync.Pool            // of *span
	ending chan struct{}        // closed by Close
	limit  time.Duration        // of the last flush; set before ending is closed
	done   chan struct{}        // closed when the sender has ended
	once   sync.Once

	sampled, exported, unconfirmed atomic.Int64
	dropped                        [drops]atomic.Int64
	failure                        atomic.Pointer[failure]
}

// A failure is the failure of an attempt.
type failure struct {
	err error
	at  time.Time
}

// A span is a session that has ended, on its way to the collector.
type span struct {
	next   *span
	record record.Record // without Err
	cause  string        // Err
	wall   int64         // Unix time of the record's clock 0, in nanoseconds
}

// New returns an exporter, with a goroutine. The caller calls Close in the end.
func New(cfg *Config) *Exporter {
	e := &Exporter{cfg: *cfg, wake: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan struct{})}
	e.spans.New = func() any { return new(span) }
	go newSender(e).run()
	return e
}

// Set brings settings into force, which the exporter owns from then on. It is not called by
// several goroutines at a time. Spans that wait already
// are sent by them, too. With nil no further session is sampled; spans of earlier sessions are
// still exported by the earlier settings.
func (e *Exporter) Set(s *Settings) {
	if s == nil {
		e.sampler.Store(nil)
		return
	}
	e.settings.Store(s)
	e.failure.Store(nil) // which may be the failure of another collector
	e.sampleBy(s.Ratio)
	e.awake()
}

// sampleBy samples sessions by a ratio. Each sampler has a number by which a session knows its own,
// until the ratio has changed 255 times.
func (e *Exporter) sampleBy(ratio float64) {
	next := newSampler(ratio)
	if last := e.samplers[e.number].Load(); next != nil && last != nil && last.threshold == next.threshold {
		next = last
	} else if next != nil {
		e.number = max(e.number+1, 1)
		next.number = e.number
		e.samplers[next.number].Store(next)
	}
	e.sampler.Store(next)
}

func (e *Exporter) awake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Sample decides whether a session is sampled, and counts it if so: then Add must be called
// once, at its end. It returns the session's [record.Record.Sampler]; 0: it is not sampled.
func (e *Exporter) Sample(id record.ID) uint8 {
	s := e.sampler.Load()
	if s == nil || !s.samples(id) {
		return 0
	}
	e.sampled.Add(1)
	return s.number
}

// Add takes the record of a session that was sampled, at its end. It copies the record, and
// waits for nothing.
func (e *Exporter) Add(r *record.Record) {
	settings := e.settings.Load()
	held := e.held.Add(1)
	if held > int64(settings.Queue) {
		e.held.Add(-1)
		e.dropped[QueueFull].Add(1)
		return
	}
	s := e.spans.Get().(*span)
	s.record, s.cause, s.wall = *r, "", time.Now().UnixNano()-e.cfg.Now()
	s.record.Err = nil
	if r.Err != nil {
		s.cause = record.Bounded(r.Err.Error(), maxCause)
	}
	before := e.added.Load()
	for s.next = before; !e.added.CompareAndSwap(before, s); s.next = before {
		before = e.added.Load()
	}
	if before == nil || held >= int64(settings.Batch) { // s is the sender's by now
		e.awake()
	}
}

// take returns all spans that were added, the first one first.
func (e *Exporter) take() (first *span) {
	for s := e.added.Swap(nil); s != nil; {
		next := s.next
		s.next, first, s = first, s, next
	}
	return first
}

// give takes the memory of a span back.
func (e *Exporter) give(s *span) {
	*s = span{}
	e.spans.Put(s)
}

// drop counts n spans that were not delivered.
func (e *Exporter) drop(d Drop, n int) { e.dropped[d].Add(int64(n)) }

// Stats returns the counters. They are read one after the other, while sessions go on.
func (e *Exporter) Stats() Stats {
	s := e.outcomes()
	s.Queued = e.held.Load()
	s.Sampled = e.sampled.Load()
	s.Open = s.Sampled - s.Queued - s.Exported - s.Unconfirmed
	for _, n := range s.Dropped {
		s.Open -= n
	}
	s.Open = max(s.Open, 0)
	if f := e.failure.Load(); f != nil {
		s.LastError, s.LastErrorAt = f.err, f.at
	}
	return s
}

// outcomes returns the counters of spans that have an outcome.
func (e *Exporter) outcomes() (s Stats) {
	s.Exported, s.Unconfirmed = e.exported.Load(), e.unconfirmed.Load()
	for d := range s.Dropped {
		s.Dropped[d] = e.dropped[d].Load()
	}
	return s
}

// Close sends the spans that wait, for at most the time in the settings, and drops the rest. No
// session is added any more.
func (e *Exporter) Close() {
	e.once.Do(func() {
		e.sampler.Store(nil)
		if s := e.settings.Load(); s != nil {
			e.limit = s.Flush
		}
		close(e.ending)
	})
	<-e.done
}
