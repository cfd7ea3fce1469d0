package pool_test

import (
	"sync"
	"testing"

	"github.com/penstock/penstock/pool"
)

// copyBuffer is the size that a relay copies with.
const copyBuffer = 64 << 10

// BenchmarkBytes leases a buffer of 64 KiB and gives it back, beside the usual
// alternatives: sync.Pool of pointers to slices, of slices (whose header
// allocates), and making one each time.
func BenchmarkBytes(b *testing.B) {
	b.Run("penstock", func(b *testing.B) {
		p := newBytes(b, pool.BytesConfig{})
		b.ReportAllocs()
		for b.Loop() {
			leaseBytes(b, p, copyBuffer)
		}
	})
	b.Run("penstock/parallel", func(b *testing.B) {
		p := newBytes(b, pool.BytesConfig{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				leaseBytes(b, p, copyBuffer)
			}
		})
	})
	b.Run("syncPool", func(b *testing.B) {
		p := sync.Pool{New: func() any { return new(make([]byte, copyBuffer)) }}
		b.ReportAllocs()
		for b.Loop() {
			p.Put(p.Get().(*[]byte))
		}
	})
	b.Run("syncPool/slice", func(b *testing.B) {
		p := sync.Pool{New: func() any { return make([]byte, copyBuffer) }}
		b.ReportAllocs()
		for b.Loop() {
			p.Put(p.Get().([]byte)) //lint:ignore SA6002 that is the point
		}
	})
	b.Run("make", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			lastBuffer = make([]byte, copyBuffer)
		}
	})
}

var lastBuffer []byte

func leaseBytes(b *testing.B, p *pool.Bytes, n int) {
	buf, err := p.Get(n)
	if err != nil {
		b.Fatal(err)
	}
	p.Put(buf)
}

// BenchmarkBytesBudgetSpent measures the cost of a Get that finds no buffer.
func BenchmarkBytesBudgetSpent(b *testing.B) {
	p := newBytes(b, pool.BytesConfig{MaxSize: copyBuffer, Budget: copyBuffer})
	buf, err := p.Get(copyBuffer)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Get(copyBuffer); err == nil {
			b.Fatal("a buffer beyond the budget")
		}
	}
	p.Put(buf)
}

// BenchmarkRatioBytes is BenchmarkBytes against sync.Pool of *[]byte, in turn.
func BenchmarkRatioBytes(b *testing.B) {
	const ops = 40_000
	p := newBytes(b, pool.BytesConfig{})
	s := sync.Pool{New: func() any { return new(make([]byte, copyBuffer)) }}
	alternate(b, timed(func() {
		for range ops {
			leaseBytes(b, p, copyBuffer)
		}
	}), timed(func() {
		for range ops {
			s.Put(s.Get().(*[]byte))
		}
	}), ops)
}
