package program

import (
	"errors"
	"fmt"
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
	// bitsSize and placesSize are those of the maps ports and places, a bit and 32 bits for each hash.
	bitsSize, placesSize = hashes / 8, hashes * 4
)

// ports is the map of that name, a bit for each hash of two ports, and the counts behind the bits. The programs look for
// a session only where the bit is set, so that packets of no session cost less. A bit is set before its tuple can be
// found, and cleared after.
//
// It is also the map places, by which the programs find the session of a hash that one tuple alone has without a look in the
// table. A place is set after its tuple can be found there, and cleared before it cannot. Where two tuples have had one hash
// there is none until both are gone.
type ports struct {
	mu     sync.Mutex
	bits   []byte            // the mapping of the map ports
	places []byte            // the mapping of the map places
	counts map[uint16]int    // of a hash, those that are not 0
	of     map[uint64]uint16 // the hashes of tuples that are counted, by slot and side
}

// hash is that of the programs, another one for the other direction.
func hash(t *laneTuple) uint16 { return t.RemotePort*0x9e37 + t.LocalPort }

// open maps the maps, and counts the tuples of an adopted table. It removes those that lead to no session.
func (f *ports) open(o *laneObjects, leads func(*laneTuple, *lanePlace) bool) (err error) {
	f.counts, f.of = make(map[uint16]int), make(map[uint64]uint16)
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

func place(slot uint32, side int) uint64 { return uint64(slot)<<1 | uint64(side) }

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
	f.of[place(slot, side)] = bit
	f.counts[bit]++
	if f.counts[bit] > 1 {
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
	at := place(slot, side)
	if bit, ok := f.of[at]; ok && f.counts[bit] == 1 {
		atomic.StoreUint32(f.place(bit), uint32(at)+1)
	}
}

// mislead has the programs look for the tuple of one side of a slot in the table alone. It comes before the tuple is removed from there.
func (f *ports) mislead(slot uint32, side int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := place(slot, side)
	if bit, ok := f.of[at]; ok {
		atomic.CompareAndSwapUint32(f.place(bit), uint32(at)+1, 0)
	}
}

// remove takes the tuple of one side of a slot back, if it is counted.
func (f *ports) remove(slot uint32, side int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bit, ok := f.of[place(slot, side)]
	if !ok {
		return
	}
	delete(f.of, place(slot, side))
	if f.counts[bit]--; f.counts[bit] == 0 {
		delete(f.counts, bit)
		word, mask := f.word(bit)
		atomic.AndUint64(word, ^mask)
	}
}
