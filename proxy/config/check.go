package config

import (
	"fmt"
	"strings"
)

// check finds what is wrong with the whole although each value by itself is right.
func (l *loader) check() {
	c := &l.cfg
	if len(c.Listeners) == 0 && len(l.problems) == 0 {
		l.complainAt(place{src: &source{name: l.names[0]}}, "write "+beginning, "there are no listeners")
	}
	names := newNames(&l.decoder, "listener")
	for _, ln := range c.Listeners {
		names.define(&ln.Name, l.at(&ln.Name, ln), "write another name")
	}
	upstreams := newNames(&l.decoder, "upstream")
	upstreams.partial = l.partial
	for _, u := range c.Upstreams {
		upstreams.define(&u.Name, l.at(&u.Name, u), "write another name")
		upstreams.partial = upstreams.partial || u.Name == ""
	}
	k := checker{decoder: &l.decoder, upstreams: upstreams, pairs: make(map[Certificate]unpaired)}
	k.binds(c)
	for _, ln := range c.Listeners {
		k.listener(ln)
	}
	for _, u := range c.Upstreams {
		if !k.bad[u] {
			k.upstream(u)
		}
	}
	k.cycles(c.Upstreams)
	k.loops(c)
	k.unused(c)
	k.directories(c)
}

// A checker checks listeners and upstreams.
type checker struct {
	*decoder
	upstreams *names
	pairs     map[Certificate]unpaired // certificates that were read, and what is wrong with them
	compared  int                      // conditions of routes, see covered
}

// excludes complains if what is set excludes each other, or nothing is, of several keys of
// a section of which one is needed.
func (k *checker) oneOf(section any, at place, keys []string, set []bool, fix string) {
	var have []string
	for i, key := range keys {
		if set[i] {
			have = append(have, key)
		}
	}
	switch len(have) {
	case 0:
		k.complainAt(k.at(section, section).or(at), fix, "%s is missing", enumeration(keys, "or"))
	case 1:
	default:
		k.complainAt(k.at(section, section).or(at), "leave one of them out", "%s exclude each other", enumeration(have, "and"))
	}
}

// or returns another place if p is none.
func (p place) or(other place) place {
	if p.src == nil {
		return other
	}
	return p
}

// names are the names that were given to things of one kind.
type names struct {
	d     *decoder
	kind  string
	list  []string
	where map[string]place

	// partial is that not all names are known, of which somebody was told. Nobody is told
	// then that there is no such name.
	partial bool
}

func newNames(d *decoder, kind string) *names {
	return &names{d: d, kind: kind, where: make(map[string]place)}
}

// define takes a name, which nothing else of the kind may have. An empty one was found to
// be missing before.
func (n *names) define(name *string, at place, fix string) {
	if *name == "" {
		return
	}
	if before, ok := n.where[*name]; ok {
		n.d.complainAt(at, fix, "the %s %s is defined in %v already", n.kind, *name, before.pos())
		return
	}
	n.where[*name] = at
	n.list = append(n.list, *name)
}

// use complains of a name that nothing has.
func (n *names) use(name *string, section any) {
	if _, ok := n.where[*name]; ok || *name == "" || n.partial && len(n.d.problems) > 0 {
		return
	}
	if n.d.full() {
		n.d.dropped++
		return
	}
	fix := fmt.Sprintf("there are no %ss: define it", n.kind)
	if len(n.list) > 0 {
		fix = "define it, or write " + enumeration(n.list, "or")
	}
	if meant := closest(*name, n.list[:min(len(n.list), maxWords)]); meant != "" {
		fix = didYouMean(meant)
	}
	n.d.complainAt(n.d.at(name, section), fix, "there is no %s %s", n.kind, *name)
}

// cycles complains of upstreams that fall back on each other.
func (k *checker) cycles(upstreams []*Upstream) {
	next := make(map[string]*Upstream)
	for _, u := range upstreams {
		if u.Name != "" && next[u.Name] == nil {
			next[u.Name] = u
		}
	}
	done := make(map[*Upstream]bool)
	for _, u := range upstreams {
		var path []*Upstream
		index := make(map[*Upstream]int)
		for u != nil && !done[u] {
			done[u] = true
			index[u] = len(path)
			path = append(path, u)
			if u.Fallback == nil || u.Fallback.Upstream == "" {
				break
			}
			u = next[u.Fallback.Upstream]
		}
		if from, ok := index[u]; ok && u != nil && u.Fallback != nil && u.Fallback.Upstream != "" {
			k.cycle(path[from:])
		}
	}
}

func (k *checker) cycle(path []*Upstream) {
	var words []string
	for _, u := range path {
		words = append(words, u.Name)
		if len(words) == 8 && len(path) > 9 {
			words = append(words, "…")
			break
		}
	}
	words = append(words, path[0].Name)
	last := path[len(path)-1]
	k.complainAt(k.at(&last.Fallback.Upstream, last), "leave one of these fallbacks out, or write another upstream",
		"fallbacks go in a circle: %s", strings.Join(words, " → "))
}
