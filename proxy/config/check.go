package config

import (
	"fmt"
	"strings"
)

// check finds errors of the configuration as a whole, with each value valid by itself.
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
	k := checker{decoder: &l.decoder, upstreams: upstreams, pairs: make(map[Certificate]unpaired), modules: make(map[module]*complaint)}
	k.hardware(&c.Limits)
	k.sessionLog(c.SessionLog)
	k.binds(c)
	k.metrics(c.Metrics)
	for _, ln := range c.Listeners {
		k.listener(ln)
	}
	for _, u := range c.Upstreams {
		if !k.bad[u] {
			k.upstream(u)
		}
	}
	k.lane(c)
	k.traces(c.Traces)
	k.cycles(c.Upstreams)
	k.mirrors(c)
	k.knownKeys(c)
	k.rewrites(c)
	k.passedThrough(c)
	k.loops(c)
	k.unused(c)
	k.disguised(c)
	k.evaded(c)
	k.waitsInVain(c)
	k.directories(c)
	k.written(c)
}

// A checker checks listeners and upstreams.
type checker struct {
	*decoder
	upstreams *names
	pairs     map[Certificate]unpaired // certificates already read, and their errors
	modules   map[module]*complaint    // filters already loaded, and their errors
	compared  int                      // conditions of routes, see covered
}

// A choice is one of several keys of a section of which one is needed.
type choice struct {
	key   string
	field any // pointer to it
	set   bool
}

// oneOf complains if several of the keys are set, or none is. In the latter case the key is
// missing, or it was written and is empty. at is the place to report if the section itself was
// not written.
func (k *checker) oneOf(section any, at place, fix string, keys ...choice) {
	var all, have, empty []string
	where := k.at(section, section).or(at)
	for _, c := range keys {
		all = append(all, c.key)
		if c.set || k.bad[c.field] {
			have = append(have, c.key)
		} else if k.given(c.field) {
			empty, where = append(empty, c.key), k.at(c.field, section)
		}
	}
	switch {
	case len(have) > 1:
		k.complainAt(k.at(section, section).or(at), "leave one of them out", "%s exclude each other", enumeration(have, "and"))
	case len(have) == 0 && len(empty) > 0:
		k.complainAt(where, fix, "%s is empty", enumeration(empty, "and"))
	case len(have) == 0:
		k.complainAt(where, fix, "%s is missing", enumeration(all, "or"))
	}
}

// or returns other if p has no source.
func (p place) or(other place) place {
	if p.src == nil {
		return other
	}
	return p
}

// names are the names of all things of one kind.
type names struct {
	d     *decoder
	kind  string
	list  []string
	where map[string]place

	// partial means that some names are unknown, which was already reported. An undefined name
	// is not reported then.
	partial bool
}

func newNames(d *decoder, kind string) *names {
	return &names{d: d, kind: kind, where: make(map[string]place)}
}

// define adds a name, which must be unique among its kind. An empty name was already reported
// as missing.
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

// use complains of a name that is not defined.
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
