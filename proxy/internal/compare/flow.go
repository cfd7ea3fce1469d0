package compare

import (
	"bytes"
	"hash/maphash"
	"math"
	"unsafe"
)

// The sides of a comparison.
const (
	primary = iota
	shadow
)

// contextBytes is how much an example has on either side of the first difference.
const contextBytes = 128

var seed = maphash.MakeSeed()

// notHashed is the position from which an answer is hashed if all of it is kept or compared.
const notHashed = math.MaxInt64

// An answer is a record of the side that is ahead. Its bytes from hashed on are not kept, but
// summed up.
type answer struct {
	total  int64  // bytes of the side ahead so far
	hashed int64  // position of the first byte that is summed up, or notHashed
	sum    uint64 // of those bytes, once the side ahead has ended the answer
	shape  uint64 // of the side ahead, then
	end    int64  // when that was
	kept   int32  // bytes in the queue that the other side has not reached
	name   name
	done   bool // the side ahead has ended the answer
	summed bool // sum is of all bytes and the shape
	masked bool // the answer is not compared
}

// A flow is a sequence of answers of both sides: the n-th of one side is compared with the n-th
// of the other. One side is ahead of the other: the flow has records of its answers from
// that on which the other side is in, and keeps the bytes between the two. If those are too many, the
// rest of an answer is summed up, and the sums are compared as soon as the other side is there too.
// So equal answers of any length need memory for the lead alone.
type flow struct {
	s       *Session
	ahead   int // the side with the records
	answers answers
	lead    fifo
	behind  int64            // the other side's position in the oldest answer
	sums    *[2]maphash.Hash // by side, of the bytes from hashed on; nil until there are such
	diff    *difference      // in the oldest answer
	judged  bool             // it is counted already
	last    [contextBytes]byte
	lastN   int
}

const (
	flowBytes = int(unsafe.Sizeof(flow{}))
	sumsBytes = int(unsafe.Sizeof([2]maphash.Hash{}))
)

// newFlow returns another flow of a session. Where there is no memory for it, comparing ends.
func newFlow(s *Session) *flow {
	f := &flow{}
	if !s.purse.take(flowBytes) {
		s.stop(Full)
	}
	f.init(s)
	return f
}

func (f *flow) init(s *Session) {
	f.s = s
}

// begin is the begin of a side's next answer.
func (f *flow) begin(side int, n name, masked bool) {
	if f.answers.n == 0 {
		f.ahead, f.behind, f.lastN = side, 0, 0
	}
	if side != f.ahead {
		return // it is in the oldest answer already
	}
	if !f.answers.push(&f.s.purse, answer{hashed: notHashed, name: n, masked: masked}) {
		f.s.stop(Full)
	}
}

// data is the next bytes of a side's answer.
func (f *flow) data(side int, b []byte) {
	if side != f.ahead {
		if b = f.follow(side, b); len(b) == 0 {
			return
		}
		f.swap()
	}
	f.extend(b)
}

// extend adds bytes to the newest answer of the side ahead.
func (f *flow) extend(b []byte) {
	a := f.answers.tail()
	switch {
	case f.answers.n == 1 && f.diff != nil:
		f.diff.add(f.ahead, b)
		a.total += int64(len(b))
		return
	case a.hashed == notHashed:
		n := 0
		if f.answers.n <= keptAnswers {
			n = f.lead.push(&f.s.purse, b)
		}
		a.total, a.kept, b = a.total+int64(n), a.kept+int32(n), b[n:]
		if len(b) == 0 {
			return
		}
		if !f.sum() {
			return
		}
		a.hashed = a.total
		f.sums[f.ahead].Reset()
		if f.answers.n == 1 {
			f.sums[1-f.ahead].Reset()
		}
		f.s.report.summed.Add(1)
	}
	f.sums[f.ahead].Write(b)
	a.total += int64(len(b))
}

// sum takes the memory for sums.
func (f *flow) sum() bool {
	if f.sums == nil {
		if !f.s.purse.take(sumsBytes) {
			f.s.stop(Full)
			return false
		}
		f.sums = new([2]maphash.Hash)
		f.sums[primary].SetSeed(seed)
		f.sums[shadow].SetSeed(seed)
	}
	return true
}

// follow compares bytes of the side behind, and returns those that are beyond the bytes
// of the other side.
func (f *flow) follow(side int, b []byte) []byte {
	a := &f.answers.oldest
	for len(b) > 0 {
		switch {
		case f.diff != nil:
			f.diff.add(side, b)
			f.behind += int64(len(b))
			return nil
		case a.kept > 0:
			b = b[f.compare(side, a, b):]
		case f.behind < a.total:
			n := min(int64(len(b)), a.total-f.behind)
			f.sums[side].Write(b[:n])
			f.behind += n
			b = b[n:]
			if f.behind == a.total {
				f.meet(side, a)
			}
		case a.done:
			f.differ(a, min(a.total, a.hashed), a.hashed == notHashed)
		default:
			return b
		}
	}
	return nil
}

