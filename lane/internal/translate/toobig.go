package translate

import "encoding/binary"

// TooBig translates in place the error of a router (ICMP destination unreachable, fragmentation
// needed; ICMPv6 packet too big) about a packet that s has translated: into one about the packet as
// its endpoint has sent it, and to that endpoint. Endpoint and at are the addresses of that connection,
// as s translates its packets. It reports whether it was one. The size is that of either connection:
// headers are of the same length.
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

// LeastMTU is the least of an error that is passed on, of either family. An endpoint keeps what it has learnt for all that it sends to the proxy's
// address, for ten minutes (net.ipv4.route.mtu_expires), so that one client could have all others' segments be small, down to 552.
const LeastMTU = 1280

// Believed reports whether an error of the kind of [Side.TooBig] is one that the path of the session can have: it quotes a segment of f that is on the way to the
// endpoint of o, so that a host that is not on the path has to guess its number, and its MTU is less than what the endpoint of f gives, its largest segment.
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

// tooBig reports whether a packet is such an error, about a TCP segment.
func tooBig(b []byte, ip int) bool {
	if ip == 40 {
		return b[6] == 58 && b[40] == 2 && b[48]>>4 == 6 && b[54] == 6
	}
	return b[0] == 0x45 && b[9] == 1 && b[20] == 3 && b[21] == 4 && b[28] == 0x45 && b[37] == 6
}
