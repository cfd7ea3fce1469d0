package loop

// maxAccept is how many connections a listener accepts in one turn at most. The
// handlers of the others wait meanwhile.
const maxAccept = 64

// A batchSize is how many connections a listener accepts at a time: as many as are
// surely in the queue, as far as that can be known without asking. It starts at 1,
// doubles after some turns in a row of which each found a full batch, and falls
// back when the queue was found empty. Each time that doubling was a mistake, it
// takes more such turns to do it again.
type batchSize struct {
	size  int
	full  int   // turns in a row
	need  int   // of them until it doubles
	grown bool  // it has doubled, and it is not known yet whether that was right
	last  int64 // turn
}

const (
	minNeed = 2
	maxNeed = 64
)

func newBatchSize() batchSize { return batchSize{size: 1, need: minNeed} }

// next returns the size for a turn in which the queue is not empty.
func (b *batchSize) next(turn int64) int {
	if turn != b.last+1 {
		b.size, b.full, b.grown = 1, 0, false // it was empty meanwhile
	}
	b.last = turn
	return b.size
}

// learn records the result of the batch.
func (b *batchSize) learn(n int, empty bool) {
	switch {
	case empty:
		b.size, b.full, b.need, b.grown = max(n, 1), 0, min(b.need*2, maxNeed), false
	case n == b.size:
		if b.grown {
			b.need, b.grown = max(b.need/2, minNeed), false
		}
		if b.full++; b.full >= b.need && b.size < maxAccept {
			b.size, b.full, b.grown = min(b.size*2, maxAccept), 0, true
		}
	}
}
