package relay

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// Result is the result of a session, per direction, and the reason of its end.
type Result struct {
	AToB, BToA Flow
	// Reason is ReasonNone before the session runs and while it does.
	Reason Reason
	// Culprit is the side that sent a reset, or whose read or write failed, if this ended the session.
	Culprit Side
	// First is the side whose end of file was passed on first; SideNone before. If both come at once it may be
	// either.
	First Side
	// Duration is the time since Run was called; it stands still after the end.
	Duration time.Duration
	// Waits is how the session spent that time.
	Waits Waits
	// Legs are the accounts of both connections at the end, with [Config.LegsAfter]; otherwise nil.
	Legs *Legs
}

// A Side is one of the two sides of a session: [SideA], [SideB], or [SideNone].
type Side uint8

const (
	// SideNone is neither.
	SideNone Side = iota
	// SideA is the first side, usually the client.
	SideA
	// SideB is the second side, usually the endpoint.
	SideB
)

// String returns "none", "a" or "b".
func (s Side) String() string {
	if int(s) < len(sideNames) {
		return sideNames[s]
	}
	return fmt.Sprintf("side(%d)", uint8(s))
}

var sideNames = [...]string{SideNone: "none", SideA: "a", SideB: "b"}

// culprit returns the side at which a direction of a session failed.
func culprit(ab, ba *direction) Side {
	switch {
	case ab.failedAt(sideSource) || ba.failedAt(sideSink):
		return SideA
	case ab.failedAt(sideSink) || ba.failedAt(sideSource):
		return SideB
	}
	return SideNone
}

// Flow is what one direction has moved, and why it ended.
type Flow struct {
	// Spliced and Copied are the bytes that the destination's socket (or file) took. Spliced bytes never
	// entered this process (splice, sendfile, copy_file_range); Copied bytes went through a buffer.
	Spliced, Copied int64
	// Carried are the bytes that a driver.Carrier has delivered.
	Carried int64
	// Lost is how many bytes came from the source and did not reach the destination. If the session did not end
	// by end of file, these are the bytes that the session held and those in the source's receive queue; a
	// datagram that was too long, and what waits behind it, is not counted. If the destination is reset or does
	// not answer, unacknowledged bytes (SIOCOUTQ, tcp(7)) are in Lost and in Bytes; it may have taken the last
	// of them. If the destination itself resets the connection, bytes
	// that were never sent are lost; unacknowledged ones only if it had half-closed before. A direction that
	// rewrites loses at most as many bytes as it has read.
	Lost int64
	// Reason is why the direction ended: ReasonNone while it has not ended, ReasonEOF if the source's end of
	// file was seen and passed on, otherwise the direction's own failure or the reason of the cut. With
	// [Config.CloseOnEOF] the direction that had not ended has ReasonCanceled, although the session's reason is
	// ReasonEOF. Bytes still on their way here are not in Lost.
	Reason Reason
	// Fallbacks counts by reason how often the direction left the path it would have taken.
	Fallbacks Fallbacks
}

// Bytes returns Spliced + Copied + Carried.
func (f Flow) Bytes() int64 { return f.Spliced + f.Copied + f.Carried }

// A Fallback is a reason why a direction left the path it would have taken. Its words are wrapped, unsupported,
// refused, budget, descriptors, closed, urgent, half-close, compare and rewrite.
type Fallback uint8

