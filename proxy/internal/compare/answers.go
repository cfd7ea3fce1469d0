package compare

import (
	"math"
	"unsafe"
)

// keptAnswers is by how many answers one side may be ahead while the bytes of the next one are kept. Those of further
// ones are summed up, so that the memory is for their records.
const keptAnswers = 64

// An answers is the answers that the side ahead has begun, from that on which the other side is in. The oldest and the
// newest are as they are; those in between, which the side ahead has ended, are records of 16 bytes, so that there may be
// thousands.
type answers struct {
	n      int
	oldest answer
	more   *moreAnswers // nil: there never were two
}

// A moreAnswers is the answers behind the oldest one.
type moreAnswers struct {
	newest  answer
	records queue[record]
	whole   queue[answer] // those that no record has room for, in their order
	in, out int64         // ends of the last answer that was packed, and unpacked
}

// A record is an answer that the side ahead has ended, and of which the other side has nothing. All of its bytes are
// kept, and the sum is its shape; or none is, and the sum is of its bytes and its shape.
type record struct {
	sum  uint64
	late uint32 // nanoseconds between the end of the answer before and its own
	rest uint32 // total<<8, and the bits below
}

const (
	recordName   = maxNames - 1 // the bits of the name
	recordMasked = maxNames
	recordKept   = maxNames << 1  // all bytes are kept
	recordWhole  = math.MaxUint32 // the answer is in whole

	recordTotal = 1<<24 - 2 // most bytes of a record's answer
)

const moreAnswersBytes = int(unsafe.Sizeof(moreAnswers{}))

// tail returns the newest answer.
func (q *answers) tail() *answer {
	if q.n == 1 {
		return &q.oldest
	}
	return &q.more.newest
}

// push adds an answer, or returns false if the purse has no room.
func (q *answers) push(p *purse, a answer) bool {
	switch {
	case q.n == 0:
		q.oldest = a
	case q.n == 1:
		if q.more == nil {
			if !p.take(moreAnswersBytes) {
				return false
			}
			q.more = new(moreAnswers)
		}
		q.more.in, q.more.out = q.oldest.end, q.oldest.end
		q.more.newest = a
	default:
		if !q.more.pack(p) {
			return false
		}
		q.more.newest = a
	}
	q.n++
	return true
}

// pack makes a record of the newest answer.
func (m *moreAnswers) pack(p *purse) bool {
	a := &m.newest
	late := a.end - m.in
	r := record{late: uint32(late), rest: uint32(a.total)<<8 | uint32(a.name)}
	if a.masked {
		r.rest |= recordMasked
	}
	kept := a.hashed == notHashed
	if kept {
		r.rest |= recordKept
		r.sum = a.shape
	} else {
		r.sum = sumOf(a.sum, a.shape)
	}
	if !a.done || late < 0 || late > math.MaxUint32 || a.total > recordTotal || !kept && a.hashed != 0 {
		r = record{rest: recordWhole}
		if !m.whole.push(p, *a) {
			return false
		}
	}
	m.in = a.end
	return m.records.push(p, r)
}

// pop removes the oldest answer.
func (q *answers) pop(p *purse) {
	q.n--
	switch q.n {
	case 0:
		q.oldest = answer{}
	case 1:
		q.oldest = q.more.newest
	default:
		q.oldest = q.more.unpack(p)
	}
}

// unpack returns the answer of the oldest record.
func (m *moreAnswers) unpack(p *purse) (a answer) {
	r := m.records.pop(p)
	if r.rest == recordWhole {
		a = m.whole.pop(p)
	} else {
		a = answer{
			total: int64(r.rest >> 8), end: m.out + int64(r.late), name: name(r.rest & recordName),
			masked: r.rest&recordMasked != 0, done: true, sum: r.sum, hashed: 0, summed: true,
		}
		if r.rest&recordKept != 0 {
			a.hashed, a.kept, a.shape, a.summed = notHashed, int32(a.total), r.sum, false
		}
	}
	m.out = a.end
	return a
}

// clear gives the memory back. There is no answer any more.
func (q *answers) clear(p *purse) {
	if q.more != nil {
		q.more.records.clear(p)
		q.more.whole.clear(p)
		p.give(moreAnswersBytes)
		q.more = nil
	}
}

// sumOf is a sum of an answer's bytes and its shape.
func sumOf(sum, shape uint64) uint64 { return (sum ^ shape*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd }
