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
