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
	// hashes is how many hashes of two ports there are.
	hashes = 1 << 16
	// bitsSize and placesSize are the sizes of the maps ports and places, a bit and 32 bits for each hash.
	bitsSize, placesSize = hashes / 8, hashes * 4
)

// ports is the map of that name, a bit for each hash of two ports, and the counts behind the bits. The programs look for
// a session only where the bit is set, so that packets of no session cost less. A bit is set before its tuple can be
// found, and cleared after.
//
// It is also the map places, by which the programs find the session of a hash that one tuple alone has without a look
// in the table. A place is set after its tuple can be found there, and cleared before it cannot. If two tuples had the
// same hash, there is no entry until both are gone.
type ports struct {
	mu      sync.Mutex
	bits    []byte // the mapping of the map ports
	places  []byte // the mapping of the map places
	counts  hashCounts
	of      [][2]uint16 // the hashes of the tuples of a slot, by side, if they are counted
	counted []uint8     // two bits for each slot, by side: whether its tuples are
}

// hashCounts are how many tuples have a hash. Few hashes have more than 255.
type hashCounts struct {
	least []uint8           // up to 255
	rest  map[uint16]uint32 // beyond that
}

// add counts a tuple more, and reports whether it is the first one.
func (c *hashCounts) add(hash uint16) (first bool) {
	if c.least[hash] == math.MaxUint8 {
		c.rest[hash]++
		return false
	}
	c.least[hash]++
	return c.least[hash] == 1
}

// remove counts a tuple less, and reports whether it was the last one.
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

// one reports whether one tuple alone has a hash.
func (c *hashCounts) one(hash uint16) bool { return c.least[hash] == 1 }

// hash is the programs' hash, another one for the other direction.
func hash(t *laneTuple) uint16 { return t.RemotePort*0x9e37 + t.LocalPort }

// open maps the maps, and counts the tuples of an adopted table of that many slots. It removes tuples that lead to no session.
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

// mapped maps the memory of a map. The caller unmaps it.
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

// place is the number of a side of a slot in the map places, where 0 is none.
func place(slot uint32, side int) uint32 { return slot<<1 + uint32(side) + 1 }

// flag is where it says whether the tuple of a side is counted.
func (f *ports) flag(slot uint32, side int) (in *uint8, mask uint8) {
	return &f.counted[slot/4], 1 << (slot%4*2 + uint32(side))
}

// hashOf returns the hash of the tuple of a side, if it is counted.
func (f *ports) hashOf(slot uint32, side int) (hash uint16, counted bool) {
	in, mask := f.flag(slot, side)
	return f.of[slot][side], *in&mask != 0
}

// word returns the word of a bit. The mapping is of whole pages.
func (f *ports) word(bit uint16) (word *uint64, mask uint64) {
	return (*uint64)(unsafe.Pointer(&f.bits[int(bit>>6)*8])), 1 << (bit & 63)
}

// place returns where the place of a hash is.
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

// lead has the programs find the tuple of one side of a slot, which is counted and in the table, by its place, if no other tuple has its hash.
func (f *ports) lead(slot uint32, side int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bit, ok := f.hashOf(slot, side); ok && f.counts.one(bit) {
		atomic.StoreUint32(f.place(bit), place(slot, side))
	}
}

// mislead makes the programs find the tuple of one side of a slot only by the table. It comes before the tuple is
// removed from there.
func (f *ports) mislead(slot uint32, side int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bit, ok := f.hashOf(slot, side); ok {
		atomic.CompareAndSwapUint32(f.place(bit), place(slot, side), 0)
	}
}

// remove takes the tuple of one side of a slot back, if it is counted.
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
