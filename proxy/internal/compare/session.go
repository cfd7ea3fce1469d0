package compare

import (
	"time"
	"unsafe"
)

// A Stop is the reason why comparing ended before the session.
type Stop uint8

// The reasons.
const (
	Going    Stop = iota // comparing has not ended
	Full                 // the memory of the session, or of all sessions, is used up
	Unframed             // the primary's answers do not fit the framing
	Cost                 // comparing takes too much of the loop's time
	stops
)

var stopNames = [stops]string{"", "full", "unframed", "cost"}

// String returns the reason's name in reports.
func (s Stop) String() string { return stopNames[s] }

// A parser reads the answers of one side.
type parser interface {
	// parse takes the next bytes. An error means that they do not fit the framing.
	parse(b []byte) error
	// eof is called at the end of the stream, if nothing was cut.
	eof()
}

// A Session compares the answers of one session. Only one goroutine may use it, and none after End.
type Session struct {
	plan     *Plan
	report   *Report
	purse    purse
	reason   Stop
	now      int64
	cost     spending
	main     flow // all answers, except for gRPC
	answers  [2]parser
	requests *frames // for gRPC; nil if requests are not read
	calls    *calls  // for gRPC
	spare    []byte  // buffer for the next lead, or nil
	ended    bool
	broken   bool // the shadow's bytes do not fit the framing, which is not a difference yet
}

// sessionBytes is the memory of a session and its parsers, without answers.
const sessionBytes = int(unsafe.Sizeof(Session{})) + 3<<10

// NewSession begins to compare a session. It returns nil if the budget has no room; the report counts this.
func (p *Plan) NewSession(b *Budget, r *Report) *Session {
	s := &Session{plan: p, report: r}
	base := sessionBytes
	s.purse = purse{budget: b, most: SessionBytes}
	if p.Framing == GRPC {
		base += 3 * tableBytes
		s.purse.most += 3 * tableBytes
	}
	if !s.purse.take(base) {
		r.refused.Add(1)
		return nil
	}
	s.main.s = s
	framings[p.Framing](s)
	r.sessions.Add(1)
	return s
}

// Request takes bytes of the client, and does not keep them. The bytes of a request come before the bytes of its
// answer.
func (s *Session) Request(b []byte, now time.Time) {
	if s.requests != nil && s.reason == Going {
		s.begin(now)
		if s.pieces(b, s.requests.parse) != nil {
			s.forget()
		}
	}
}

// forget stops reading requests: the names of further answers are unknown.
func (s *Session) forget() {
	s.report.unnamed.Add(1)
	s.requests = nil
}

// RequestSkipped skips n bytes of the client that did not pass through the process. Within a message of known length
// this loses nothing. Elsewhere the names of the session's further answers become unknown.
func (s *Session) RequestSkipped(n int) {
	if s.requests != nil && s.reason == Going && n > 0 && !s.requests.skip(n) {
		s.forget()
	}
}

// Primary takes bytes of the primary's answers, and does not keep them.
func (s *Session) Primary(b []byte, now time.Time) { s.answer(primary, b, now) }

// Shadow takes bytes of the shadow's answers, and does not keep them.
func (s *Session) Shadow(b []byte, now time.Time) { s.answer(shadow, b, now) }

func (s *Session) answer(side int, b []byte, now time.Time) {
	if s.reason != Going || s.answers[side] == nil || len(b) == 0 {
		return
	}
	s.begin(now)
	if err := s.pieces(b, s.answers[side].parse); err != nil && s.reason == Going {
		s.unframed(side)
	}
}

func (s *Session) begin(now time.Time) {
	s.now = now.UnixNano()
	s.cost.begin(s.now)
}

// unframed is called at bytes that do not fit the framing. Bytes of the primary end the comparison. Bytes of the
// shadow are a difference if the primary's bytes fit.
func (s *Session) unframed(side int) {
	if side == primary {
		s.broken = false
		s.stop(Unframed)
		return
	}
	s.answers[shadow] = nil
	s.broken = true
}

// judge counts an unframed answer of the shadow, once the primary's answer has ended.
func (s *Session) judge(f *flow) {
	s.broken = false
	s.report.shadowUnframed.Add(1)
	switch {
	case f.oldest == nil:
		s.report.unknown.different.Add(1)
	case f.diff == nil:
		f.differ(f.oldest, f.behind, false)
	}
	s.stop(Unframed)
}

// Stopped returns why comparing ended before the session. After that, only End does anything.
func (s *Session) Stopped() Stop { return s.reason }

func (s *Session) stop(reason Stop) {
	if s.reason == Going {
		s.reason = reason
		s.report.stopped[reason].Add(1)
	}
}

// End settles the session, and frees its memory. complete means that both sides have ended their answers by end of
// file: if one side lacks an answer, that is a difference. Otherwise an answer that one side has not sent completely
// counts as unsettled, if it is equal so far.
func (s *Session) End(complete bool, now time.Time) {
	if s.ended {
		return
	}
	s.ended = true
	s.now = now.UnixNano()
	if s.broken {
		s.judge(&s.main)
	}
	complete = complete && s.reason == Going
	for _, a := range s.answers {
		if a != nil && complete {
			a.eof()
		}
	}
	s.main.finish(complete)
	if s.calls != nil {
		s.calls.finish(complete)
	}
	s.purse.give(s.purse.held)
}

// A sink takes the answers of one side from a parser, and passes them to a flow with masks applied. A unit is a part
// of an answer, such as a line or a message; patterns are applied to each unit by itself.
type sink struct {
	s      *Session
	f      *flow
	side   int
	open   bool   // an answer has begun
	hidden bool   // all of the answer is masked
	name   string // name of the answer
	shape  uint64 // hash of the lengths of the answer's units
	length uint64 // length of the masked unit
	window window
}

func (o *sink) begin(t *tally) {
	o.open, o.name, o.shape, o.length = true, t.text, 0, 0
	o.hidden = o.s.plan.masks.hidden(t.text)
	o.window.begin(o.s.plan.masks.pattern(t.text))
	o.f.begin(o.side, t, o.hidden)
}

func (o *sink) put(b []byte) {
	if o.window.mask != nil && !o.hidden {
		o.window.put(o, b)
		return
	}
	o.emit(b)
}

func (o *sink) emit(b []byte) {
	o.length += uint64(len(b))
	o.mark(b)
}

// mark takes structure between units. Patterns do not apply to it.
func (o *sink) mark(b []byte) {
	if o.s.reason == Going && !o.hidden && len(b) > 0 {
		o.f.data(o.side, b)
	}
}

func (o *sink) unit() {
	if !o.hidden {
		o.window.flush(o)
		o.shape = (o.shape ^ o.length) * 0x9e3779b97f4a7c15
		o.length = 0
	}
}

func (o *sink) end() {
	o.unit()
	if o.s.reason == Going {
		o.f.end(o.side, o.shape, o.s.now)
	}
	o.open = false
}
