package record

import (
	"sync"
	"sync/atomic"
)

// A Queue passes values, such as records, from the loops to one other goroutine. The loops take no lock, and do not
// wait. The zero value is ready.
type Queue[T any] struct {
	last   atomic.Pointer[Queued[T]] // the value that was added last: the head of a list
	held   atomic.Int64              // places that were taken and not given back
	unused sync.Pool                 // of *Queued[T]
}

// A Queued is a value in a [Queue].
type Queued[T any] struct {
	Of   T
	next *Queued[T]
}

// Place takes a place for one more value, and returns how many places are held with it. It returns nil if that is
// more than most.
func (q *Queue[T]) Place(most int64) (p *Queued[T], held int64) {
	if held = q.held.Add(1); held > most {
		q.held.Add(-1)
		return nil, held
	}
	if p, _ = q.unused.Get().(*Queued[T]); p == nil {
		p = new(Queued[T])
	}
	return p, held
}

// Add adds a value. From then on the other goroutine owns it. first says that the queue was empty.
func (q *Queue[T]) Add(p *Queued[T]) (first bool) {
	before := q.last.Load()
	for p.next = before; !q.last.CompareAndSwap(before, p); p.next = before {
		before = q.last.Load()
	}
	return before == nil
}

// Take calls take with each value that was added, the oldest first, and returns how many there were.
func (q *Queue[T]) Take(take func(p *Queued[T])) (n int) {
	var first *Queued[T]
	for p := q.last.Swap(nil); p != nil; {
		next := p.next
		p.next, first, p = first, p, next
	}
	for ; first != nil; n++ {
		p := first
		first, p.next = p.next, nil
		take(p)
	}
	return n
}

// Free gives back the memory of a value.
func (q *Queue[T]) Free(p *Queued[T]) {
	*p = Queued[T]{}
	q.unused.Put(p)
}

// Done gives back n places.
func (q *Queue[T]) Done(n int) { q.held.Add(int64(-n)) }

// Held returns how many places are held.
func (q *Queue[T]) Held() int64 { return q.held.Load() }
