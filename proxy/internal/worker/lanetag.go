package worker

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A LaneTag is the names of a session as the kernel keeps them beside its account in the lane, for a process after this one: a hash of that of its listener, and
// one of that of its upstream. It is the same for all versions of the program that have the same records.
type LaneTag struct{ Listener, Upstream uint64 }

// LaneHash returns the hash of a name. It is never 0, which stands for no name.
func LaneHash(name string) uint64 { return max(xxh3.HashString(name), 1) }

// LaneTagOf returns the tag of a session in the lane.
func LaneTagOf(tag [16]byte) LaneTag {
	return LaneTag{binary.LittleEndian.Uint64(tag[:8]), binary.LittleEndian.Uint64(tag[8:])}
}

// bytes is the inverse of LaneTagOf.
func (t LaneTag) bytes() (tag [16]byte) {
	binary.LittleEndian.PutUint64(tag[:8], t.Listener)
	binary.LittleEndian.PutUint64(tag[8:], t.Upstream)
	return tag
}
