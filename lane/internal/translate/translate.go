// Package translate is the lane's translation of packets, in Go: from one TCP connection to another one, by
// constants. The BPF program does the same. This package describes it, and tests of the program compare their
// packets with it.
//
// The addresses and ports of a packet become the addresses and ports of the other connection. Sequence numbers,
// acknowledgements, SACK blocks, timestamps and their echoes are shifted. The window is converted to the unit
// of the other connection. Checksums are changed by the difference. ECN, urgent pointers (which count from the
// sequence number), payload and all other options stay as they are.
package translate

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// A Side has the constants for packets that arrive from one endpoint.
type Side struct {
	// Source and Destination are the addresses of translated packets, of the same family.
	Source, Destination netip.AddrPort
	// Sequence is added to sequence numbers; Acknowledged is subtracted from acknowledgements and
	// SACK blocks: it is the other side's Sequence.
	Sequence, Acknowledged uint32
	// Time is added to timestamps, and Echo subtracted from their echoes.
	Time, Echo uint32
	// Scale is the shift of windows that arrive, and Unit the shift of windows that leave.
	Scale, Unit uint8
	// HopLimit is the hop limit of translated packets. 0 leaves it as it is.
	HopLimit uint8
}

// Errors for packets that are not translated. Such packets go on as if there were no lane.
var (
	// ErrTruncated: the headers are incomplete, or lengths contradict each other.
	ErrTruncated = errors.New("lane: truncated packet")
	// ErrOther: there is no TCP header right after the IP header.
	ErrOther = errors.New("lane: no TCP segment")
	// ErrFragment: a part of an IPv4 packet.
	ErrFragment = errors.New("lane: fragment")
	// ErrOptions: an IPv4 header with options.
	ErrOptions = errors.New("lane: IP options")
	// ErrBig: the length is 0, as in packets above 64 KiB.
	ErrBig = errors.New("lane: big TCP")
	// ErrFamily: the packet and the addresses of the side are not of the same family.
	ErrFamily = errors.New("lane: other family")
)

// Offsets in a TCP header.
const (
	offSequence = 4
	offAck      = 8
	offData     = 12
	offFlags    = 13
	offWindow   = 14
	offChecksum = 16
	minHeader   = 20
)

// Flags of a TCP header.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// A Layout is where the headers of a packet are.
type Layout struct {
	TCP     int // offset of the TCP header
	Header  int // length of the TCP header
	Payload int // bytes after the TCP header
	V6      bool
}

// Parse finds the headers of an IP packet.
func Parse(b []byte) (Layout, error) {
	var l Layout
	if len(b) < 1 {
		return l, ErrTruncated
	}
	var total int
	switch b[0] >> 4 {
	case 4:
		switch {
		case len(b) < 20:
			return l, ErrTruncated
		case b[0] != 0x45:
			return l, ErrOptions
		case b[9] != 6:
			return l, ErrOther
		case binary.BigEndian.Uint16(b[6:])&0x3fff != 0:
			return l, ErrFragment
		}
		total, l.TCP = int(binary.BigEndian.Uint16(b[2:])), 20
		if total == 0 {
			return l, ErrBig
		}
	case 6:
		switch {
		case len(b) < 40:
			return l, ErrTruncated
		case b[6] != 6:
			return l, ErrOther
		}
		total, l.TCP, l.V6 = int(binary.BigEndian.Uint16(b[4:])), 40, true
		if total == 0 {
			return l, ErrBig
		}
		total += l.TCP
	default:
		return l, ErrOther
	}
	if len(b) < l.TCP+minHeader {
		return l, ErrTruncated
	}
	l.Header = int(b[l.TCP+offData]>>4) * 4
	if l.Header < minHeader || l.TCP+l.Header > len(b) || l.TCP+l.Header > total {
		return l, ErrTruncated
	}
	l.Payload = total - l.TCP - l.Header
	return l, nil
}

// Packet translates an IP packet in place. After an error the packet is unchanged.
func (s *Side) Packet(b []byte) error {
	l, err := Parse(b)
	if err != nil {
		return err
	}
	if l.V6 != s.Source.Addr().Is6() {
		return ErrFamily
	}
	t := b[l.TCP : l.TCP+l.Header]
	var before [60]byte
	copy(before[:], t)
	s.header(t)
	sum := binary.BigEndian.Uint16(t[offChecksum:])
	sum = change(sum, before[:l.Header], t)
	sum = s.addresses(b, l, sum)
	binary.BigEndian.PutUint16(t[offChecksum:], sum)
	return nil
}

