package translate

// A Flow is the account of the packets that have arrived from one side since the flip, when the session left
// user space. Positions count bytes from there, and a FIN as one byte. No position ever falls.
//
// A packet is translated whether it fits or not. The endpoint judges it like any packet of its connection, and
// may answer with a challenge (RFC 5961). But a packet that does not fit changes nothing here. So a stray or
// forged packet does not end a session and is not counted.
type Flow struct {
	// First is the sequence number of position 0, and FirstAck is the same for the other side.
	First, FirstAck uint32
	// Sent is the end of the highest segment with data or a FIN.
	Sent uint64
	// Acked is the highest acknowledgement. It is a position of the other side.
	Acked uint64
	// Edge is the position up to which the other side may send: the highest sum of an acknowledgement and its
	// window.
	Edge uint64
	// Fin is the position after the FIN, or 0 if there is none.
	Fin uint64
	// Stamp is the highest timestamp, which wraps around.
	Stamp uint32
	// Window is the last window, in bytes. Zeros is how often the window has become 0. Repeats is how many
	// segments with data have come again.
	Window, Zeros, Repeats uint32
	// Widest is the largest window so far.
	Widest uint32
	// Hole is set by the last segment that came behind a gap: it is the position after the first byte that was
	// missing here. 0: there was none.
	Hole uint64
	// Payload is how many bytes of data came, including repeated bytes. Segments is how many segments with data
	// came. BehindGap counts the segments that came behind a gap. Lost counts the segments that came again
	// although none was missing here.
	Payload                   uint64
	Segments, BehindGap, Lost uint32
	// Resent counts repeated segments that contain the other endpoint's first unacknowledged byte.
	Resent uint32
	// Takes is the largest segment that the endpoint accepts.
	Takes uint16
}

// A Fate says what a segment means for the account.
type Fate struct {
	Fits   bool // the segment fits, and counts; a segment that resets the session does not
	Reset  bool // the segment has reset the session
	Again  bool // its data came before and is not acknowledged, and no data was missing
	Stale  bool // its data was acknowledged before: it is a keepalive probe, or its sender has lost the acknowledgement
	News   bool // it acknowledges something for the first time
	Beyond bool // it is behind the end of file, and is not passed on
}

// A Segment is the head of a packet.
type Segment struct {
	Sequence, Ack uint32
	Length        uint32 // of the payload
	Window        uint32 // in bytes, see [Side.Offered]
	Flags         uint8
	Stamp         uint32 // the timestamp, if Stamped
	Stamped       bool
}

// late is how many bytes a segment can be behind an acknowledgement. It is the largest window since the flip,
// as for a kernel (RFC 5961, 5.2), and at least a megabyte, because a segment may be from before the flip.
func (f *Flow) late() int64 { return int64(max(f.Widest, 1<<20)) }

// at returns the position of a sequence number that is close to a known position.
func at(first uint32, known uint64, seq uint32) int64 {
	return int64(known) + int64(int32(seq-(first+uint32(known))))
}

// Note accounts for a segment of side f. o is the other side.
func (f *Flow) Note(o *Flow, s Segment) (fate Fate) {
	begin := at(f.First, f.Sent, s.Sequence)
	end := begin + int64(s.Length)
	if s.Flags&FIN != 0 {
		end++
	}
	acked, data, flags := f.Acked, begin+int64(s.Length), s.Flags&(SYN|RST|ACK)
	switch {
	case s.Flags&RST != 0 && (begin == int64(o.Acked) || begin == int64(f.Sent)):
		// The endpoint takes an RST only at the next byte that it expects (RFC 5961, 3.2). That is the first
		// byte that it has not acknowledged, or the end of everything that was sent, if all of it has arrived.
		// A FIN that the endpoint has refused does not matter.
		fate.Reset = true
		return fate
	case s.Flags&RST != 0 && s.Length == 0:
		return fate // the endpoint challenges the RST, which then comes again at the challenge's number
	case f.beyond(o, data, end, s.Length > 0):
		fate.Beyond = true
		return fate
	case flags != ACK, // no endpoint takes a segment without ACK (RFC 9293, 3.10.7.4), so a forged one needs no number
		end > int64(o.Edge)+1, // a probe of a window of 0 is one byte beyond the edge
		begin < int64(o.Acked)-o.late(),
		s.Flags&FIN != 0 && f.misplaced(o, end),
		!f.acknowledge(o, s):
		return fate
	}
	fate.Fits, fate.News = true, f.Acked > acked
	if s.Length > 0 {
		f.Payload += uint64(s.Length)
		fate.Again, fate.Stale = f.data(o, begin, end), end <= int64(o.Acked)
	}
	if s.Stamped && int32(s.Stamp-f.Stamp) > 0 {
		f.Stamp = s.Stamp
	}
	if end > begin { // not for an acknowledgement without data: bytes, or an end of file, before its number may have been lost on the way here
		f.Sent = max(f.Sent, uint64(max(end, 0)))
	}
	if s.Flags&FIN != 0 {
		f.Fin = uint64(end)
	}
	return fate
}

