//go:build invariants

package pool

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/penstock/penstock/internal/callsite"
)

// leases knows every buffer that is out, and panics when one comes back that is
// not: put twice, sliced to the capacity of another class, or never got here.
type leases struct {
	mu   sync.Mutex
	out  map[*byte]int             // capacity by first byte
	back map[uintptr]callsite.Site // where the last buffer of an address was given back
}

func (l *leases) add(buf []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		l.out, l.back = make(map[*byte]int), make(map[uintptr]callsite.Site)
	}
	if _, ok := l.out[unsafe.SliceData(buf)]; ok {
		panic("pool: bytes: buffer in two hands")
	}
	l.out[unsafe.SliceData(buf)] = cap(buf)
	delete(l.back, address(buf))
}

func (l *leases) remove(buf []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := callsite.Here()
	if n, ok := l.out[unsafe.SliceData(buf)]; !ok || n != cap(buf) {
		panic(fmt.Sprintf("pool: bytes: put of a buffer of capacity %d that is not leased%s\n\tput at %v", cap(buf), l.before(buf), here))
	}
	delete(l.out, unsafe.SliceData(buf))
	l.back[address(buf)] = here
}

// before says where a buffer that begins at the same byte was given back, if one was.
func (l *leases) before(buf []byte) string {
	if site, ok := l.back[address(buf)]; ok {
		return fmt.Sprintf("\n\tput before at %v", site)
	}
	return ""
}

// address is a number, so that it keeps no buffer alive.
func address(buf []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buf))) }

func (l *leases) refuse(buf []byte) {
	panic(fmt.Sprintf("pool: bytes: put of a foreign buffer of capacity %d\n\tput at %v", cap(buf), callsite.Here()))
}