// header translates the TCP header, except for its checksum.
func (s *Side) header(t []byte) {
	binary.BigEndian.PutUint16(t, s.Source.Port())
	binary.BigEndian.PutUint16(t[2:], s.Destination.Port())
	add(t[offSequence:], s.Sequence)
	acks := t[offFlags]&ACK != 0
	if acks {
		add(t[offAck:], -s.Acknowledged)
	}
	if t[offFlags]&SYN == 0 { // a SYN's window has no scale (RFC 7323, 2.2)
		w := binary.BigEndian.Uint16(t[offWindow:])
		binary.BigEndian.PutUint16(t[offWindow:], s.window(w))
	}
	s.options(t[minHeader:], acks)
}

// window converts a window to the other connection's unit. It rounds down, but only 0 becomes 0: with a window
// of 0 the endpoint would wait for an update that never comes.
func (s *Side) window(w uint16) uint16 {
	n := uint32(w) << s.Scale >> s.Unit
	switch {
	case n == 0 && w != 0:
		return 1
	case n > 0xffff:
		return 0xffff
	}
	return uint16(n)
}

// Offered returns how many bytes a window lets the other endpoint send. It is the window's value, or the
// larger value that the other endpoint sees if the window was rounded up.
func (s *Side) Offered(w uint16) uint32 {
	return max(uint32(w)<<s.Scale, uint32(s.window(w))<<s.Unit)
}

// options translates the options.
func (s *Side) options(o []byte, acks bool) {
	walk(o, func(o []byte) { s.option(o, acks) })
}

// walk calls do for each option. It stops at an option of a wrong length, as the kernel does
// (net/ipv4/tcp_input.c, tcp_parse_options).
func walk(o []byte, do func(o []byte)) {
	for i := 0; i < len(o); {
		switch o[i] {
		case 0:
			return
		case 1:
			i++
			continue
		}
		if i+1 >= len(o) {
			return
		}
		n := int(o[i+1])
		if n < 2 || i+n > len(o) {
			return
		}
		do(o[i : i+n])
		i += n
	}
}

// option translates one option: timestamps (8) and SACK blocks (5).
func (s *Side) option(o []byte, acks bool) {
	switch {
	case o[0] == 8 && len(o) == 10:
		add(o[2:], s.Time)
		if acks { // an echo is valid only with an acknowledgement (RFC 7323, 3.2)
			add(o[6:], -s.Echo)
		}
	case o[0] == 5 && len(o) >= 10 && (len(o)-2)%8 == 0:
		for i := 2; i < len(o); i += 4 {
			add(o[i:], -s.Acknowledged)
		}
	}
}

// addresses translates the IP header, and returns the TCP checksum with the new addresses.
func (s *Side) addresses(b []byte, l Layout, sum uint16) uint16 {
	at, n, hop := 12, 4, 8
	if l.V6 {
		at, n, hop = 8, 16, 7
	}
	var before [40]byte
	copy(before[:], b[:l.TCP])
	copy(b[at:], s.Source.Addr().AsSlice())
	copy(b[at+n:], s.Destination.Addr().AsSlice())
	sum = change(sum, before[at:at+2*n], b[at:at+2*n])
	if s.HopLimit != 0 {
		b[hop] = s.HopLimit
	}
	if !l.V6 {
		binary.BigEndian.PutUint16(b[10:], change(binary.BigEndian.Uint16(b[10:]), before[:20], b[:20]))
	}
	return sum
}

// Stamp returns the timestamp of a TCP header, or the last timestamp if there are more.
func Stamp(t []byte) (stamp uint32, ok bool) {
	walk(t[minHeader:], func(o []byte) {
		if o[0] == 8 && len(o) == 10 {
			stamp, ok = binary.BigEndian.Uint32(o[2:]), true
		}
	})
	return stamp, ok
}

func add(b []byte, n uint32) { binary.BigEndian.PutUint32(b, binary.BigEndian.Uint32(b)+n) }