const (
	// FallbackWrapped: an end is neither *net.TCPConn, stream *net.UnixConn nor
	// *os.File on the runtime's poller, so it is moved by its own Read and Write.
	FallbackWrapped Fallback = iota
	// FallbackUnsupported: this system has no splice at all (not Linux, or a
	// sandbox that refuses pipes).
	FallbackUnsupported
	// FallbackRefused: the kernel or a sandbox refused to splice these two descriptors
	// (EINVAL, ENOSYS, EPERM, EOPNOTSUPP, EXDEV, EBADF); the direction copies from then
	// on.
	FallbackRefused
	// FallbackBudget: no pipe was available under the budget; counted once for each series of copied reads.
	FallbackBudget
	// FallbackDescriptors: no pipe was available under RLIMIT_NOFILE or the system's
	// limit; counted like FallbackBudget.
	FallbackDescriptors
	// FallbackClosed: the relay or its pool of pipes was closed while the direction went on.
	FallbackClosed
	// FallbackUrgent: TCP urgent data kept splice from moving queued bytes, so recv and send moved them.
	FallbackUrgent
	// FallbackHalfClose: the destination has no CloseWrite, so the end of file is passed on only when the
	// session ends: with the other direction, or when no byte has moved for Config.HalfCloseTimeout, or five
	// seconds if that is 0.
	FallbackHalfClose
	// FallbackCompare: a mirror's observer sees the answers, so they are copied until it wants no further calls
	// ([Mirror.Observe]).
	FallbackCompare
	// FallbackRewrite: a driver.Transform changes the direction's bytes.
	FallbackRewrite

	numFallbacks = iota
)

var fallbackNames = [numFallbacks]string{
	FallbackWrapped:     "wrapped",
	FallbackUnsupported: "unsupported",
	FallbackRefused:     "refused",
	FallbackBudget:      "budget",
	FallbackDescriptors: "descriptors",
	FallbackClosed:      "closed",
	FallbackUrgent:      "urgent",
	FallbackHalfClose:   "half-close",
	FallbackCompare:     "compare",
	FallbackRewrite:     "rewrite",
}

// String returns the reason in one word: "wrapped", "budget", "urgent", ...
func (f Fallback) String() string {
	if int(f) < numFallbacks {
		return fallbackNames[f]
	}
	return fmt.Sprintf("fallback(%d)", uint8(f))
}

// Fallbacks counts fallbacks, indexed by [Fallback].
type Fallbacks [numFallbacks]int64

// String returns the reasons that occurred with their counts, as "wrapped 1, half-close 1", or "none".
func (f Fallbacks) String() string {
	var b strings.Builder
	for reason, n := range f.All() {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%v %d", reason, n)
	}
	return cmp.Or(b.String(), "none")
}

// All yields the reasons that occurred, with their counts.
func (f Fallbacks) All() iter.Seq2[Fallback, int64] {
	return func(yield func(Fallback, int64) bool) {
		for i, n := range f {
			if n != 0 && !yield(Fallback(i), n) {
				return
			}
		}
	}
}

// Reason is why a session, or one of its directions, ended. Its words are:
//
//   - running: it has not ended.
//   - eof: the source's end of file was seen and passed on. For a session: the end of file of both sources, or with
//     [Config.CloseOnEOF] of the first one.
//   - limit: a copy reached its limit.
//   - reset: a side sent a reset, or went away while bytes were sent to it.
//   - idle-timeout: no byte moved or was acknowledged for the IdleTimeout of [Config], or of the session's [Limits].
//     The other timeouts also come from either.
//   - half-close-timeout: one direction had ended, and no byte moved in the other for HalfCloseTimeout, or for five
//     seconds if the end could not be passed on ([FallbackHalfClose]).
//   - lifetime: the session was older than MaxLifetime.
//   - canceled: the context, Cut or [Relay.Close] ended the session.
//   - error: a read or write failed otherwise, or the session was refused and has moved nothing.
//   - first-byte-timeout: the second side had sent nothing for [Limits.FirstByte].
//   - truncated: the end of file of one side ended the session ([Config.CloseOnEOF]) while bytes of the other side
//     were on their way, and some were lost. The side that lacks them was reset. The error wraps [ErrTruncated].
type Reason uint8

// The reasons are explained at [Reason].
const (
	ReasonNone      Reason = iota // running
	ReasonEOF                     // eof
	ReasonLimit                   // limit
	ReasonReset                   // reset
	ReasonIdle                    // idle-timeout
	ReasonHalfClose               // half-close-timeout
	ReasonLifetime                // lifetime
	ReasonCanceled                // canceled
	ReasonError                   // error
	ReasonFirstByte               // first-byte-timeout
	ReasonTruncated               // truncated
)

// ErrTruncated is wrapped by the error of a session that ended with [ReasonTruncated].
var ErrTruncated = errors.New("penstock: relay: the end of one side ended the session, and bytes of the other side are lost")

