package vecio

import (
	"cmp"
	"slices"
)

// sends is the account of the calls with MSG_ZEROCOPY of one socket, which the kernel numbers
// from 0 on, and with 0 after 1<<32 - 1. Notices have ranges of calls that are done, as a rule
// in order, but not always (Documentation/networking/msg_zerocopy.rst, "Notification
// Reception").
type sends struct {
	next  uint32 // the number of the call that comes next
	done  uint32 // calls before it are done, all of them
	ahead []span // others that are done: beyond done, ascending, none touches another
}

// A span is the calls from lo to hi, both included.
type span struct{ lo, hi uint32 }

// add numbers one more call.
func (s *sends) add() uint32 {
	s.next++
	return s.next - 1
}

// outstanding is how many calls the kernel may still need memory of, those included
// that are done ahead of their turn.
func (s *sends) outstanding() uint32 { return s.next - s.done }

// finished reports whether the call and all before it are done. It holds for calls
// that were numbered less than 1<<31 calls ago.
func (s *sends) finished(call uint32) bool { return int32(s.done-call) > 0 }

// complete notes that the kernel is done with the calls from lo to hi. It
// reports whether they are calls that were outstanding: anything else is not
// noted.
func (s *sends) complete(lo, hi uint32) bool {
	n, first := s.outstanding(), lo-s.done
	if first >= n || hi-s.done >= n || hi-s.done < first {
		return false
	}
	i, _ := slices.BinarySearchFunc(s.ahead, first, func(a span, first uint32) int {
		return cmp.Compare(a.lo-s.done, first)
	})
	if i > 0 && s.ahead[i-1].hi-s.done >= first || i < len(s.ahead) && s.ahead[i].lo-s.done <= hi-s.done {
		return false
	}
	s.insert(i, span{lo, hi})
	s.settle()
	return true
}

// insert puts x at its place, joined with its neighbours where they touch.
func (s *sends) insert(i int, x span) {
	if i < len(s.ahead) && s.ahead[i].lo == x.hi+1 {
		x.hi = s.ahead[i].hi
		s.ahead = slices.Delete(s.ahead, i, i+1)
	}
	if i > 0 && s.ahead[i-1].hi+1 == x.lo {
		s.ahead[i-1].hi = x.hi
		return
	}
	s.ahead = slices.Insert(s.ahead, i, x)
}

// settle moves done past the calls that are done in order.
func (s *sends) settle() {
	if len(s.ahead) > 0 && s.ahead[0].lo == s.done {
		s.done = s.ahead[0].hi + 1
		s.ahead = slices.Delete(s.ahead, 0, 1)
	}
}
