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

// tooBig reports whether a packet is such an error, about a TCP segment.
func tooBig(b []byte, ip int) bool {
	if ip == 40 {
		return b[6] == 58 && b[40] == 2 && b[48]>>4 == 6 && b[54] == 6
	}
	return b[0] == 0x45 && b[9] == 1 && b[20] == 3 && b[21] == 4 && b[28] == 0x45 && b[37] == 6
}
