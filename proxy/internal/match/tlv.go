package match

import (
	"bytes"

	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

// A TLV is a type and a value of a PROXY header.
type TLV struct {
	Type  proxyproto.Type
	Value []byte
	Any   bool // whatever its value is
}

// hasOne reports whether one of some TLVs is in raw, which has those of a header.
func hasOne(wanted []TLV, raw []byte) bool {
	for t, value := range proxyproto.All(raw) {
		for i := range wanted {
			if w := &wanted[i]; w.Type == t && (w.Any || bytes.Equal(w.Value, value)) {
				return true
			}
		}
	}
	return false
}