// beyond reports whether a segment has data at the FIN's number or behind it. No endpoint sends data after its
// FIN, so the FIN that was noted has not arrived, for example because its checksum was wrong. Once the FIN is
// acknowledged, a keepalive probe may have a byte there.
func (f *Flow) beyond(o *Flow, data, end int64, any bool) bool {
	fin := int64(f.Fin)
	return fin != 0 && (end > fin || any && int64(o.Acked) < fin && data >= fin)
}

// misplaced reports whether a FIN is at a number at which no FIN can be: another FIN was at a different number,
// or the byte is acknowledged.
func (f *Flow) misplaced(o *Flow, end int64) bool {
	if f.Fin != 0 {
		return end != int64(f.Fin)
	}
	return end <= int64(o.Acked)
}

// data notes a segment with data, and reports whether it came again though nothing was missing.
func (f *Flow) data(o *Flow, begin, end int64) (again bool) {
	gap := f.missing(o)
	f.Segments++
	if end <= int64(f.Sent) {
		f.Repeats++
		if begin <= int64(o.Acked) && end > int64(o.Acked) {
			f.Resent++
		}
		again = !gap && end > int64(o.Acked) // a keepalive probe may have a byte that was acknowledged
		if again {
			f.Lost++
		}
		return again
	}
	if begin > int64(f.Sent) {
		f.Hole = f.Sent + 1
		gap = true
	}
	if gap {
		f.BehindGap++
	}
	return false
}

// missing reports whether the other endpoint lacks data that has not been here.
func (f *Flow) missing(o *Flow) bool { return f.Hole != 0 && o.Acked < f.Hole }

// ordinary is the size of a segment on Ethernet, in bytes.
const ordinary = 1460

// segment is the size of the segments that are sent to the endpoint, in bytes. It is at most ordinary, because
// senders on the loopback send parts of segments of nearly 64 KiB.
func (f *Flow) segment() int64 { return int64(min(f.Takes, ordinary)) }

// room is how much of the last window is left. The other side keeps to the last window. The edge can come from
// an earlier window, or from the socket here.
func (f *Flow) room(o *Flow) int64 { return int64(f.Acked) + int64(f.Window) - int64(o.Sent) }

// shut reports whether the window is too small for another segment of the other side.
func (f *Flow) shut(o *Flow) bool { return f.room(o) < f.segment() }

// narrow reports whether the window may keep back a sender that wants to send more than a segment at a time. A
// sender that gathers segments waits for a third of the window (net/ipv4/tcp_output.c, tcp_tso_should_defer). A
// sender that paces, like BBR, keeps some of the window free.
func (f *Flow) narrow(o *Flow) bool {
	return f.room(o) < 2*f.segment() || 3*f.room(o) < int64(f.Widest)
}

// acknowledge notes the acknowledgement, and reports whether it fits.
func (f *Flow) acknowledge(o *Flow, s Segment) bool {
	ack := at(f.FirstAck, f.Acked, s.Ack)
	if ack > int64(o.Sent) || ack < int64(f.Acked)-f.late() {
		return false
	}
	if ack < 0 {
		return true // from before the flip
	}
	if uint64(ack) >= f.Acked {
		if s.Window == 0 && f.Window != 0 {
			f.Zeros++
		}
		f.Window = s.Window
		f.Widest = max(f.Widest, s.Window)
	}
	f.Acked = max(f.Acked, uint64(ack))
	f.Edge = max(f.Edge, uint64(ack)+uint64(s.Window))
	return true
}

// Quiet reports whether both sides have acknowledged everything, and both may send more.
func Quiet(a, b *Flow) bool {
	return a.Sent == b.Acked && b.Sent == a.Acked && a.Window != 0 && b.Window != 0
}

// Ended reports whether the FINs of both sides are acknowledged.
func Ended(a, b *Flow) bool {
	return a.Fin != 0 && b.Fin != 0 && b.Acked >= a.Fin && a.Acked >= b.Fin
}

// Delivered returns how many bytes of side f the other side has acknowledged.
func Delivered(f, o *Flow) uint64 {
	if f.Fin != 0 && o.Acked >= f.Fin {
		return o.Acked - 1
	}
	return o.Acked
}

// Carried returns how many bytes of side f were carried to the other side, acknowledged or not. Some kernels
// probe a closed window with a byte behind the edge. That byte counts only if it is acknowledged.
func Carried(f, o *Flow) uint64 {
	n := f.Sent
	if f.Fin != 0 {
		n = min(n, f.Fin-1)
	}
	return min(n, o.Edge)
}
