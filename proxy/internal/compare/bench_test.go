package compare

import (
	"bytes"
	"testing"
)

func BenchmarkBytes(b *testing.B) {
	bench(b, Config{Framing: Bytes}, nil, bytes.Repeat([]byte("0123456789abcdef"), 64<<10))
}

func BenchmarkLines(b *testing.B) {
	bench(b, Config{Framing: Lines}, nil, bytes.Repeat([]byte("a line of sixty-four bytes, which is how long some lines can be\n"), 16<<10))
}

func BenchmarkMasked(b *testing.B) {
	bench(b, Config{Framing: Lines, Mask: []Mask{{Pattern: "[0-9]{4}-[0-9]{2}-[0-9]{2}"}}}, nil,
		bytes.Repeat([]byte("a line of sixty-four bytes, 2026-11-26, how long lines can be..\n"), 16<<10))
}

func BenchmarkLengths(b *testing.B) {
	bench(b, Config{Framing: LengthPrefixed, Length: Length{Width: 2}}, nil, bytes.Repeat(append([]byte{4, 0}, make([]byte, 1024)...), 1<<10))
}
