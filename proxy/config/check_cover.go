package config

import (
	"slices"
	"strings"
)

// maxCompared is how many conditions of routes are compared with each other, in all: a file
// may have so many routes that it would take minutes.
const maxCompared = 1_000_000

// covered warns of routes that nobody gets to, because one before matches all of their
// clients. Routes that do so only together are not looked for.
func (k *checker) covered(ln *Listener) {
	for j := range ln.Routes {
		for i := range j {
			first, second := &ln.Routes[i], &ln.Routes[j]
			if k.compared >= maxCompared {
				return
			}
			if k.covers(&first.Match, &second.Match) {
				k.doubtAt(k.at(second, ln), "put it before that one, or leave it out",
					"this route is never reached: all its clients are matched by the one in line %d", first.Pos.Line)
				break
			}
		}
	}
}

// covers reports whether every client that m matches is matched by first, too. A condition
// that is not there is met by everybody; of one that is, each of m's alternatives must be
// among those of first.
func (k *checker) covers(first, m *Match) bool {
	k.compared++
	return (first.Port == 0 || first.Port == m.Port) &&
		among(k, first.Source, m.Source, Rule.Covers) &&
		among(k, first.SNI, m.SNI, coversName) &&
		among(k, first.ALPN, m.ALPN, func(a, b string) bool { return a == b })
}

// among reports whether each of list is covered by one of those that are accepted.
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

// coversName reports whether a pattern of names matches all that another does.
func coversName(wide, narrow string) bool {
	if parent, ok := strings.CutPrefix(wide, "*"); ok {
		return parent == "" || strings.HasSuffix(narrow, parent)
	}
	return wide == narrow
}
