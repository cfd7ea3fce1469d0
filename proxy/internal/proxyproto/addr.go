package proxyproto

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// addr parses an address without copying its text, which is a field of a buffer that is used
// again. netip.ParseAddr keeps only two parts of the text: the zone, of which there is none
// here, and the text in its error, which is dropped.
func addr(text []byte) (a netip.Addr, ok bool) {
	if len(text) == 0 || bytes.IndexByte(text, '%') >= 0 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(unsafe.String(&text[0], len(text)))
	return a, err == nil
}
