//go:build invariants

package vecio

import (
	"fmt"
	"hash/maphash"
	"runtime/debug"

	"github.com/penstock/penstock/internal/callsite"
)

const invariants = true

// A site is the place in the program that gave a piece.
type site = callsite.Site

func here() site { return callsite.Here() }

// checks holds checksums of the queue's pieces that were not copied. After bytes were sent, and before the
// pieces are given back, the checksums are compared with the memory. A difference means that the program
// changed the piece, and the peer got wrong bytes.
//
// Each block of a piece has a checksum. After a part of the piece was sent, its blocks are compared, and after
// the whole piece, all blocks. So a large piece that leaves in many parts is read twice.
type checks struct{ blocks fifo[block] }

// A block is a part of a piece. It is dropped with the piece, so that it keeps nothing alive.
type block struct {
	start, end int64 // positions in the stream
	whole      int64 // the position where the piece ends
	piece      []byte
	offset     int // of the block within the piece
	proof
}

const blockSize = 4 << 10

// borrow takes the checksums of a piece that the present call gave, and that begins at the position at.
func (c *checks) borrow(p []byte, at int64) {
	given := here()
	for i := 0; i < len(p); i += blockSize {
		n := min(blockSize, len(p)-i)
		c.blocks.push(block{
			start: at + int64(i), end: at + int64(i+n), whole: at + int64(len(p)),
			piece: p, offset: i, proof: prove(p[i:i+n], given),
		})
	}
}

// sent compares the blocks of the bytes that were just sent, between two positions, and drops the pieces that
// are sent whole.
func (c *checks) sent(before, written int64) {
	for i := range c.blocks.all() {
		b := &c.blocks.all()[i]
		if b.start >= written {
			break
		}
		if b.end > before || b.whole <= written {
			b.check()
		}
	}
	for c.blocks.len() > 0 && c.blocks.all()[0].whole <= written {
		c.blocks.pop()
	}
}

func (c *checks) reset() { c.blocks.reset() }

func (b *block) check() {
	end := b.offset + int(b.end-b.start)
	if b.differs(b.piece[b.offset:end]) {
		panic(fmt.Sprintf("vecio: a piece of %d bytes was changed before it was sent: bytes %d to %d of it differ\n\tgiven at %v",
			len(b.piece), b.offset, end-1, b.given))
	}
}

// A proof is a checksum of a block, with the place where its piece was given.
type proof struct {
	given    site
	sum      uint64
	readable bool
}

func prove(p []byte, given site) proof {
	s, ok := sum(p)
	return proof{given, s, ok}
}

func (f proof) differs(p []byte) bool {
	s, ok := sum(p)
	return ok && f.readable && s != f.sum
}

var seed = maphash.MakeSeed()

// sum returns a checksum, or false for memory that cannot be read, which the kernel reports as EFAULT.
func sum(p []byte) (s uint64, readable bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			readable = false
		}
	}()
	return maphash.Bytes(seed, p), true
}
