package compare

import "slices"

// spanBytes is the memory of a span.
const spanBytes = 8

// A span is numbers from one to another, both included.
type span struct{ from, to uint32 }

// An idSet is a set of numbers, as spans in ascending order that do not touch.
type idSet []span

// at returns the index of the first span that ends at n or later.
func (s idSet) at(n uint32) int {
	i, _ := slices.BinarySearchFunc(s, n, func(p span, n uint32) int {
		if p.to < n {
			return -1
		}
		return 1
	})
	return i
}

func (s idSet) has(n uint32) bool {
	i := s.at(n)
	return i < len(s) && s[i].from <= n
}

// add adds a number, and reports whether there was memory for it.
func (s *idSet) add(n uint32, p *purse) bool {
	i := s.at(n)
	list := *s
	below, above := i > 0 && list[i-1].to+1 == n, i < len(list) && list[i].from == n+1
	switch {
	case i < len(list) && list[i].from <= n:
	case below && above:
		list[i-1].to = list[i].to
		*s = slices.Delete(list, i, i+1)
		p.give(spanBytes)
	case below:
		list[i-1].to = n
	case above:
		list[i].from = n
	case !p.take(spanBytes):
		return false
	default:
		*s = slices.Insert(list, i, span{n, n})
	}
	return true
}
