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

// portWords are the words of the map ports, 64 bits each.
const portWords = 1 << 10

// ports is the map of that name, a bit for each hash of two ports, and the counts behind the bits. The programs look for
// a session only where the bit is set, so that packets of no session cost less. A bit is set before its tuple can be
// found, and cleared after.
type ports struct {
	mu     sync.Mutex
	memory []byte            // the mapping of the map
	counts map[uint16]int    // of a bit, those that are not 0
	of     map[uint64]uint16 // the bits of tuples that are counted, by slot and side
}

// hash is that of the programs, the same for both directions.
func hash(t *laneTuple) uint16 { return t.RemotePort ^ t.LocalPort }

// open maps the map, and counts the tuples of an adopted table. It removes those that lead to no session.
func (f *ports) open(m, flows *ebpf.Map, leads func(*laneTuple, *lanePlace) bool) (err error) {
	f.counts, f.of = make(map[uint16]int), make(map[uint64]uint16)
	f.memory, err = syscall.Mmap(m.FD(), 0, portWords*8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("memory of the ports: %w", os.NewSyscallError("mmap", err))
	}
	var key laneTuple
	var at lanePlace
	var lost []laneTuple
	all := flows.Iterate()
	for all.Next(&key, &at) {
		if leads(&key, &at) {
			f.add(at.Slot, int(at.Side), &key)
		} else {
			lost = append(lost, key)
		}
	}
	for i := range lost {
		_ = flows.Delete(&lost[i]) // a SYN may have removed it meanwhile
	}
	if err := all.Err(); err != nil {
		return errors.Join(fmt.Errorf("ports of pinned sessions: %w", err), f.close())
	}
	return nil
}

func (f *ports) close() error {
	err := syscall.Munmap(f.memory)
	f.memory = nil
	return os.NewSyscallError("munmap", err)
}

func place(slot uint32, side int) uint64 { return uint64(slot)<<1 | uint64(side) }

// word returns the word of a bit. The mapping is of whole pages.
func (f *ports) word(bit uint16) (word *uint64, mask uint64) {
	return (*uint64)(unsafe.Pointer(&f.memory[int(bit>>6)*8])), 1 << (bit & 63)
}

// add counts the tuple of one side of a slot.
func (f *ports) add(slot uint32, side int, t *laneTuple) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bit := hash(t)
	f.of[place(slot, side)] = bit
	if f.counts[bit]++; f.counts[bit] == 1 {
		word, mask := f.word(bit)
		atomic.OrUint64(word, mask)
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
