package relay

import "time"

// A Leg is the kernel's account of one of the two connections of a session, since it was made.
type Leg struct {
	// Known says that the kernel was asked and has answered. Else all that follows is zero, and means nothing.
	Known bool
	// Busy is the time in which bytes for the peer were outstanding, sent or not; PeerWindow and SendBuffer are
	// the parts of it in which the peer's window, or the size of our send buffer, kept back the next.
	Busy, PeerWindow, SendBuffer time.Duration
	// RTT is the smoothed round-trip time, with the peer's delay of its acknowledgments, and MinRTT the least
	// of the last minutes. ReceiverRTT is the estimate from bytes that come in, with the pauses of their
	// sender. 0: there was none.
	RTT, MinRTT, ReceiverRTT time.Duration
	// DeliveryRate is that at which the peer last acknowledged, in bytes a second; AppLimited says that there
	// was too little to be sent to find out more. 0: unknown.
	DeliveryRate int64
	AppLimited   bool
	// Sent is the payload bytes that were sent, retransmissions included, and Received those that came.
	Sent, Received int64
	// NotSent is the bytes that wait in the send queue, and have never been sent.
	NotSent int64
	// SegmentsSent and SegmentsReceived are segments with payload; Retransmitted were sent again, and OutOfOrder
	// came behind one that was missing.
	SegmentsSent, SegmentsReceived, Retransmitted, OutOfOrder int64
	// Unanswered is how long nothing was acknowledged, if bytes that were sent again after a timeout are not
	// acknowledged yet; else 0. It counts from the last acknowledgment, which may be older than those bytes.
	Unanswered time.Duration
	// Gap says that a packet is missing now: others that came after it are kept, and none can be read.
	Gap bool
}

// Legs are those of a session.
type Legs struct{ A, B Leg }

// Legs returns the accounts of both connections now, by a system call for each. Between Start and the end of the
// session it may be called on the loop's goroutine; else both are unknown, as those of sockets other than TCP are.
func (s *Driven) Legs() (l Legs) {
	if s.drv == nil || s.is(over|carried) {
		return l
	}
	return Legs{s.a.inspect(), s.b.inspect()}
}

// legsAtEnd is Legs at the end, if they are wanted.
func (s *Driven) legsAtEnd() *Legs {
	if after := s.drv.relay.cfg.LegsAfter; after <= 0 || s.drv.loop.Now()-s.started < int64(after) {
		return nil
	}
	l := s.Legs()
	return &l
}

// Legs returns the accounts of both connections now: of the TCP connections beneath, if they can be found. Others
// are unknown, as both are before Run and after the end. It may be called at any time by any goroutine.
func (s *Session) Legs() (l Legs) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled || s.started.Load() == 0 {
		return l
	}
	return Legs{inspect(s.a.conn), inspect(s.b.conn)}
}

// inspect keeps the legs at the end, if they are wanted.
func (s *Session) inspect() {
	after := s.r.cfg.LegsAfter
	if after <= 0 || s.r.clock.now()-s.started.Load() < int64(after) {
		return
	}
	s.legs = &Legs{inspect(s.a.conn), inspect(s.b.conn)}
}