var reasonNames = [...]string{
	ReasonNone:      "running",
	ReasonEOF:       "eof",
	ReasonLimit:     "limit",
	ReasonReset:     "reset",
	ReasonIdle:      "idle-timeout",
	ReasonHalfClose: "half-close-timeout",
	ReasonLifetime:  "lifetime",
	ReasonCanceled:  "canceled",
	ReasonError:     "error",
	ReasonFirstByte: "first-byte-timeout",
	ReasonTruncated: "truncated",
}

// String returns the reason in one word: "eof", "reset", "idle-timeout", ...
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// A Leg is the kernel's account of one connection of a session, since the connection was made.
type Leg struct {
	// Known says that the kernel has answered. Otherwise the other fields are zero and mean nothing.
	Known bool
	// Busy is how long bytes for the peer were outstanding, sent or not. PeerWindow and SendBuffer are the
	// parts of Busy in which the peer's window, or our send buffer, limited the sending.
	Busy, PeerWindow, SendBuffer time.Duration
	// RTT is the smoothed round-trip time, including delayed acknowledgments of the peer, and MinRTT the smallest
	// round-trip time of the last minutes. ReceiverRTT is estimated from the bytes received: when the peer pauses
	// it is too large. 0: not measured.
	RTT, MinRTT, ReceiverRTT time.Duration
	// DeliveryRate is the rate at which the peer last acknowledged, in bytes a second; AppLimited says
	// that too little was sent to reach the possible rate. 0: unknown.
	DeliveryRate int64
	AppLimited   bool
	// Sent is the payload bytes sent, retransmissions included, and Received the payload bytes received.
	Sent, Received int64
	// NotSent is the bytes in the send queue that have never been sent.
	NotSent int64
	// SegmentsSent and SegmentsReceived count segments with payload, Retransmitted the segments that were sent
	// again, and OutOfOrder the segments that came while an earlier one was missing.
	SegmentsSent, SegmentsReceived, Retransmitted, OutOfOrder int64
	// Unanswered is the time without an acknowledgment, if bytes were sent again after a timeout and are still
	// not acknowledged; otherwise 0. It counts from the last acknowledgment, which may be older than those
	// bytes.
	Unanswered time.Duration
	// Gap says that a packet is missing now: later packets are kept, and nothing can be read.
	Gap bool
}

// Legs are the two legs of a session.
type Legs struct{ A, B Leg }

// Legs returns the current accounts of both connections, by one system call for each. Call it on the loop's
// goroutine between Start and the end of the session. At other times, and for sockets other than TCP, the
// accounts are unknown.
func (s *Driven) Legs() (l Legs) {
	if s.drv == nil || s.is(over|carried) {
		return l
	}
	return Legs{s.a.inspect(), s.b.inspect()}
}

// legsAtEnd returns the final Legs, or nil if Config does not ask for them.
func (s *Driven) legsAtEnd() *Legs {
	if after := s.drv.relay.cfg.LegsAfter; after <= 0 || s.drv.loop.Now()-s.started < int64(after) {
		return nil
	}
	l := s.Legs()
	return &l
}

// Legs returns the current accounts of both connections. An account is unknown before Run and after the end,
// and if no TCP connection is found beneath. Legs may be called at any time by any goroutine.
func (s *Session) Legs() (l Legs) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled || s.started.Load() == 0 {
		return l
	}
	return Legs{inspect(s.a.transport()), inspect(s.b.transport())}
}

// inspect keeps the accounts, if Config asks for them. It is called before a leg is closed. The caller holds
// cutting, or both directions have stopped.
func (s *Session) inspect() {
	after := s.r.cfg.LegsAfter
	if after <= 0 || s.r.clock.now()-s.started.Load() < int64(after) {
		return
	}
	if s.legs == nil {
		s.legs = new(Legs)
	}
	s.a.inspect(&s.legs.A)
	s.b.inspect(&s.legs.B)
}

// inspect stores the leg's account if it is known.
func (l *leg) inspect(to *Leg) {
	if now := inspect(l.transport()); now.Known {
		*to = now
	}
}
