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

// contextBytes is how many bytes an example has on either side of the first difference.
const contextBytes = 128

var seed = maphash.MakeSeed()

// notHashed means that no part of an answer is hashed: all of it is kept or compared.
const notHashed = math.MaxInt64

// An answer is a record of an answer of the side that is ahead. Its bytes from the position hashed on are not
// kept but hashed.
type answer struct {
	next   *answer
	name   *tally
	lead   []byte // the kept bytes that the other side has not reached, from an index on
	from   int
	total  int64  // bytes that the side ahead has sent so far
	hashed int64  // position of the first hashed byte, or notHashed
	sum    uint64 // hash of these bytes, once the side ahead has ended the answer
	shape  uint64 // shape of the answer of the side ahead, once it has ended
	end    int64  // when the side ahead ended it
	done   bool   // the side ahead has ended the answer
	masked bool   // the answer is not compared
}

// A flow is the sequence of answers of both sides. It compares the nth answer of one side with the nth answer of the
// other. One side is ahead of the other. The flow has a record for each answer of the side ahead, from the answer
// that the other side is in, and keeps the bytes that the other side has not reached. If there are too many, it
// hashes the rest of an answer, and compares the hashes when the other side gets there. So equal answers of any
// length need memory only for the lead.
type flow struct {
	s              *Session
	ahead          int              // the side with the records
	oldest, newest *answer          // nil if there is none
	behind         int64            // the other side's position in the oldest answer
	sums           *[2]maphash.Hash // hashes by side, of the bytes from the position answer.hashed on; nil until needed
	diff           *difference      // the difference in the oldest answer
	last           [contextBytes]byte
	lastN          int
}

// spareBytes is the largest buffer that a session saves for its next lead.
const spareBytes = 8 << 10

const (
	answerBytes = int(unsafe.Sizeof(answer{}))
	sumsBytes   = int(unsafe.Sizeof([2]maphash.Hash{}))
)

// keep keeps as many bytes of an answer as there is room for, and returns how many.
func (f *flow) keep(a *answer, b []byte) int {
	p := &f.s.purse
	switch {
	case a.lead == nil:
		a.lead, f.s.spare = f.s.spare, nil
	case a.from > 0:
		a.lead, a.from = a.lead[:copy(a.lead, a.lead[a.from:])], 0
	}
	size := len(a.lead) + len(b)
	if len(a.lead) > 0 {
		size = max(size, 2*cap(a.lead), 256)
	}
	if more := min(size-cap(a.lead), keepBytes-p.lead); len(a.lead)+len(b) > cap(a.lead) && more > 0 && p.take(more) {
		p.lead += more
		a.lead = append(make([]byte, 0, cap(a.lead)+more), a.lead...)
	}
	n := min(len(b), cap(a.lead)-len(a.lead))
	a.lead = append(a.lead, b[:n]...)
	return n
}

// reach moves n bytes forward in the lead. When the lead is used up, its buffer is saved for the next lead, unless it
// is large.
func (f *flow) reach(a *answer, n int) {
	if a.from += n; a.from < len(a.lead) || a.lead == nil {
		return
	}
	if f.s.spare == nil && cap(a.lead) <= spareBytes {
		f.s.spare = a.lead[:0]
	} else {
		f.s.purse.lead -= cap(a.lead)
		f.s.purse.give(cap(a.lead))
	}
	a.lead, a.from = nil, 0
}

func (f *flow) begin(side int, name *tally, masked bool) {
	if f.oldest == nil {
		f.ahead, f.behind, f.lastN = side, 0, 0
	}
	switch {
	case side != f.ahead: // it is in the oldest answer already
		return
	case !f.s.purse.take(answerBytes):
		f.s.stop(Full)
		return
	}
	a := &answer{hashed: notHashed, name: name, masked: masked}
	if f.oldest == nil {
		f.oldest = a
	} else {
		f.newest.next = a
	}
	f.newest = a
}

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
	a := f.newest
	switch {
	case a == f.oldest && f.diff != nil:
		f.diff.add(f.ahead, b)
		a.total += int64(len(b))
		return
	case a.hashed == notHashed:
		n := f.keep(a, b)
		a.total, b = a.total+int64(n), b[n:]
		if len(b) == 0 || !f.sum() {
			return
		}
		a.hashed = a.total
		f.sums[f.ahead].Reset()
		if a == f.oldest {
			f.sums[1-f.ahead].Reset()
		}
		f.s.report.summed.Add(1)
	}
	f.sums[f.ahead].Write(b)
	a.total += int64(len(b))
}

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

