package main

import (
	"context"
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
)

// Plan tells what a reload from a file would change. Of another file than that of the
// process it does not tell what is wrong with it: the process may be allowed to read what
// those who ask are not.
func (r *running) Plan(_ context.Context, path string) (admin.Plan, error) {
	other := path != "" && path != r.path
	if !other {
		path = r.path
	}
	next, err := loadConfig(path, r.env)
	switch {
	case err != nil && other:
		return admin.Plan{}, fmt.Errorf("%w: the process that runs cannot use %s: penstock check says why, or the process may not read it, or has other variables in its environment", admin.ErrInvalid, path)
	case err != nil:
		return admin.Plan{}, err
	}
	before, number := r.keeper.Current()
	now := r.Status()
	p := admin.Plan{Path: r.path, Generation: number, Connections: now.Connections.Active, Changes: []admin.Planned{}}
	live := newCensus(&now)
	for _, c := range config.Diff(before, next) {
		p.Changes = append(p.Changes, live.planned(c, before, next))
	}
	return p, nil
}

// lines are changes to read.
func lines(changes []config.Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.String())
	}
	return list
}

// A census is how many connections there are of what.
type census map[place]int64

// place is a listener, an upstream, or an endpoint of one.
type place struct {
	kind     config.Kind
	upstream string
	name     string
}

func newCensus(s *admin.Status) census {
	live := census{}
	for _, l := range s.Listeners {
		live[place{config.KindListener, "", l.Name}] = l.Connections.Active
	}
	for _, u := range s.Upstreams {
		live[place{config.KindUpstream, "", u.Name}] = u.Active
		for _, e := range u.Endpoints {
			live[place{config.KindEndpoint, u.Name, e.Name}] += e.Active // one that drains may have the same name
		}
	}
	return live
}

// planned tells of a change, and what it does to those who are connected.
func (live census) planned(c config.Change, before, next *config.Config) admin.Planned {
	p := admin.Planned{What: c.String()}
	if c.Action == config.Added {
		return p
	}
	if p.Connections = live[place{c.Kind, c.Upstream, c.Name}]; p.Connections == 0 {
		return p
	}
	p.Fate = admin.Keep
	switch {
	case c.Kind == config.KindListener:
		if loses(c.Name, before, next) {
			p.Fate = admin.Drain
		}
		return p
	case c.Action != config.Removed:
		return p
	}
	p.Fate = admin.Drain
	for _, u := range before.Upstreams {
		if u.Name == c.Upstream || c.Kind == config.KindUpstream && u.Name == c.Name {
			p.Fate = admin.Fate(u.OnRemoved)
		}
	}
	return p
}

// loses reports whether a listener has an address where nobody listens any more. Those who
// came in there drain; at one that stays they do not, whosever it is by then.
func loses(listener string, before, next *config.Config) bool {
	stays := make(map[string]bool)
	for _, l := range next.Listeners {
		for _, b := range l.Bind {
			stays[addressOf(b)] = true
		}
	}
	for _, l := range before.Listeners {
		if l.Name != listener {
			continue
		}
		for _, b := range l.Bind {
			if !stays[addressOf(b)] {
				return true
			}
		}
	}
	return false
}

// addressOf is what makes a listening socket the same.
func addressOf(b config.Bind) string {
	b.Address.Mode = 0
	return b.String()
}
