package compare

import (
	"fmt"
	"time"
	"unsafe"
)

// A Stop is the reason that comparing a session has ended before the session.
type Stop uint8

// The reasons.
const (
	Going     Stop = iota // it has not ended
	Full                  // the memory of the session is used up, or that of all sessions
	Unframed              // the primary's answers, or the client's requests, are not of the framing
	Encrypted             // the rest of the session is encrypted
	Unknown               // requests were not seen without which the answers have no clear end
	Opaque                // the protocol was left, as by a replica's SYNC
	Cost                  // comparing takes too much of the loop's time
	stops
)

var stopNames = [stops]string{"", "full", "unframed", "encrypted", "unknown", "opaque", "cost"}

// String returns the reason's name in reports.
func (s Stop) String() string { return stopNames[s] }

// An answerParser reads the answers of one side.
type answerParser interface {
	// parse takes the next bytes. An error means that they are not of the framing.
	parse(b []byte) error
	// eof is the end of the stream, if nothing was cut.
	eof()
}

// A requestParser reads the requests of the client.
type requestParser interface {
	// parse takes the next bytes. After bytes that are not of the framing it knows no names.
	parse(b []byte)
	// skip skips n bytes. It returns false if those were not within a body of known length.
	skip(n int) bool
}

// A Session compares the answers of one session. It is for one goroutine, and is not used
// after End.
type Session struct {
	plan       *Plan
	report     *Report
	purse      purse
	base       int // bytes held from begin to end
	reason     Stop
	now        int64
	cost       spending
	main       flow
	push       *flow // messages without a request; nil until there is one
	requests   requestParser
	asked      asked
	subscribed bool // a subscription was asked for, or may have been (resp)
	answers    [2]answerParser
	streams    *streams // those of HTTP/2; nil for other framings
	scratch    []byte   // for a field of a head (http2)
	tunnel     bool     // the primary has left the protocol (http1)
	ended      bool
	broken     bool // the shadow's bytes are not of the framing, and that is no difference yet
}

// sessionBytes is the memory of a session with its parsers, before there are answers.
const sessionBytes = int(unsafe.Sizeof(Session{})) + 3<<10

// NewSession begins to compare a session. It returns nil if the budget has no room, which the
// report counts.
func (p *Plan) NewSession(b *Budget, r *Report) *Session {
	s := &Session{plan: p, report: r, base: sessionBytes}
	s.purse.budget = b
	if !s.purse.take(s.base) {
		r.refused.Add(1)
		return nil
	}
	s.main.init(s)
	framings[p.framing](s)
	r.sessions.Add(1)
	return s
}

// Request takes bytes of the client, which are not kept. Those of a request come before those of its answer.
func (s *Session) Request(b []byte, now time.Time) {
	if s.requests != nil && s.reason == Going {
		s.begin(now)
		_ = s.pieces(b, func(b []byte) error {
			if s.requests != nil {
				s.requests.parse(b)
			}
			return nil
		})
	}
}

// RequestSkipped skips n bytes of the client that did not come into the process. Within a body
// of known length that loses nothing. Elsewhere the names of the session's further answers are unknown.
func (s *Session) RequestSkipped(n int) {
	if s.requests != nil && s.reason == Going && n > 0 && !s.requests.skip(n) {
		s.forget()
	}
}

// Primary takes bytes of the primary's answers, which are not kept.
func (s *Session) Primary(b []byte, now time.Time) { s.answer(primary, b, now) }

// Shadow takes bytes of the shadow's answers, which are not kept.
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

// unframed is the begin of bytes that are not of the framing. Those of the primary end the comparison.
// Those of the shadow are a difference, unless the primary's are alike.
func (s *Session) unframed(side int) {
	if side == primary {
		s.broken = false
		s.stop(Unframed)
		return
	}
	s.answers[shadow] = nil
	s.broken = true
	if f := &s.main; f.answers.n > 0 && f.ahead == primary && f.answers.oldest.done {
		s.judge(f)
	}
}

// judge counts that the shadow's answer, to which the primary has an end, is not of the framing.
func (s *Session) judge(f *flow) {
	s.broken = false
	s.report.shadowUnframed.Add(1)
	n := unnamed
	if f.answers.n > 0 {
		n = f.answers.oldest.name
		f.judged = true
	}
	if f.diff == nil {
		s.report.tally[n].Load().different.Add(1)
	}
	s.stop(Unframed)
}

// Full reports whether comparing has ended before the session, as its memory is used up or for
// another reason, which Stopped returns. Calls other than End do nothing then.
func (s *Session) Full() bool { return s.reason != Going }

// Stopped returns the reason that comparing has ended before the session.
func (s *Session) Stopped() Stop { return s.reason }

// stop ends comparing.
func (s *Session) stop(reason Stop) {
	if s.reason == Going {
		s.reason = reason
		s.report.stopped[reason].Add(1)
	}
}

// End settles the session, and gives its memory back. The session is complete if both sides
// have ended their answers by an end of file: then an answer that one side lacks is a difference. Otherwise
// answers of which one side has not sent all are counted as unsettled, if they are equal so far.
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
	if s.push != nil {
		s.push.finish(complete)
	}
	if s.streams != nil {
		s.streams.finish(complete)
	}
	s.purse.give(s.purse.held)
}

// unexpected is an error of a parser.
func unexpected(format string, args ...any) error { return fmt.Errorf(format, args...) }
