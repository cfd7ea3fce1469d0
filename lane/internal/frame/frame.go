// Package frame makes packets for tests. It computes their checksums from scratch.
package frame

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// A Packet is an IP packet with a TCP segment.
type Packet struct {
	From, To netip.AddrPort
	Seq, Ack uint32
	Flags    byte
	Window   uint16
	Options  []byte // filled up to a multiple of four
	Payload  []byte
	Traffic  byte // class, with the ECN bits
}

// Bytes returns the packet with its checksums.
func (p Packet) Bytes() []byte {
	options := append([]byte(nil), p.Options...)
	for len(options)%4 != 0 {
		options = append(options, 1)
	}
	t := make([]byte, 20, 60+len(p.Payload))
	binary.BigEndian.PutUint16(t, p.From.Port())
	binary.BigEndian.PutUint16(t[2:], p.To.Port())
	binary.BigEndian.PutUint32(t[4:], p.Seq)
	binary.BigEndian.PutUint32(t[8:], p.Ack)
	t[12], t[13] = byte(20+len(options))<<2, p.Flags
	binary.BigEndian.PutUint16(t[14:], p.Window)
	t = append(append(t, options...), p.Payload...)
	var head []byte
	if p.From.Addr().Is4() {
		head = make([]byte, 20)
		head[0], head[1], head[8], head[9] = 0x45, p.Traffic, 61, 6
		binary.BigEndian.PutUint16(head[2:], uint16(20+len(t)))
		head[6] = 0x40
		copy(head[12:], p.From.Addr().AsSlice())
		copy(head[16:], p.To.Addr().AsSlice())
		binary.BigEndian.PutUint16(head[10:], ^sum(head))
	} else {
		head = make([]byte, 40)
		head[0], head[1], head[6], head[7] = 0x60|p.Traffic>>4, p.Traffic<<4, 6, 61
		binary.BigEndian.PutUint16(head[4:], uint16(len(t)))
		copy(head[8:], p.From.Addr().AsSlice())
		copy(head[24:], p.To.Addr().AsSlice())
	}
	b := append(head, t...)
	binary.BigEndian.PutUint16(b[len(head)+16:], Checksum(b))
	return b
}

// Checksum computes the TCP checksum of a packet from scratch.
func Checksum(b []byte) uint16 {
	at, from := 20, 12
	if b[0]>>4 == 6 {
		at, from = 40, 8
	}
	pseudo := append([]byte(nil), b[from:at]...)
	pseudo = append(pseudo, 0, 6, byte((len(b)-at)>>8), byte(len(b)-at))
	t := append([]byte(nil), b[at:]...)
	t[16], t[17] = 0, 0
	if len(t)%2 != 0 {
		t = append(t, 0)
	}
	return ^sum(append(pseudo, t...))
}

func sum(b []byte) uint16 {
	var n uint32
	for i := 0; i < len(b); i += 2 {
		n += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for n > 0xffff {
		n = n&0xffff + n>>16
	}
	return uint16(n)
}

// Alike reports whether packets are the same. A checksum of 0 has two forms (RFC 1624), which count as the
// same.
func Alike(a, b []byte) bool {
	tcp, v6 := 20, len(a) > 0 && a[0]>>4 == 6
	if v6 {
		tcp = 40
	}
	if len(a) != len(b) || len(a) < tcp+20 {
		return bytes.Equal(a, b)
	}
	a, b = bytes.Clone(a), bytes.Clone(b)
	for _, p := range [][]byte{a, b} {
		for _, i := range []int{10, tcp + 16} {
			if (i != 10 || !v6) && p[i] == 0xff && p[i+1] == 0xff {
				p[i], p[i+1] = 0, 0
			}
		}
	}
	return bytes.Equal(a, b)
}

// Address gives a packet new addresses and ports, and corrects its length and checksums.
func Address(b []byte, from, to netip.AddrPort) {
	tcp, v6 := 20, b[0]>>4 == 6
	if v6 {
		tcp = 40
		copy(b[8:], from.Addr().AsSlice())
		copy(b[24:], to.Addr().AsSlice())
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	} else {
		copy(b[12:], from.Addr().AsSlice())
		copy(b[16:], to.Addr().AsSlice())
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], ^sum(b[:20]))
	}
	binary.BigEndian.PutUint16(b[tcp:], from.Port())
	binary.BigEndian.PutUint16(b[tcp+2:], to.Port())
	binary.BigEndian.PutUint16(b[tcp+16:], Checksum(b))
}

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

// RightError reports whether the checksums of an ICMP or ICMPv6 packet are right.
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
