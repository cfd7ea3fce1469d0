package fanout

import (
	"container/heap"
	"container/list"
)

// Lines has a line for each source of the entries in a bounded queue. The zero value is empty. It is not safe for concurrent use.
type Lines[T any] struct {
	of   map[uint64]*line
	heap byLength
}

// A Place is an entry's place in Lines, until Remove. The zero value is no place.
type Place struct {
	of *line
	at *list.Element
}

// A line has all entries of one source, the newest last.
type line struct {
	list.List
	source uint64
	index  int // in the heap
}

// Add adds an entry to its source's line: in front of the first entry for which later returns true, otherwise at the end. With a
// nil later it goes to the end.
func (l *Lines[T]) Add(source uint64, one T, later func(T) bool) (p Place) {
	if p.of = l.of[source]; p.of == nil {
		if l.of == nil {
			l.of = make(map[uint64]*line)
		}
		p.of = &line{source: source}
		l.of[source] = p.of
		heap.Push(&l.heap, p.of)
	}
	if last := p.of.Back(); last == nil || later == nil || !later(last.Value.(T)) {
		p.at = p.of.PushBack(one)
	} else {
		at := p.of.Front() // most that come back have waited longest
		for !later(at.Value.(T)) {
			at = at.Next()
		}
		p.at = p.of.InsertBefore(one, at)
	}
	heap.Fix(&l.heap, p.of.index)
	return p
}

// Remove takes an entry out.
func (l *Lines[T]) Remove(p Place) {
	p.of.List.Remove(p.at)
	if p.of.Len() > 0 {
		heap.Fix(&l.heap, p.of.index)
		return
	}
	heap.Remove(&l.heap, p.of.index)
	delete(l.of, p.of.source)
}

// Len returns the number of entries of a source.
func (l *Lines[T]) Len(source uint64) int {
	if own := l.of[source]; own != nil {
		return own.Len()
	}
	return 0
}

// Most returns the number of entries in the longest line.
func (l *Lines[T]) Most() int {
	if len(l.heap) == 0 {
		return 0
	}
	return l.heap[0].Len()
}

// NewestOfMore returns the newest entry of the longest line that may go. The line must be longer than the line of source by over
// more entries; otherwise the result is the zero value.
func (l *Lines[T]) NewestOfMore(source uint64, more int, may func(T) bool) (newest T) {
	if p := l.newest(0, l.Len(source)+more, may); p.of != nil {
		newest = p.at.Value.(T)
	}
	return newest
}

// newest is NewestOfMore for the lines from an index of the heap on that are longer than n.
func (l *Lines[T]) newest(index, n int, may func(T) bool) (p Place) {
	if index >= len(l.heap) || l.heap[index].Len() <= n {
		return Place{}
	}
	p.of = l.heap[index]
	for p.at = p.of.Back(); p.at != nil; p.at = p.at.Prev() {
		if may(p.at.Value.(T)) {
			return p
		}
	}
	if p = l.newest(2*index+1, n, may); p.of != nil {
		n = p.of.Len()
	}
	if right := l.newest(2*index+2, n, may); right.of != nil {
		return right
	}
	return p
}

// byLength is a heap of lines, the longest first.
type byLength []*line

func (h byLength) Len() int           { return len(h) }
func (h byLength) Less(i, j int) bool { return h[i].List.Len() > h[j].List.Len() }
func (h byLength) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byLength) Push(x any) {
	l := x.(*line)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *byLength) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return l
}
