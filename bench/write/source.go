package write

import "math/rand/v2"

const (
	// working is how many bytes of pieces take turns: more than fit in a processor's first
	// cache, as in a server with many different responses.
	working = 256 << 10
	// apart is how far two pieces are from each other in memory, at least.
	apart = 64
)

// A source deals out batches, the same ones again and again.
type source struct {
	batches [][][]byte
	next    int
}

// newSource returns a source of batches with pieces of these lengths.
func newSource(pieces []int) *source {
	bytes, room := 0, 0
	for _, n := range pieces {
		bytes += n
		room += (n+apart-1)/apart*apart + apart
	}
	s := &source{batches: make([][][]byte, max(working/bytes, 2))}
	slab := make([]byte, room*len(s.batches))
	fill(slab)
	for i := range s.batches {
		for _, n := range pieces {
			s.batches[i] = append(s.batches[i], slab[:n:n])
			slab = slab[(n+apart-1)/apart*apart+apart:]
		}
	}
	return s
}

// batch is the next one. The pieces stay the source's, and their content stays
// the same.
func (s *source) batch() [][]byte {
	b := s.batches[s.next]
	if s.next++; s.next == len(s.batches) {
		s.next = 0
	}
	return b
}

// fill makes b of bytes that look like any others, the same ones every time.
func fill(b []byte) {
	random := rand.NewChaCha8([32]byte{'w', 'r', 'i', 't', 'e'})
	_, _ = random.Read(b) // never fails
}