// follow compares bytes of the side behind, and returns the bytes that the other side has not sent yet.
func (f *flow) follow(side int, b []byte) []byte {
	a := f.oldest
	for len(b) > 0 {
		switch {
		case f.diff != nil:
			f.diff.add(side, b)
			f.behind += int64(len(b))
			return nil
		case a.from < len(a.lead):
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

// compare compares bytes with the kept ones, and returns how many are equal.
func (f *flow) compare(side int, a *answer, b []byte) int {
	kept := a.lead[a.from:]
	kept = kept[:min(len(b), len(kept))]
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
	f.reach(a, n)
	if differs {
		f.differ(a, f.behind, true)
	} else if len(a.lead) == 0 && a.hashed != notHashed {
		f.sums[side].Reset()
	}
	return n
}

// meet compares the hashes of both sides, which are at the same position.
func (f *flow) meet(side int, a *answer) {
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

// remember keeps the last equal bytes for an example.
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

// differ notes the first difference in the oldest answer.
func (f *flow) differ(a *answer, at int64, exact bool) {
	f.diff = f.s.difference(a.name, at, exact)
	if exact {
		f.diff.before(f.last[:f.lastN])
	}
	f.diff.add(f.ahead, a.lead[a.from:])
	f.reach(a, len(a.lead)-a.from)
}

// swap puts the other side ahead. Both sides are in the same answer, which the side ahead has not ended, and no bytes
// are left to compare.
func (f *flow) swap() {
	a := f.oldest
	a.total, f.behind = f.behind, a.total
	a.hashed = notHashed
	f.ahead = 1 - f.ahead
}

// end ends a side's answer. shape is a hash of the lengths of its parts.
func (f *flow) end(side int, shape uint64, now int64) {
	a := f.oldest
	if a == nil {
		return // comparing has stopped
	}
	if side != f.ahead {
		if f.diff == nil && f.behind < a.total {
			f.differ(a, min(f.behind, a.hashed), f.behind <= a.hashed)
		}
		if a.done {
			if f.diff == nil && a.shape != shape {
				f.differ(a, a.total, false)
			}
			f.settle(a, now)
			return
		}
		f.swap()
	}
	a = f.newest
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
	lag := now - a.end // how much later the shadow ended it
	if f.ahead == shadow {
		lag = -lag
	}
	f.s.report.settle(f, a, lag)
	f.next()
}

func (f *flow) next() {
	a := f.oldest
	f.reach(a, len(a.lead)-a.from)
	f.s.purse.give(answerBytes)
	f.oldest = a.next
	f.behind, f.lastN = 0, 0
	f.s.drop(f.diff)
	f.diff = nil
	if f.sums != nil {
		f.sums[1-f.ahead].Reset()
	}
}

// finish settles the remaining answers when the session ends. If the bytes of both sides are equal so far, the answer
// counts as equal in a complete session, and as unsettled otherwise. In a complete session an answer that one side
// lacks is a difference.
func (f *flow) finish(complete bool) {
	for first := true; f.oldest != nil; first = false {
		a := f.oldest
		if complete && f.diff == nil && (f.behind < a.total || !first || a.done) {
			f.differ(a, min(f.behind, a.hashed), f.behind <= a.hashed)
		}
		switch {
		case complete || f.diff != nil:
			f.s.report.settle(f, a, 0)
		default:
			a.name.unsettled.Add(1)
		}
		f.next()
	}
	if f.sums != nil {
		f.s.purse.give(sumsBytes)
		f.sums = nil
	}
}
