package proxyproto

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

const (
	commandLocal = 0x20 // version 2 in the upper half
	commandProxy = 0x21

	familyUnspec = 0x00
	familyTCP4   = 0x11
	familyUDP4   = 0x12
	familyTCP6   = 0x21
	familyUDP6   = 0x22
	familyUnix   = 0x31
	familyDgram  = 0x32
)

// lengthV2 reads the length field of the header at the beginning of b.
func (p *Policy) lengthV2(b []byte) (need int, err error) {
	if len(b) > 12 && b[12]&0xf0 != 0x20 {
		return 0, fmt.Errorf("%w: it is %d", ErrVersion, b[12]>>4)
	}
	if len(b) < fixed {
		return fixed, nil
	}
	need = fixed + int(binary.BigEndian.Uint16(b[14:]))
	if need > p.max() {
		return 0, fmt.Errorf("%w: %d bytes, and at most %d are accepted", ErrTooLong, need, p.max())
	}
	return need, nil
}

// parseV2 parses a header of version 2 that is all of b. Of a LOCAL one everything but its
// length is ignored: "The receiver must accept this connection as valid and must use the real
// connection endpoints and discard the protocol block including the family which is ignored"
// (the specification, 2.2).
func (i *Info) parseV2(b []byte) error {
	switch command := b[12]; command {
	case commandLocal:
		i.Version, i.Local = 2, true
		return nil
	case commandProxy:
		i.Version = 2
		return i.parseProxy(b)
	default:
		return fmt.Errorf("%w: command %d", ErrMalformed, command&0x0f)
	}
}

// parseProxy parses the addresses and the TLVs of the command PROXY.
func (i *Info) parseProxy(b []byte) error {
	family, body := b[13], b[fixed:]
	size, ok := addressSize(family)
	switch {
	case !ok:
		return fmt.Errorf("%w: address family and transport %#02x", ErrMalformed, family)
	case len(body) < size:
		return fmt.Errorf("%w: %d bytes are too few for its addresses", ErrMalformed, len(b))
	}
	i.addresses(family, body)
	tlvs := body[size:]
	if err := check(tlvs); err != nil {
		if family == familyUnspec {
			return nil // addresses of an unknown kind, which the receiver "should ignore"
		}
		return err
	}
	if err := verify(b, tlvs); err != nil {
		return err
	}
	i.TLVs = append(i.TLVs, tlvs...)
	return nil
}

// addressSize returns the length of the addresses of a family. If only one of family and
// transport is unspecified, nothing defines that length, so such addresses are not read.
func addressSize(family byte) (size int, ok bool) {
	switch family {
	case familyUnspec:
		return 0, true
	case familyTCP4, familyUDP4:
		return 4 + 4 + 2 + 2, true
	case familyTCP6, familyUDP6:
		return 16 + 16 + 2 + 2, true
	case familyUnix, familyDgram:
		return 108 + 108, true
	default:
		return 0, false
	}
}

// addresses reads the addresses of a family, of which all bytes are there. Addresses of other
// families than IP are of no use, and those of datagrams are of another protocol than this
// connection's. Then the client is the peer, as with UNSPEC. HAProxy (conn_recv_proxy) and
// nginx (ngx_proxy_protocol_v2_read) do the same.
func (i *Info) addresses(family byte, b []byte) {
	switch family {
	case familyTCP4:
		i.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[0:])), binary.BigEndian.Uint16(b[8:]))
		i.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), binary.BigEndian.Uint16(b[10:]))
	case familyTCP6:
		i.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[0:])).Unmap(), binary.BigEndian.Uint16(b[32:]))
		i.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[16:])).Unmap(), binary.BigEndian.Uint16(b[34:]))
	}
}
