// Package traffic is what the benchmark's sink and load have in common: the content that flows between them, and
// the lines that request it.
//
// The content is a table of pseudo-random bytes that repeats for ever. Its period is a prime just below 64 KiB. So
// if a page, a pipe slot or a buffer is lost, doubled or out of place, the bytes differ, unless they moved by a
// multiple of [Period]. Each stream starts at another place in the table. So bytes that come out of the wrong
// connection are noticed, too. A check is one comparison of memory, which is cheap enough for every byte.
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
	// stride spreads consecutive seeds over the table. It is coprime to Period, so Period consecutive seeds start
	// at different places.
	stride = 40503
)

// table has the content once. Then the beginning follows, long enough for a chunk that starts at the last byte. It
// must not be written to.
var table = sync.OnceValue(func() []byte {
	source := rand.NewChaCha8([32]byte([]byte("penstock's benchmark, content, 1")))
	t := make([]byte, Period, Period+MaxChunk)
	_, _ = source.Read(t) // it never fails (math/rand/v2)
	for len(t) < cap(t) {
		t = append(t, t[:min(Period, cap(t)-len(t))]...)
	}
	return t
})

// Stream is a position in the content. Make one with NewStream: the zero value cannot be used. It is not safe for
// concurrent use.
type Stream struct {
	table []byte
	at    int // below Period
}

// NewStream returns the content for a seed, from the beginning.
func NewStream(seed uint32) *Stream {
	return &Stream{table: table(), at: int(uint64(seed) * stride % Period)}
}

// Next returns the next n bytes of content, and moves past them. n is at most MaxChunk. All callers share the
// slice, so they must not write to it.
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