// change returns a checksum after bytes that it covers have changed (RFC 1624, equation 3). before and after
// have the same, even length.
func change(sum uint16, before, after []byte) uint16 {
	n := uint64(^sum)
	for i := 0; i < len(before); i += 2 {
		n += uint64(^binary.BigEndian.Uint16(before[i:])) + uint64(binary.BigEndian.Uint16(after[i:]))
	}
	return ^fold(n)
}

// fold adds carries until 16 bits are left.
func fold(n uint64) uint16 {
	for n > 0xffff {
		n = n&0xffff + n>>16
	}
	return uint16(n)
}

// TooBig translates, in place, the error of a router about a packet that s has translated (ICMP destination
// unreachable, fragmentation needed; ICMPv6 packet too big). The result is about the packet as its endpoint has
// sent it, and goes to that endpoint. in.Source is the address of the endpoint, and in.Destination is the local
// address of its connection. TooBig reports whether b was such an error. It does not change the MTU, because
// the headers of both connections have the same length.
func (s *Side) TooBig(b []byte, in Side) bool {
	ip, from, n, hop := 20, 12, 4, 8
	if len(b) > 0 && b[0]>>4 == 6 {
		ip, from, n, hop = 40, 8, 16, 7
	}
	if len(b) < 2*ip+16 || !tooBig(b, ip) {
		return false
	}
	icmp, inner := b[ip:], b[ip+8:2*ip+16]
	var before [96]byte
	copy(before[:], b[:2*ip+16])
	b[hop] = 64
	copy(b[from:], in.Destination.Addr().AsSlice())
	copy(b[from+n:], in.Source.Addr().AsSlice())
	copy(inner[from:], in.Source.Addr().AsSlice())
	copy(inner[from+n:], in.Destination.Addr().AsSlice())
	binary.BigEndian.PutUint16(inner[ip:], in.Source.Port())
	binary.BigEndian.PutUint16(inner[ip+2:], in.Destination.Port())
	add(inner[ip+4:], -s.Sequence)
	sum := binary.BigEndian.Uint16(icmp[2:])
	if ip == 20 {
		quoted := before[28:48]
		binary.BigEndian.PutUint16(inner[10:], change(binary.BigEndian.Uint16(inner[10:]), quoted, inner[:20]))
		binary.BigEndian.PutUint16(b[10:], change(binary.BigEndian.Uint16(b[10:]), before[:20], b[:20]))
	} else {
		sum = change(sum, before[8:40], b[8:40])
	}
	binary.BigEndian.PutUint16(icmp[2:], change(sum, before[ip+8:2*ip+16], inner))
	return true
}

// LeastMTU is the smallest MTU in an error that is passed on, for IPv4 and IPv6. An endpoint applies the MTU to
// everything that it sends to the proxy's address, for ten minutes (net.ipv4.route.mtu_expires). So with a
// smaller MTU one client could make the segments of all others small, down to 552.
const LeastMTU = 1280

// Believed reports whether an error for [Side.TooBig] can come from the path of the session. First, it must
// quote a segment of f that is on the way to the endpoint of o: a host that is not on the path would have to
// guess the segment's number. Second, its MTU must be too small for the largest segment that f's endpoint
// sends. gives is the size of that segment.
func (s *Side) Believed(b []byte, f, o *Flow, gives uint16) bool {
	ip, mtu := 20, uint32(0)
	if b[0]>>4 == 6 {
		ip, mtu = 40, binary.BigEndian.Uint32(b[44:])
	} else {
		mtu = uint32(binary.BigEndian.Uint16(b[26:]))
	}
	begin := at(f.First, f.Sent, binary.BigEndian.Uint32(b[2*ip+12:])-s.Sequence)
	return begin >= int64(o.Acked) && begin < int64(f.Sent) && mtu >= LeastMTU && mtu < uint32(gives)+uint32(ip)+minHeader
}

// tooBig reports whether a packet is an error about a TCP segment that was too big.
func tooBig(b []byte, ip int) bool {
	if ip == 40 {
		return b[6] == 58 && b[40] == 2 && b[48]>>4 == 6 && b[54] == 6
	}
	return b[0] == 0x45 && b[9] == 1 && b[20] == 3 && b[21] == 4 && b[28] == 0x45 && b[37] == 6
}
