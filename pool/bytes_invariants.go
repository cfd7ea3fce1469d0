//go:build invariants

package pool

import (
	"fmt"
	"sync"
	"unsafe"
)

// leases knows every buffer that is out, and panics when one comes back that is
// not: put twice, sliced to the capacity of another class, or never got here.
type leases struct {
	mu  sync.Mutex
	out map[*byte]int // capacity by first byte
}

func (l *leases) add(buf []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		l.out = make(map[*byte]int)
	}
	if _, ok := l.out[unsafe.SliceData(buf)]; ok {
		panic("pool: bytes: buffer in two hands")
	}
	l.out[unsafe.SliceData(buf)] = cap(buf)
}

func (l *leases) remove(buf []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok := l.out[unsafe.SliceData(buf)]; !ok || n != cap(buf) {
		panic(fmt.Sprintf("pool: bytes: put of a buffer of capacity %d that is not leased", cap(buf)))
	}
	delete(l.out, unsafe.SliceData(buf))
}

func (l *leases) refuse(buf []byte) {
	panic(fmt.Sprintf("pool: bytes: put of a foreign buffer of capacity %d", cap(buf)))
}
