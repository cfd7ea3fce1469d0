// Package topology finds out which CPUs and NUMA nodes this machine has, and which of them this process may
// use. It changes only the CPUs of this process's threads, by [Confine].
package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Set has numbers of CPUs or of NUMA nodes, in ascending order, each once.
type Set []int

// Highest is the highest possible number of a CPU (CONFIG_NR_CPUS is at most 8192).
const Highest = 8191

// ParseSet reads a list in the format of the kernel's files and of taskset(1): 0-3,8. The empty text is the
// empty set.
func ParseSet(text string) (Set, error) {
	var s Set
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if part == "" && strings.TrimSpace(text) == "" {
			return nil, nil
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := parseNumber(first)
		to, err2 := parseNumber(last)
		if err1 != nil || err2 != nil || from > to {
			return nil, fmt.Errorf("%q is not a list such as 0-3,8", text)
		}
		for n := from; n <= to; n++ {
			s = append(s, n)
		}
	}
	return NewSet(s...), nil
}

func parseNumber(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.Atoi(text)
	if err == nil && n > Highest {
		err = strconv.ErrRange
	}
	return n, err
}

// NewSet returns the set of some numbers. It keeps the slice's memory.
func NewSet(numbers ...int) Set {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// Has reports whether a number is in the set.
func (s Set) Has(n int) bool {
	_, found := slices.BinarySearch(s, n)
	return found
}

// Without returns the numbers that other does not have.
func (s Set) Without(other Set) (rest Set) {
	for _, n := range s {
		if !other.Has(n) {
			rest = append(rest, n)
		}
	}
	return rest
}

// And returns the numbers that both sets have.
func (s Set) And(other Set) Set { return s.Without(s.Without(other)) }

// String returns the text that ParseSet reads.
func (s Set) String() string {
	var b strings.Builder
	for i := 0; i < len(s); {
		last := i
		for last+1 < len(s) && s[last+1] == s[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s[i]))
		if last > i {
			fmt.Fprintf(&b, "-%d", s[last])
		}
		i = last + 1
	}
	return b.String()
}
