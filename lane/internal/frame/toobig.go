package frame

import (
	"encoding/binary"
	"net/netip"
)

// TooBig returns a router's error about a packet that is larger than mtu, which it quotes.
func TooBig(router netip.Addr, mtu uint16, packet []byte) []byte {
	quoted := packet[:min(len(packet), 200)]
	if router.Is4() {
		b := make([]byte, 28, 28+len(quoted))
		b[0], b[8], b[9], b[20], b[21] = 0x45, 60, 1, 3, 4
		binary.BigEndian.PutUint16(b[26:], mtu)
		copy(b[12:], router.AsSlice())
		copy(b[16:], packet[12:16])
		b = append(b, quoted...)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[10:], ^sum(b[:20]))
		binary.BigEndian.PutUint16(b[22:], ^sum(even(b[20:])))
		return b
	}
	b := make([]byte, 48, 48+len(quoted))
	b[0], b[6], b[7], b[40] = 0x60, 58, 60, 2
	binary.BigEndian.PutUint32(b[44:], uint32(mtu))
	copy(b[8:], router.AsSlice())
	copy(b[24:], packet[8:24])
	b = append(b, quoted...)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	binary.BigEndian.PutUint16(b[42:], ^sum(even(pseudo6(b))))
	return b
}

// RightError reports whether the checksums of a packet of ICMP or ICMPv6 are right.
func RightError(b []byte) bool {
	if b[0]>>4 == 6 {
		return sum(even(pseudo6(b))) == 0xffff
	}
	return sum(b[:20]) == 0xffff && sum(even(b[20:])) == 0xffff && sum(b[28:48]) == 0xffff
}

// pseudo6 returns the bytes that the checksum of ICMPv6 covers.
func pseudo6(b []byte) []byte {
	p := append([]byte(nil), b[8:40]...)
	p = append(p, 0, 58, byte((len(b)-40)>>8), byte(len(b)-40))
	return append(p, b[40:]...)
}

func even(b []byte) []byte {
	if len(b)%2 != 0 {
		return append(append([]byte(nil), b...), 0)
	}
	return b
}
