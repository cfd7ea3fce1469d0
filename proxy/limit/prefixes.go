package limit

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sort"
)

// ErrDenied says that the address is on the list of those who may not come in, or not on that
// of those who may.
var ErrDenied = errors.New("address not allowed")

// Prefixes is a set of addresses. It does not change; nil is the empty set. An IPv4
// address is the same as that address mapped into IPv6, and zones do not matter.
type Prefixes struct {
	v4   []span[uint32]
	v6   []span[wide]
	size int
}

// A span is from and to, both included. Those of a set are in order, with gaps between.
type span[T any] struct{ from, to T }

// wide is an IPv6 address.
type wide struct{ hi, lo uint64 }

func (a wide) compare(b wide) int {
	if c := cmp.Compare(a.hi, b.hi); c != 0 {
		return c
	}
	return cmp.Compare(a.lo, b.lo)
}

func (a wide) next() wide {
	if a.lo++; a.lo == 0 {
		a.hi++
	}
	return a
}

// NewPrefixes returns the set of all addresses of the prefixes. Bits beyond a prefix's
// length do not matter, nor do invalid ones.
func NewPrefixes(prefixes []netip.Prefix) *Prefixes {
	p := &Prefixes{size: len(prefixes)}
	for _, x := range prefixes {
		switch addr, bits := x.Addr(), x.Bits(); {
		case !x.IsValid():
		case addr.Is4():
			p.add4(addr, bits)
		case addr.Is4In6() && bits >= 96:
			p.add4(addr.Unmap(), bits-96)
		default:
			p.add6(addr, bits)
		}
	}
	p.v4 = join(p.v4, cmp.Compare[uint32], func(a uint32) uint32 { return a + 1 })
	p.v6 = join(p.v6, wide.compare, wide.next)
	return p
}

func (p *Prefixes) add4(addr netip.Addr, bits int) {
	from, host := narrowOf(addr), uint32(1<<(32-bits)-1)
	p.v4 = append(p.v4, span[uint32]{from &^ host, from | host})
}

// mapped is where IPv4 addresses are in IPv6: ::ffff:0:0/96.
var mapped = span[wide]{wide{0, 0xffff << 32}, wide{0, 0xffff<<32 | 0xffffffff}}

func (p *Prefixes) add6(addr netip.Addr, bits int) {
	from, host := wideOf(addr), wide{^uint64(0) >> min(bits, 64), ^uint64(0) >> max(bits-64, 0)}
	if bits >= 64 {
		host.hi = 0
	}
	s := span[wide]{wide{from.hi &^ host.hi, from.lo &^ host.lo}, wide{from.hi | host.hi, from.lo | host.lo}}
	p.v6 = append(p.v6, s)
	if s.from.compare(mapped.from) <= 0 && s.to.compare(mapped.to) >= 0 && bits < 96 {
		p.v4 = append(p.v4, span[uint32]{0, ^uint32(0)})
	}
}

// join orders spans and makes one of those that touch.
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

func wideOf(addr netip.Addr) wide {
	b := addr.As16()
	return wide{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Contains reports whether an address is in the set. An invalid one is in none.
func (p *Prefixes) Contains(addr netip.Addr) bool {
	if p == nil || !addr.IsValid() {
		return false
	}
	if addr = addr.Unmap(); addr.Is4() {
		a := narrowOf(addr)
		i := sort.Search(len(p.v4), func(i int) bool { return p.v4[i].to >= a })
		return i < len(p.v4) && p.v4[i].from <= a
	}
	a := wideOf(addr)
	i := sort.Search(len(p.v6), func(i int) bool { return p.v6[i].to.compare(a) >= 0 })
	return i < len(p.v6) && p.v6[i].from.compare(a) <= 0
}

// Len returns how many prefixes the set was made of.
func (p *Prefixes) Len() int {
	if p == nil {
		return 0
	}
	return p.size
}

// An Access says which addresses may come in. The zero value lets everybody in.
type Access struct {
	Allow *Prefixes // empty: everybody
	Deny  *Prefixes // wins over Allow
}

// Check returns nil, or [ErrDenied]. A client that has no address, as those of unix
// sockets, may come in: who may is what its socket's permissions say.
func (a *Access) Check(addr netip.Addr) error {
	switch {
	case !addr.IsValid():
		return nil
	case a.Deny.Contains(addr), a.Allow.Len() > 0 && !a.Allow.Contains(addr):
		return ErrDenied
	}
	return nil
}
