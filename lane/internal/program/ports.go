package program

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
)

const (
	// hashes is how many different hashes two ports can have.
	hashes = 1 << 16
	// bitsSize and placesSize are the sizes of the maps ports and places in bytes: one bit and 32 bits for each
	// hash.
	bitsSize, placesSize = hashes / 8, hashes * 4
)

// ports has the maps ports and places, and counts the tuples behind each hash of two ports.
//
// The map ports has a bit for each hash. The programs look for a session only if the bit is set, so that
// packets without a session cost less. A bit is set before its tuple can be found, and cleared after the tuple
// is removed.
//
// If only one tuple has a hash, the map places has the place of this tuple's session under the hash. With it
// the programs find the session without the table of tuples. A place is set after its tuple can be found in the
// table, and cleared before the tuple is removed. If two tuples had the same hash, there is no place until both
// are gone.
type ports struct {
	mu      sync.Mutex
	bits    []byte // the mapping of the map ports
	places  []byte // the mapping of the map places
	counts  hashCounts
	of      [][2]uint16 // the hashes of a slot's tuples by side, if the tuples are counted
	counted []uint8     // two bits for each slot, one for each side: whether its tuple is counted
}

// hashCounts counts the tuples with each hash. Few hashes have more than 255 tuples.
type hashCounts struct {
	least []uint8           // up to 255
	rest  map[uint16]uint32 // the tuples above 255
}

// add counts one more tuple with a hash, and reports whether it is the first one.
func (c *hashCounts) add(hash uint16) (first bool) {
	if c.least[hash] == math.MaxUint8 {
		c.rest[hash]++
		return false
	}
	c.least[hash]++
	return c.least[hash] == 1
}

// remove counts one tuple less with a hash, and reports whether it was the last one.
func (c *hashCounts) remove(hash uint16) (last bool) {
	switch n := c.rest[hash]; n {
	case 0:
		c.least[hash]--
		return c.least[hash] == 0
	case 1:
		delete(c.rest, hash)
	default:
		c.rest[hash] = n - 1
	}
	return false
}

// one reports whether exactly one tuple has a hash.
func (c *hashCounts) one(hash uint16) bool { return c.least[hash] == 1 }

// hash is the programs' hash. The two directions of a connection have different hashes.
func hash(t *laneTuple) uint16 { return t.RemotePort*0x9e37 + t.LocalPort }

// open maps the maps into memory, and counts the tuples of an adopted table with that many slots. It removes
// tuples that lead to no session.
func (f *ports) open(slots uint32, o *laneObjects, leads func(*laneTuple, *lanePlace) bool) (err error) {
	f.counts = hashCounts{least: make([]uint8, hashes), rest: make(map[uint16]uint32)}
	f.of, f.counted = make([][2]uint16, slots), make([]uint8, (slots+3)/4)
	if f.bits, err = mapped(o.Ports, bitsSize); err != nil {
		return fmt.Errorf("memory of the ports: %w", err)
	}
	if f.places, err = mapped(o.Places, placesSize); err != nil {
		return errors.Join(fmt.Errorf("memory of the places: %w", err), f.close())
	}
	var key laneTuple
	var at lanePlace
	var lost []laneTuple
	all := o.Flows.Iterate()
	for all.Next(&key, &at) {
		if leads(&key, &at) {
			f.add(at.Slot, int(at.Side), &key)
			f.lead(at.Slot, int(at.Side))
		} else {
			lost = append(lost, key)
		}
	}
	for i := range lost {
		_ = o.Flows.Delete(&lost[i]) // a SYN may have removed it meanwhile
	}
	if err := all.Err(); err != nil {
		return errors.Join(fmt.Errorf("ports of pinned sessions: %w", err), f.close())
	}
	return nil
}

// mapped maps a map into memory. The caller unmaps it.
func mapped(m *ebpf.Map, size int) ([]byte, error) {
	b, err := syscall.Mmap(m.FD(), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return b, os.NewSyscallError("mmap", err)
}

func (f *ports) close() (err error) {
	for _, b := range []*[]byte{&f.bits, &f.places} {
		if *b != nil {
			err = errors.Join(err, os.NewSyscallError("munmap", syscall.Munmap(*b)))
		}
		*b = nil
	}
	return err
}

// place is the number that stands for a side of a slot in the map places. There 0 means no place.
func place(slot uint32, side int) uint32 { return slot<<1 + uint32(side) + 1 }

// flag returns the bit that says whether the tuple of a side is counted.
func (f *ports) flag(slot uint32, side int) (in *uint8, mask uint8) {
	return &f.counted[slot/4], 1 << (slot%4*2 + uint32(side))
}

// hashOf returns the hash of the tuple of a side, if it is counted.
func (f *ports) hashOf(slot uint32, side int) (hash uint16, counted bool) {
	in, mask := f.flag(slot, side)
	return f.of[slot][side], *in&mask != 0
}

// word returns the word that has a bit, and the bit's mask. The mapping has whole pages, so the word is within
// it.
func (f *ports) word(bit uint16) (word *uint64, mask uint64) {
	return (*uint64)(unsafe.Pointer(&f.bits[int(bit>>6)*8])), 1 << (bit & 63)
}

// place returns the entry of a hash in the map places.
func (f *ports) place(hash uint16) *uint32 { return (*uint32)(unsafe.Pointer(&f.places[int(hash)*4])) }

// add counts the tuple of one side of a slot.
func (f *ports) add(slot uint32, side int, t *laneTuple) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bit := hash(t)
	f.of[slot][side] = bit
	counted, flag := f.flag(slot, side)
	*counted |= flag
	if !f.counts.add(bit) {
		atomic.StoreUint32(f.place(bit), 0)
		return
	}
	word, mask := f.word(bit)
	atomic.OrUint64(word, mask)
}

// lead lets the programs find the tuple of one side of a slot by its place, if no other tuple has the same
// hash. The tuple must be counted, and in the table.
func (f *ports) lead(slot uint32, side int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bit, ok := f.hashOf(slot, side); ok && f.counts.one(bit) {
		atomic.StoreUint32(f.place(bit), place(slot, side))
	}
}

// mislead removes the place of the tuple of one side of a slot, so that the programs find the tuple only by the
// table. It must be called before the tuple is removed from the table.
func (f *ports) mislead(slot uint32, side int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bit, ok := f.hashOf(slot, side); ok {
		atomic.CompareAndSwapUint32(f.place(bit), place(slot, side), 0)
	}
}

// remove is the reverse of add. It does nothing if the tuple is not counted.
func (f *ports) remove(slot uint32, side int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bit, ok := f.hashOf(slot, side)
	if !ok {
		return
	}
	counted, flag := f.flag(slot, side)
	*counted &^= flag
	if f.counts.remove(bit) {
		word, mask := f.word(bit)
		atomic.AndUint64(word, ^mask)
	}
}
