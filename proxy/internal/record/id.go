package record

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
)

// An ID names a session. It is a valid trace ID of the W3C's Trace Context: 16 bytes, not all zero. Its bits are
// spread evenly, so that a collector can sample by them.
type ID [16]byte

// String returns 32 hexadecimal digits in lower case.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID reads the text of an ID.
func ParseID(text string) (id ID, ok bool) {
	n, err := hex.Decode(id[:], []byte(text[:min(len(text), 2*len(id))]))
	return id, err == nil && n == len(id) && id.String() == text
}

// IsZero reports whether the ID names no session.
func (id ID) IsZero() bool { return id == ID{} }

// IDs makes the IDs of a process's sessions from a random number of the process and a counter. The IDs are unique,
// but not secret.
type IDs struct{ seed [2]uint64 }

// NewIDs returns a source of IDs.
func NewIDs() IDs {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	return IDs{[2]uint64{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}}
}

// Of returns the ID of the n-th session.
func (s IDs) Of(n uint64) (id ID) {
	hi, lo := mix(s.seed[0]+n), mix(s.seed[1]+n)
	if hi|lo == 0 {
		lo = 1
	}
	binary.BigEndian.PutUint64(id[:], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id
}

// mix spreads the small differences of seeds over all bits. Different seeds have different results (Steele, Lea
// and Flood, "Fast splittable pseudorandom number generators", 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
