// Package traffic is the common ground of the benchmark's sink and its load: the content
// that flows between them, and the lines that ask for it.
//
// The content is a table of pseudo-random bytes repeated for ever. Its period is a prime just
// below 64 KiB. So a page, a pipe slot or a buffer that is lost, doubled or out of place
// cannot fall on equal content. For that it would have to be displaced by a multiple of
// [Period]. Each stream starts at a place of its own in the table, so bytes of one connection
// that surface in another are seen too. Checking costs one comparison of memory, cheap enough
// to be done on every byte.
package traffic

import (
	"bytes"
	"math/rand/v2"
	"sync"
)

const (
	// Period is the number of bytes after which the content repeats.
	Period = 65521
	// MaxChunk is the longest slice that Stream.Next returns, in bytes.
	MaxChunk = 128 << 10
	// stride spreads consecutive seeds over the table. It is coprime to
	// Period, so Period consecutive seeds start at as many places.
	stride = 40503
)

// table holds the content once, and then enough of its beginning for a chunk that starts at
// its last byte. It is never written to.
var table = sync.OnceValue(func() []byte {
	source := rand.NewChaCha8([32]byte([]byte("penstock's benchmark, content, 1")))
	t := make([]byte, Period, Period+MaxChunk)
	_, _ = source.Read(t) // documented never to fail
	for len(t) < cap(t) {
		t = append(t, t[:min(Period, cap(t)-len(t))]...)
	}
	return t
})

// Stream is a place in the content. The zero value is not usable; NewStream
// makes one. It is not safe for concurrent use.
type Stream struct {
	table []byte
	at    int // below Period
}

// NewStream returns the content that belongs to seed, from its beginning.
func NewStream(seed uint32) *Stream {
	return &Stream{table: table(), at: int(uint64(seed) * stride % Period)}
}

// Next returns the next n bytes of content, n at most MaxChunk, and moves past them. The slice
// is shared by all callers and must only be read.
func (s *Stream) Next(n int) []byte {
	b := s.table[s.at : s.at+min(n, MaxChunk)]
	s.at = (s.at + len(b)) % Period
	return b
}

// Back moves back over the last n bytes of content.
func (s *Stream) Back(n int) { s.at = ((s.at-n)%Period + Period) % Period }

// Check reports whether b is the next len(b) bytes of content, and moves past
// them.
func (s *Stream) Check(b []byte) bool {
	for len(b) > 0 {
		want := s.Next(len(b))
		if !bytes.Equal(b[:len(want)], want) {
			return false
		}
		b = b[len(want):]
	}
	return true
}
