package lane

import (
	"time"

	"github.com/penstock/penstock/lane/internal/translate"
)

// A View has the lane's observations of a session, for verdicts on it. Counts are of all its time in the
// lane, not of that in user space.
type View struct {
	// Ends are the endpoints of a and of b.
	Ends [2]End
	// InLane reports whether the session is in the lane now.
	InLane bool
	// LastPacket is when a packet was carried last, of the monotonic clock (CLOCK_MONOTONIC). 0: none was.
	LastPacket time.Duration
	// Time is for how long it has been in the lane.
	Time time.Duration
	// EndedBy is the endpoint of which an RST was carried since the session has left last, or else of which a FIN has come first:
	// 0 is a, and 1 is b. -1: there was neither.
	EndedBy int
}

// An End is one of the two endpoints of a session. A stray or forged packet, which fits no window, counts in
// Packets alone.
type End struct {
	Packets uint64 // packets that have come from it and were carried
	// Outstanding are bytes that it has sent, and that the other one has not acknowledged. 0 in user space.
	Outstanding uint64
	// Window is the last window that it has advertised, in bytes.
	Window uint32
	// WidestWindow is the largest that it has advertised.
	WidestWindow uint32
	// ZeroWindows is how often its window has become 0: it does not read as fast as it is sent to.
	ZeroWindows uint32
	// Repeated are segments with data of numbers that it had sent before: those that the path behind the lane, or
	// the other endpoint, has lost or not acknowledged in time. Probes of a window of 0 with a byte count too.
	Repeated uint32
	// Ended reports whether its end of file was carried.
	Ended bool
	// Last reports whether the last bytes that the lane has carried for the first time have come from it.
	Last bool
	// RoundTrip is how long the last packets took from here to the endpoint and back to here, by the
	// echo of their timestamps, with the time until the endpoint acknowledges; the last one has half of the weight. LeastRoundTrip is the shortest of all
	// that were measured: one at a time. DataRoundTrip is from a packet without data to the first with data, with the endpoint's own
	// pauses. 0: none was, as for connections without timestamps.
	RoundTrip, LeastRoundTrip, DataRoundTrip time.Duration
	// Payload is their bytes, repeated ones included. Segments are packets with data, and BehindGap are those of them that came behind one that was missing. Lost are those that
	// came again though none was missing: the path behind the lane has lost them, or was slow.
	Payload                   uint64
	Segments, BehindGap, Lost uint32
	// Waits is for how long the session has waited for this endpoint.
	Waits Waits
}

// OnlyEnd returns the endpoint of which an end of file was carried, if none of the other one was: it has ended first, also where a reset came after
// that. -1: that is not known.
func (v *View) OnlyEnd() int {
	for i := range v.Ends {
		if v.Ends[i].Ended && !v.Ends[1-i].Ended {
			return i
		}
	}
	return -1
}

// Look returns the lane's observations of the session, or false if it has no place in the lane.
func (s *Session) Look() (v View, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return View{EndedBy: -1}, false
	}
	return s.view(), true
}

// view needs the lock, and a place in the lane.
func (s *Session) view() (v View) {
	r, f := s.record(), s.flows()
	clock := r.Clock()
	v.InLane, v.LastPacket, v.Time = s.gone(), time.Duration(r.LastPacket()), r.Spent()
	v.EndedBy = r.By()
	if v.InLane {
		open := max(0, now()-int64(r.LastPacket()))
		v.Time += time.Duration(open)
		clock = clock.Now(&f, uint32(open>>translate.Tick))
	}
	for i := range v.Ends {
		e := &v.Ends[i]
		*e = End{
			Packets: r.Packets(i), Window: f[i].Window, WidestWindow: f[i].Widest, ZeroWindows: f[i].Zeros, Repeated: f[i].Repeats,
			Payload: f[i].Payload, Segments: f[i].Segments, BehindGap: f[i].BehindGap, Lost: f[i].Lost, Ended: f[i].Fin != 0, Last: r.LastNew() == i, Waits: waitsOf(&clock, i),
		}
		e.RoundTrip, e.LeastRoundTrip, e.DataRoundTrip = r.RoundTrip(i)
		if v.InLane {
			e.Outstanding = f[i].Sent - min(f[i].Sent, f[1-i].Acked)
		}
	}
	return v
}

// halfEnded returns the direction that has ended of a session in the lane whose other one goes on, once; -1 if none has.
func (s *Session) halfEnded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != away || s.is(halved) {
		return -1
	}
	f := s.flows()
	for i := range f {
		if f[i].Fin != 0 { // acknowledged or not: the endpoint that goes on may do without
			s.set(halved, true)
			return i
		}
	}
	return -1
}
