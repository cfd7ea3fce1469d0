package arena_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/penstock/penstock/arena"
)

var sink []byte

// BenchmarkLease takes a buffer, writes a byte to it and gives it back.
func BenchmarkLease(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("arena/%d", size), func(b *testing.B) {
			l := plain(b, 64, 1).Local(0)
			b.ReportAllocs()
			for b.Loop() {
				lease(b, l, size)
			}
		})
		b.Run(fmt.Sprintf("sync.Pool/%d", size), func(b *testing.B) {
			p := sync.Pool{New: func() any { s := make([]byte, size); return &s }}
			b.ReportAllocs()
			for b.Loop() {
				s := p.Get().(*[]byte)
				(*s)[0] = 1
				p.Put(s)
			}
		})
		b.Run(fmt.Sprintf("make/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = make([]byte, size)
				sink[0] = 1
			}
		})
	}
}

func lease(b *testing.B, l *arena.Local, size int) {
	h, err := l.Get(size, arena.Residue)
	if err != nil {
		b.Fatal(err)
	}
	s, err := l.Bytes(h)
	if err != nil {
		b.Fatal(err)
	}
	s[0] = 1
	if err := l.Put(h); err != nil {
		b.Fatal(err)
	}
}
