// Package traces exports sampled sessions as spans of OpenTelemetry over OTLP, one span for each session.
//
// A session is sampled when its client is accepted. Its ID alone decides, so other programs that sample by the
// same ID agree. When the session ends, its record is copied to a list of limited length, without a lock and
// without waiting. A goroutine sends the spans in batches. Each sampled session is counted exactly once in the
// end, see [Stats].
package traces

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// A Drop is the reason why a span was not delivered.
type Drop uint8

const (
	// QueueFull means that the queue was full.
	QueueFull Drop = iota
	// Refused means that the collector has refused the span for good.
	Refused
	// Unavailable means that the time for attempts was over: the collector was not reached, or asked for another
	// attempt.
	Unavailable
	// Shutdown means that the process ended before the span could be sent.
	Shutdown
	drops
)

var dropNames = [drops]string{"queue_full", "refused", "unavailable", "shutdown"}

// String returns the name of the reason in a status.
func (d Drop) String() string { return dropNames[d] }

// Stats count sampled sessions. Once the exporter is closed and every session has ended, Sampled = Exported +
// Unconfirmed + the sum of Dropped. Before that, the sum also needs Open and Queued.
type Stats struct {
	Sampled  int64 // all sampled sessions so far
	Open     int64 // sessions that have not ended
	Queued   int64 // ended sessions with a span that waits or is being sent
	Exported int64 // spans that the collector has confirmed
	// Unconfirmed counts spans that were sent, but had no answer within the time for attempts. The collector may
	// have them.
	Unconfirmed int64
	Dropped     [drops]int64 // spans that the collector does not have, by Drop
	// LastError is the last failure of an attempt to send, at the time LastErrorAt; nil: there was none.
	LastError   error
	LastErrorAt time.Time
}

// DroppedBy returns the numbers of dropped spans by reason. Reasons that did not occur are left out.
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
	// Report is called by the exporter's goroutine if spans were lost: at most once every [ReportEvery], and at
	// the end. lost has the numbers since the last call, and err is the last error of an attempt since then, or
	// nil. Report may be nil.
	Report func(lost Stats, err error)
}

// ReportEvery is the shortest time between two reports.
const ReportEvery = 30 * time.Second

// An Exporter is safe for concurrent use. Make it with [New]; it exports nothing until Set.
type Exporter struct {
	cfg      Config
	wall     *record.Wall
	settings atomic.Pointer[Settings] // nil: none yet
	sampler  atomic.Pointer[sampler]  // nil: nothing is sampled
	samplers [256]atomic.Pointer[sampler]

	number uint8 // number of the last sampler; only Set uses it

	queue  record.Queue[span] // a span holds its place until its outcome is known
	wake   chan struct{}      // wakes the sender
	ending chan struct{}      // closed by Close
	limit  time.Duration      // time for the last flush; set before ending is closed
	done   chan struct{}      // closed when the sender has ended
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
	record record.Record // its Err is nil
	cause  string        // text of the record's Err
	wall   int64         // Unix time at which the record's clock was 0, in nanoseconds
}

// New returns an exporter, and starts its goroutine. The caller calls Close in the end.
func New(cfg *Config) *Exporter {
	e := &Exporter{cfg: *cfg, wall: record.NewWall(cfg.Now, time.Now), wake: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan struct{})}
	go newSender(e).run()
	return e
}

// Set puts settings into force, and takes ownership of them. Only one goroutine may call it at a time. Spans that
// already wait are sent by the new settings, too. If s is nil, no further session is sampled, and the earlier
// settings still export the spans of earlier sessions.
func (e *Exporter) Set(s *Settings) {
	if s == nil {
		e.sampler.Store(nil)
		return
	}
	e.settings.Store(s)
	e.failure.Store(nil) // it may be the failure of another collector
	e.sampleBy(s.Ratio)
	e.awake()
}

// sampleBy samples sessions by a ratio. A session keeps the number of its sampler. The number is valid until the
// ratio has changed 255 times.
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

// Sample decides whether a session is sampled, and counts it if so. It then returns the session's
// [record.Record.Sampler], and the caller must call Add once when the session ends. It returns 0 if the session is
// not sampled.
func (e *Exporter) Sample(id record.ID) uint8 {
	s := e.sampler.Load()
	if s == nil || !s.samples(id) {
		return 0
	}
	e.sampled.Add(1)
	return s.number
}

// Add takes the record of a sampled session when the session ends. It copies the record, and does not wait.
func (e *Exporter) Add(r *record.Record) {
	settings := e.settings.Load()
	place, held := e.queue.Place(int64(settings.Queue))
	if place == nil {
		e.drop(QueueFull, 1)
		return
	}
	s := &place.Of
	s.record, s.cause, s.wall = *r, "", e.wall.Of(0).UnixNano()
	s.record.Err = nil
	if r.Err != nil {
		s.cause = record.Bounded(r.Err.Error(), maxCause)
	}
	if e.queue.Add(place) || held >= int64(settings.Batch) {
		e.awake()
	}
}

// drop counts n spans that were not delivered.
func (e *Exporter) drop(d Drop, n int) { e.dropped[d].Add(int64(n)) }

// Stats returns the counters. It reads them one by one while sessions go on.
func (e *Exporter) Stats() Stats {
	s := e.outcomes()
	s.Queued = e.queue.Held()
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

// Close sends the waiting spans, for at most [Settings.Flush], and drops the rest. Add must not be called any
// more.
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
