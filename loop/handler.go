package loop

// Events are the kinds of readiness of a descriptor, as bits of epoll_ctl(2).
type Events uint32

// A Handler gets the events of a descriptor.
type Handler interface {
	// Ready is called on the loop's goroutine. which is the value passed to [Loop.Add], so
	// that one handler can serve several descriptors. No events at all means that this is the
	// call that [Loop.Again] asked for.
	Ready(which uint8, events Events)
}

// An ID names one registration of a descriptor with a loop: a slot of its table, and the
// slot's generation. One that is not in force any more is stale: it is refused, whatever has
// the slot or the descriptor's number now. The zero ID is always stale.
type ID uint64

func newID(slot uint32, generation uint32) ID { return ID(generation)<<32 | ID(slot) }

func (id ID) slot() uint32       { return uint32(id) }
func (id ID) generation() uint32 { return uint32(id >> 32) }
