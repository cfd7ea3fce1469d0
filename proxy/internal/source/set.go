package source

import "slices"

// A Set is the sources that some rules are for. It does not change; nil is the empty set.
type Set struct {
	size      int
	all, unix bool
	users     []uint32 // sorted, as groups are
	groups    []uint32
	addresses prefixes
}

// NewSet returns the set of the sources that any of the rules is for; nil if there are no
// rules.
func NewSet(rules []Rule) *Set {
	if len(rules) == 0 {
		return nil
	}
	s := &Set{size: len(rules)}
	for _, r := range rules {
		switch r.kind {
		case all:
			s.all = true
		case addresses:
			s.addresses.add(r.prefix)
		case anyUnix:
			s.unix = true
		case unixUser:
			s.users = append(s.users, r.id)
		case unixGroup:
			s.groups = append(s.groups, r.id)
		}
	}
	slices.Sort(s.users)
	slices.Sort(s.groups)
	s.addresses.join()
	return s
}

// Contains reports whether a source is in the set. One that is not known is in none.
func (s *Set) Contains(src Source) bool {
	switch {
	case s == nil || !src.Known():
		return false
	case s.all:
		return true
	case src.unix:
		return s.unix || has(s.users, src.peer.UID) || has(s.groups, src.peer.GID)
	}
	return s.addresses.contains(src.addr)
}

func has(sorted []uint32, id uint32) bool {
	_, found := slices.BinarySearch(sorted, id)
	return found
}

// Len returns how many rules the set was made of.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.size
}
