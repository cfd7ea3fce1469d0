package traces

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/record"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// The pauses between attempts begin with retryFirst, and double up to retryMost.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
)

// maxRequest is the size in bytes from which on a request gets no further span. Collectors take up to 4 MiB (the
// default of gRPC).
const maxRequest = 3 << 20

// A batch holds spans that are sent again until they are settled.
type batch struct {
	spans   *tracepb.ScopeSpans
	mayHave bool // the collector may have the spans: a request was sent, and had no answer
}

func (s *sender) build(to *Settings) {
	all := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: scope, Version: display.Text(to.Version)}, SchemaUrl: schema}
	n := 0
	for size := 0; n < min(len(s.list), to.Batch) && size < maxRequest; n++ {
		p, state := s.list[n], ""
		if by := s.samplers[p.Of.record.Sampler].Load(); by != nil {
			state = by.state
		}
		one := p.Of.span(state)
		all.Spans = append(all.Spans, one)
		size += proto.Size(one)
		s.queue.Free(p)
	}
	s.batch, s.list = batch{spans: all}, slices.Delete(s.list, 0, n)
}

// A sender is the goroutine of an exporter.
type sender struct {
	*Exporter
	list  []*record.Queued[span] // taken from the queue, the oldest first
	batch batch
	used  *Settings // settings of the last attempt

	stop     context.Context // ends when the time of the last flush is over
	stopNow  context.CancelFunc
	seen     Stats // as of the last report
	reported time.Time
	failed   error // last error since the last report
}

func newSender(e *Exporter) *sender {
	s := &sender{Exporter: e}
	s.stop, s.stopNow = context.WithCancel(context.Background())
	return s
}

func (s *sender) run() {
	defer close(s.done)
	defer s.stopNow()
	go s.bound()
	for s.collect() {
		s.send()
		s.report(false)
	}
	s.use(nil)
	s.report(true)
}

// bound ends attempts when the time of the last flush is over.
func (s *sender) bound() {
	select {
	case <-s.ending:
	case <-s.done:
		return
	}
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	select {
	case <-timer.C:
		s.stopNow()
	case <-s.done:
	}
}

// collect waits until there are spans to send: a whole batch, or fewer after a delay. It returns false when the
// exporter is closed and no span is left.
func (s *sender) collect() bool {
	var due <-chan time.Time
	for {
		s.pull()
		settings := s.settings.Load()
		switch {
		case s.ended():
			return len(s.list) > 0
		case len(s.list) > 0 && len(s.list) >= settings.Batch:
			return true
		case len(s.list) > 0 && due == nil:
			timer := time.NewTimer(settings.Delay)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-s.wake:
		case <-s.ending:
			s.pull()
			return len(s.list) > 0
		case <-due:
			return true
		case <-s.reportDue():
			s.report(false)
		}
	}
}

// reportDue returns a channel that receives when lost spans must be reported, or nil if no span was lost.
func (s *sender) reportDue() <-chan time.Time {
	if s.lost() == (Stats{}) {
		return nil
	}
	return time.After(time.Until(s.reported.Add(ReportEvery)))
}

func (s *sender) ended() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

func (s *sender) pull() {
	s.queue.Take(func(p *record.Queued[span]) { s.list = append(s.list, p) })
}

// send sends a batch, again and again until its spans are settled.
func (s *sender) send() {
	settings := s.settings.Load()
	s.build(settings)
	end := time.Now().Add(settings.Retry)
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		if s.stop.Err() != nil {
			s.giveUp(Shutdown)
			return
		}
		s.use(settings)
		out := settings.attempt(s.stop, s.batch.spans)
		if out.settled {
			s.settle(out)
			return
		}
		if out.mayHave {
			s.batch.mayHave = true
		}
		s.failed = out.err
		s.failure.Store(&failure{out.err, time.Now()})
		wait := max(time.Duration(float64(pause)*(0.5+rand.Float64())), out.after)
		if time.Now().Add(wait).After(end) {
			s.giveUp(Unavailable)
			return
		}
		s.report(false)
		s.pause(wait)
		settings = s.settings.Load() // new settings may cure the failure
	}
}

// use closes the connections of the previous settings.
func (s *sender) use(next *Settings) {
	if s.used != nil && s.used != next {
		s.used.Discard()
	}
	s.used = next
}

// pause waits before another attempt. Close ends the pause. A pause that begins after Close ends when the time of
// the last flush is over.
func (s *sender) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	if s.ended() {
		select {
		case <-timer.C:
		case <-s.stop.Done():
		}
		return
	}
	select {
	case <-timer.C:
	case <-s.ending: // send again at once
	}
}

// settle counts the spans of a batch that has the collector's answer.
func (s *sender) settle(out *outcome) {
	n := len(s.batch.spans.Spans)
	refused := int(min(max(out.refused, 0), int64(n)))
	if out.err != nil {
		s.failed = out.err
		s.failure.Store(&failure{out.err, time.Now()})
	}
	s.drop(Refused, refused)
	s.exported.Add(int64(n - refused))
	s.queue.Done(n)
}

// giveUp counts the spans of a batch that is not sent again.
func (s *sender) giveUp(why Drop) {
	n := len(s.batch.spans.Spans)
	if s.batch.mayHave {
		s.unconfirmed.Add(int64(n))
	} else {
		s.drop(why, n)
	}
	s.queue.Done(n)
}

// lost returns the losses since the last report.
func (s *sender) lost() Stats {
	now := s.outcomes()
	now.Exported = 0
	now.Unconfirmed -= s.seen.Unconfirmed
	for d := range now.Dropped {
		now.Dropped[d] -= s.seen.Dropped[d]
	}
	return now
}

// report reports lost spans, if a report is due.
func (s *sender) report(last bool) {
	lost := s.lost()
	if s.cfg.Report == nil || lost == (Stats{}) || !last && (s.ended() || time.Since(s.reported) < ReportEvery) {
		return
	}
	s.seen, s.reported = s.outcomes(), time.Now()
	s.cfg.Report(lost, s.failed)
	s.failed = nil
}
