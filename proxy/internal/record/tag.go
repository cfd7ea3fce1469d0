package record

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A Tag is the names of a session as the kernel keeps them beside its account in the lane, for a process after this one: the hashes of its
// listener's and its upstream's name. It is the same for all versions of the program that have the same records.
type Tag struct{ Listener, Upstream uint64 }

// HashOf returns the hash of a name. It is never 0, which stands for no name.
func HashOf(name string) uint64 { return max(xxh3.HashString(name), 1) }

// TagOf returns the tag of a session in the lane.
func TagOf(b [16]byte) Tag {
	return Tag{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// Bytes is the inverse of TagOf.
func (t Tag) Bytes() (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:8], t.Listener)
	binary.LittleEndian.PutUint64(b[8:], t.Upstream)
	return b
}
