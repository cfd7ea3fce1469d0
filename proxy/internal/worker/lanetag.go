package worker

import (
	"encoding/binary"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
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

var _ lane.Tagged = (*laneSession)(nil)

// Tag implements [lane.Tagged]. It is called by the loop.
func (c *laneSession) Tag() (tag [16]byte, begun time.Duration) {
	t := LaneTag{Listener: LaneHash(c.conn.ref.serving.socket.Name)}
	if b := c.conn.binding(); b != nil {
		upstream, _ := b.Names()
		t.Upstream = LaneHash(upstream)
	}
	if now, err := sys.Monotonic(); err == nil { // else the session begins now
		begun = now - c.conn.result().Duration
	}
	return t.bytes(), begun
}
