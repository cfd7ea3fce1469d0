package compare

// A request is one that the client has sent, and to which both sides answer. It has four bytes.
type request struct {
	name name
	kind requestKind
	n    uint16 // messages that confirm a subscription
}

type requestKind uint8

const (
	_ requestKind = iota

	subscribe  // confirmed by pushes (resp)
	monitor    // everything after its answer is a push (resp)
	opaque     // the protocol ends with it (resp)
	head       // its answer has no body (http1)
	connect    // a tunnel begins with it (http1)
	startup    // the begin of a session (postgres)
	encryption // it is answered by one byte (postgres)
)

// asked is the requests that a side has not begun to answer.
type asked struct {
	fresh queue[request] // neither side has
	half  queue[request] // the side ahead has
	ahead int
}

// ask adds a request.
func (s *Session) ask(r request) {
	if !s.asked.fresh.push(&s.purse, r) {
		s.stop(Full)
	}
}

// peek returns the request that the side answers next.
func (s *Session) peek(side int) (r request, ok bool) {
	q := &s.asked
	switch {
	case q.half.n > 0 && side != q.ahead:
		return q.half.head(), true
	case q.fresh.n > 0:
		return q.fresh.head(), true
	}
	return request{name: unnamed}, false
}

// next returns the request that the side begins to answer. Its name is unknown if it was not
// seen.
func (s *Session) next(side int) request {
	r, ok := s.peek(side)
	q := &s.asked
	switch {
	case !ok:
	case q.half.n > 0 && side != q.ahead:
		q.half.pop(&s.purse)
	default:
		q.fresh.pop(&s.purse)
		q.ahead = side
		if !q.half.push(&s.purse, r) {
			s.stop(Full)
		}
	}
	return r
}

// forget ends the reading of requests: the names of further answers are unknown.
func (s *Session) forget() {
	if s.requests != nil {
		s.report.unnamed.Add(1)
		s.requests = nil
		s.subscribed = true // perhaps
	}
}

// pushes returns the flow of messages without a request.
func (s *Session) pushes() *flow {
	if s.push == nil {
		s.push = newFlow(s)
	}
	return s.push
}
