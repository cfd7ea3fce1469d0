package header

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// addr reads an address without copying its text, which is a field of a buffer that is
// used again. Of the text, netip.ParseAddr keeps only the zone, of which there is none
// here, and what it says of a failure, which is dropped.
func addr(text []byte) (a netip.Addr, ok bool) {
	if len(text) == 0 || bytes.IndexByte(text, '%') >= 0 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(unsafe.String(&text[0], len(text)))
	return a, err == nil
}
