package config

import (
	"slices"
	"strings"
)

// maxCompared limits the comparisons of route conditions, all routes together. Without it, a
// file may have so many routes that comparing takes minutes.
const maxCompared = 1_000_000

// covered warns of a route that is never reached because one earlier route matches all of its
// clients. It does not look for several earlier routes that do so only together.
func (k *checker) covered(ln *Listener) {
	for j := range ln.Routes {
		for i := range j {
			first, second := &ln.Routes[i], &ln.Routes[j]
			if k.compared >= maxCompared {
				return
			}
			if k.covers(&first.Match, &second.Match) {
				k.warnAt(k.at(second, ln), "put it before that one, or leave it out",
					"this route is never reached: all its clients are matched by the one in line %d", first.Pos.Line)
				break
			}
		}
	}
}

// covers reports whether first matches every client that m matches. An absent condition is met
// by all clients. If a condition is present, each of m's alternatives must be among those of
// first.
func (k *checker) covers(first, m *Match) bool {
	k.compared++
	return (first.Port == 0 || first.Port == m.Port) &&
		among(k, first.Source, m.Source, Rule.Covers) &&
		among(k, first.SNI, m.SNI, coversName) &&
		among(k, first.ALPN, m.ALPN, equal) && k.coversBytes(first, m)
}

// coversBytes is covers of the first bytes of clients.
func (k *checker) coversBytes(first, m *Match) bool {
	return among(k, first.Protocol, m.spoken(), equal) &&
		among(k, first.Host, m.Host, coversName) &&
		among(k, first.Path, m.Path, coversPath) &&
		among(k, first.User, m.User, equal) &&
		among(k, first.Database, m.Database, equal) &&
		among(k, first.Bytes, m.Bytes, func(a, b ByteMatch) bool { return a.equal(&b) }) &&
		among(k, first.TLV, m.TLV, func(a, b TLVMatch) bool { return a.equal(&b) || a.Type == b.Type && a.Value() == nil })
}

func equal(a, b string) bool { return a == b }

// coversPath reports whether the pattern wide matches all paths that narrow matches.
func coversPath(wide, narrow string) bool {
	parent, below := strings.CutSuffix(wide, "*")
	return wide == narrow || below && strings.HasPrefix(narrow, parent)
}

// among reports whether each element of list is covered by an accepted one.
func among[T any](k *checker, accepted, list []T, covers func(wide, narrow T) bool) bool {
	if len(accepted) == 0 {
		return true
	}
	for _, narrow := range list {
		found := slices.ContainsFunc(accepted, func(wide T) bool {
			k.compared++
			return covers(wide, narrow)
		})
		if !found || k.compared >= maxCompared {
			return false
		}
	}
	return len(list) > 0
}

// coversName reports whether the pattern wide matches all names that narrow matches.
func coversName(wide, narrow string) bool {
	if parent, ok := strings.CutPrefix(wide, "*"); ok {
		return parent == "" || strings.HasSuffix(narrow, parent)
	}
	return wide == narrow
}