// compare compares bytes with those that are kept, and returns how many were equal.
func (f *flow) compare(side int, a *answer, b []byte) int {
	kept := f.lead.head(min(len(b), int(a.kept)))
	n := len(kept)
	if !bytes.Equal(kept, b[:n]) {
		n = 0
		for kept[n] == b[n] {
			n++
		}
	}
	f.remember(b[:n])
	differs := n < len(kept)
	f.behind += int64(n)
	a.kept -= int32(n)
	f.lead.pop(&f.s.purse, n)
	if differs {
		f.differ(a, f.behind, true)
	} else if a.kept == 0 && a.hashed != notHashed {
		f.sums[side].Reset()
	}
	return n
}

// meet compares the sums of both sides, which are at the same position.
func (f *flow) meet(side int, a *answer) {
	if a.summed {
		return // until the end, as the shape is in the sum
	}
	sum := a.sum
	if !a.done {
		sum = f.sums[1-side].Sum64()
	}
	if f.sums[side].Sum64() != sum {
		f.differ(a, a.hashed, false)
		return
	}
	a.hashed, f.lastN = notHashed, 0
}

// remember keeps the last bytes that were equal, for an example.
func (f *flow) remember(b []byte) {
	if len(b) >= contextBytes {
		f.lastN = copy(f.last[:], b[len(b)-contextBytes:])
		return
	}
	if drop := f.lastN + len(b) - contextBytes; drop > 0 {
		copy(f.last[:], f.last[drop:f.lastN])
		f.lastN -= drop
	}
	f.lastN += copy(f.last[f.lastN:], b)
}

// differ notes the first difference of the oldest answer.
func (f *flow) differ(a *answer, at int64, exact bool) {
	f.diff = f.s.difference(a.name, at, exact)
	if exact {
		f.diff.before(f.last[:f.lastN])
	}
	for a.kept > 0 {
		b := f.lead.head(int(a.kept))
		f.diff.add(f.ahead, b)
		a.kept -= int32(len(b))
		f.lead.pop(&f.s.purse, len(b))
	}
}

// swap makes the other side the one ahead. Both are in the same answer, which the side ahead
// has not ended, and have no equal bytes to compare any more.
func (f *flow) swap() {
	a := &f.answers.oldest
	a.total, f.behind = f.behind, a.total
	a.hashed = notHashed
	f.ahead = 1 - f.ahead
}

// end is the end of a side's answer. The shape is a sum of the lengths of its parts.
func (f *flow) end(side int, shape uint64, now int64) {
	if f.answers.n == 0 {
		return // comparing has stopped
	}
	a := &f.answers.oldest
	if side != f.ahead {
		if f.diff == nil && f.behind < a.total {
			f.differ(a, min(f.behind, a.hashed), f.behind <= a.hashed)
		}
		if a.done {
			switch {
			case f.diff != nil:
			case a.summed && sumOf(f.sums[side].Sum64(), shape) != a.sum:
				f.differ(a, 0, false)
			case !a.summed && a.shape != shape:
				f.differ(a, a.total, false)
			}
			f.settle(a, now)
			return
		}
		f.swap()
	}
	a = f.answers.tail()
	a.done, a.end, a.shape = true, now, shape
	if a.hashed != notHashed {
		a.sum = f.sums[side].Sum64()
	}
	if f.s.broken && side == primary {
		f.s.judge(f)
	}
}

// settle counts the oldest answer, which both sides have ended.
func (f *flow) settle(a *answer, now int64) {
	lag := now - a.end // how much later the shadow has ended it
	if f.ahead == shadow {
		lag = -lag
	}
	f.s.report.settle(f, a, lag)
	f.next()
}

// next goes on to the next answer.
func (f *flow) next() {
	f.lead.pop(&f.s.purse, int(f.answers.oldest.kept))
	f.answers.pop(&f.s.purse)
	f.behind, f.lastN = 0, 0
	f.s.drop(f.diff)
	f.diff = nil
	if f.sums != nil {
		f.sums[1-f.ahead].Reset()
	}
}

// finish settles the answers that are there as the session ends: those of which both sides
// have sent equal bytes are equal if nothing was cut, and else undecided.
func (f *flow) finish(complete bool) {
	for first := true; f.answers.n > 0; first = false {
		a := &f.answers.oldest
		if complete && f.diff == nil && (f.behind < a.total || !first || a.done) {
			f.differ(a, min(f.behind, a.hashed), f.behind <= a.hashed)
		}
		switch {
		case complete || f.diff != nil:
			f.s.report.settle(f, a, 0)
		case !first || !f.judged:
			f.s.report.unsettled(a.name)
		}
		f.next()
	}
	f.lead.clear(&f.s.purse)
	f.answers.clear(&f.s.purse)
	if f.sums != nil {
		f.s.purse.give(sumsBytes)
		f.sums = nil
	}
}
