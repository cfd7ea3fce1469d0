package source

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"
)

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

// Contains reports whether a source is in the set. An unknown source is in no set.
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

// prefixes is a set of addresses. Looking up an address takes a time that grows with the
// logarithm of their number.
type prefixes struct {
	v4 []span[uint32]
	v6 []span[u128]
}

// A span is from and to, both included. After join the spans of a set are in order, with gaps
// between.
type span[T any] struct{ from, to T }

// u128 is an IPv6 address.
type u128 struct{ hi, lo uint64 }

func (a u128) compare(b u128) int {
	if c := cmp.Compare(a.hi, b.hi); c != 0 {
		return c
	}
	return cmp.Compare(a.lo, b.lo)
}

func (a u128) next() u128 {
	if a.lo++; a.lo == 0 {
		a.hi++
	}
	return a
}

// add adds the addresses of a prefix that is valid.
func (p *prefixes) add(x netip.Prefix) {
	addr, bits := x.Addr(), x.Bits()
	if addr.Is4() {
		from, host := narrowOf(addr), uint32(1<<(32-bits)-1)
		p.v4 = append(p.v4, span[uint32]{from &^ host, from | host})
		return
	}
	from, host := wideOf(addr), u128{^uint64(0) >> min(bits, 64), ^uint64(0) >> max(bits-64, 0)}
	if bits >= 64 {
		host.hi = 0
	}
	p.v6 = append(p.v6, span[u128]{u128{from.hi &^ host.hi, from.lo &^ host.lo}, u128{from.hi | host.hi, from.lo | host.lo}})
}

// join is called once, after the last add.
func (p *prefixes) join() {
	p.v4 = join(p.v4, cmp.Compare[uint32], func(a uint32) uint32 { return a + 1 })
	p.v6 = join(p.v6, u128.compare, u128.next)
}

// join orders spans, and joins spans that touch.
func join[T any](spans []span[T], compare func(a, b T) int, next func(T) T) []span[T] {
	slices.SortFunc(spans, func(a, b span[T]) int { return compare(a.from, b.from) })
	joined := spans[:0]
	for _, s := range spans {
		last := len(joined) - 1
		switch {
		case last < 0, compare(s.from, joined[last].to) > 0 && compare(s.from, next(joined[last].to)) != 0:
			joined = append(joined, s)
		case compare(s.to, joined[last].to) > 0:
			joined[last].to = s.to
		}
	}
	return slices.Clip(joined)
}

func narrowOf(addr netip.Addr) uint32 {
	b := addr.As4()
	return binary.BigEndian.Uint32(b[:])
}

func wideOf(addr netip.Addr) u128 {
	b := addr.As16()
	return u128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// contains reports whether a valid address is in the set, whatever its zone is.
func (p *prefixes) contains(addr netip.Addr) bool {
	if addr.Is4() {
		a := narrowOf(addr)
		i := sort.Search(len(p.v4), func(i int) bool { return p.v4[i].to >= a })
		return i < len(p.v4) && p.v4[i].from <= a
	}
	a := wideOf(addr)
	i := sort.Search(len(p.v6), func(i int) bool { return p.v6[i].to.compare(a) >= 0 })
	return i < len(p.v6) && p.v6[i].from.compare(a) <= 0
}
