package proxyproto_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/proxyproto"
	pires "github.com/pires/go-proxyproto"
)

// A verdict is the specification's, 2.2, on a header of version 2.
type verdict int

const (
	refuse  verdict = iota // "must drop", "must be rejected as invalid"
	read                   // addresses and TLVs count
	without                // accepted, and without addresses
	free                   // "free to accept the connection anyway ... or to reject it": refused here
)

// families are those that the specification lists, with the bytes of their addresses.
var families = map[byte]int{0x11: 12, 0x12: 12, 0x21: 36, 0x22: 36, 0x31: 216, 0x32: 216}

// specified returns the verdict on a command, a byte of family and transport, and the bytes
// after it.
func specified(command, family byte, body []byte) verdict {
	size, listed := families[family]
	unspecified := (family>>4 == 0 || family&0xf == 0) && family>>4 <= 3 && family&0xf <= 2
	switch {
	case command == 0: // "discard the protocol block including the family which is ignored"
		return without
	case command != 1:
		return refuse // "Receivers must drop connections presenting unexpected values here."
	case family == 0: // "use the real endpoint addresses"; "should ignore address information"
		if !wholeTLVs(body) {
			return without
		}
		return read
	case unspecified:
		return free
	case !listed || len(body) < size || !wholeTLVs(body[size:]):
		return refuse // "must be rejected as invalid by receivers", as is a truncated one
	}
	return read
}

// wholeTLVs is written by the specification's struct pp2_tlv alone.
func wholeTLVs(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 3 || len(b)-3 < int(b[1])<<8+int(b[2]) {
			return false
		}
		b = b[3+int(b[1])<<8+int(b[2]):]
	}
	return true
}

// bodies may follow the length: nothing, addresses, one byte less than these, TLVs behind
// them, and bytes that are neither.
func bodies(family byte) map[string][]byte {
	addresses := make([]byte, families[family])
	copy(addresses, body4)
	tlv, wrong := []byte{0xe0, 0, 2, 'h', 'i'}, []byte{3, 0, 4, 1, 2, 3, 4}
	all := map[string][]byte{
		"nothing": nil, "three bytes": {1, 2, 3}, "addresses": addresses, "and a TLV": slices.Concat(addresses, tlv),
		"and garbage": slices.Concat(addresses, []byte{0xe0, 9}), "and a wrong checksum": slices.Concat(addresses, wrong),
	}
	if len(addresses) > 0 {
		all["a byte less"] = addresses[1:]
	}
	return all
}

// TestSpecification compares the parser with the table of the specification's section 2.2:
// every command, every byte of family and transport.
func TestSpecification(t *testing.T) {
	for command := range byte(16) {
		for family := range 256 {
			for name, body := range bodies(byte(family)) {
				want := specified(command, byte(family), body)
				said := fmt.Sprintf("command %d, family %#02x, %s", command, family, name)
				checkSpecified(t, said, v2(0x20|command, byte(family), body...), want)
			}
		}
	}
}

func checkSpecified(t *testing.T, said string, b []byte, want verdict) {
	t.Helper()
	command, family := b[12]&0xf, b[13]
	size := families[family]
	checksum := want == read && bytes.HasPrefix(b[16+size:], []byte{3, 0, 4})
	var got proxyproto.Info
	n, err := (*proxyproto.Policy)(nil).Parse(append(b, "behind"...), &got)
	switch {
	case checksum:
		if !errors.Is(err, proxyproto.ErrChecksum) {
			t.Errorf("%s: %v, want a wrong checksum", said, err)
		}
		return
	case want == refuse || want == free:
		if !errors.Is(err, proxyproto.ErrMalformed) {
			t.Errorf("%s: %v, want that it is malformed", said, err)
		}
		return
	case err != nil || n != len(b) || got.Version != 2 || got.Local != (command == 0):
		t.Errorf("%s: %d of %d bytes, %+v, %v", said, n, len(b), got, err)
		return
	}
	ip := want == read && (family == 0x11 || family == 0x21) // a connection of TCP is no stream of datagrams
	if got.Known() != ip || ip && family>>4 == 1 && got.Source != netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:])), 5555) {
		t.Errorf("%s: the client comes from %v", said, got.Source)
	}
	if tlvs := b[16+min(size, len(b)-16):]; want == read && !bytes.Equal(got.TLVs, tlvs) || want == without && len(got.TLVs) > 0 {
		t.Errorf("%s: TLVs %x", said, got.TLVs)
	}
}

// TestOtherReader documents where go-proxyproto reads the specification otherwise, so that an
// unintended difference is noticed. It accepts no PROXY without a family, and refuses bytes
// that the specification ignores for LOCAL.
func TestOtherReader(t *testing.T) {
	for command := range byte(16) {
		for family := range 256 {
			for name, body := range bodies(byte(family)) {
				b := v2(0x20|command, byte(family), body...)
				_, other := pires.Read(bufio.NewReaderSize(bytes.NewReader(b), 1<<10))
				_, ours := (*proxyproto.Policy)(nil).Parse(b, new(proxyproto.Info))
				_, listed := families[byte(family)]
				meant := command == 0 && family != 0 && !listed || command == 1 && family == 0 ||
					ours != nil && name != "addresses" && name != "nothing" // TLVs, which it parses only when requested
				if (other == nil) != (ours == nil) && !meant {
					t.Errorf("command %d, family %#02x, %s: %v, and the other returns %v", command, family, name, ours, other)
				}
			}
		}
	}
}
