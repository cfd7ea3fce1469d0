package config

import (
	"encoding/hex"
	"slices"
)

// Content returns the bytes of the pattern, and its mask; nil: every bit counts.
func (b *ByteMatch) Content() (content, mask []byte) {
	if b.Mask != "" {
		mask = decoded(b.Mask)
	}
	return textOrHex(b.Text, b.Hex), mask
}

// Value returns the value of the TLV; nil: any.
func (t *TLVMatch) Value() []byte {
	if t.Text == "" && t.Hex == "" {
		return nil
	}
	return textOrHex(t.Text, t.Hex)
}

func textOrHex(text, digits string) []byte {
	if digits != "" {
		return decoded(digits)
	}
	return []byte(text)
}

// decoded returns the bytes of digits, which were checked.
func decoded(digits string) []byte {
	b, _ := hex.DecodeString(digits)
	return b
}

// FirstBytes reports whether the route depends on a client's first bytes, and not on its hello alone.
func (m *Match) FirstBytes() bool {
	return len(m.Protocol)+len(m.Host)+len(m.Path)+len(m.User)+len(m.Database)+len(m.Bytes) > 0
}

// spoken returns the protocols that clients of the route may speak; empty: any.
func (m *Match) spoken() []string {
	switch {
	case len(m.Protocol) > 0:
		return m.Protocol
	case len(m.SNI)+len(m.ALPN) > 0:
		return []string{"tls"}
	case len(m.Host)+len(m.Path) > 0:
		return []string{"http1"}
	case len(m.User)+len(m.Database) > 0:
		return []string{"postgres"}
	}
	return nil
}

// silent reports whether the route takes silent clients.
func (m *Match) silent() bool { return slices.Contains(m.Protocol, "silence") }

func (b *ByteMatch) equal(o *ByteMatch) bool {
	one, oneMask := b.Content()
	other, otherMask := o.Content()
	return b.Offset == o.Offset && slices.Equal(one, other) && slices.Equal(oneMask, otherMask)
}

func (t *TLVMatch) equal(o *TLVMatch) bool {
	return t.Type == o.Type && slices.Equal(t.Value(), o.Value()) && (t.Value() == nil) == (o.Value() == nil)
}
