package compare

import "sync/atomic"

// SessionBytes is the most memory that one session takes, whatever either side sends.
const SessionBytes = 64 << 10

// TotalBytes is the usual budget of a process, for [NewBudget].
const TotalBytes = 64 << 20

// keepBytes is the most that a session keeps of the lead of one side. The rest of its memory is
// for the records of answers, of which there may be thousands, and for an example.
const keepBytes = 24 << 10

// A Budget is the memory of all sessions that are compared. It is safe for concurrent use.
type Budget struct {
	total int64
	used  atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{total: bytes} }

// Used returns the bytes that sessions hold.
func (b *Budget) Used() int64 { return b.used.Load() }

// take takes n bytes if there are as many.
func (b *Budget) take(n int) bool {
	if b.used.Add(int64(n)) <= b.total {
		return true
	}
	b.used.Add(int64(-n))
	return false
}

func (b *Budget) give(n int) { b.used.Add(int64(-n)) }

// A purse is the memory of one session: its part of the budget.
type purse struct {
	budget *Budget
	held   int // bytes taken and not given back
	lead   int // those of them that segments hold
}

// take takes n bytes if the session may hold as many more, and the budget has them.
func (p *purse) take(n int) bool {
	if p.held+n > SessionBytes || !p.budget.take(n) {
		return false
	}
	p.held += n
	return true
}

func (p *purse) give(n int) {
	p.held -= n
	p.budget.give(n)
}
