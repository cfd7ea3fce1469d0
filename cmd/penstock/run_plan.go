package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
)

// Plan tells what a reload from a file would change. Another file than that of the process is
// read only for who is trusted, since it may name variables of the process's environment; and
// what is wrong with it is not told: the process may be allowed to read what those who ask are
// not.
func (r *running) Plan(_ context.Context, path string, trusted bool) (admin.Plan, error) {
	other := path != "" && path != r.path
	switch {
	case !other:
		path = r.path
	case !trusted:
		return admin.Plan{}, fmt.Errorf("%w: %s is another file than the one in force, which the process reads for root and for its own user alone, over its unix socket: write penstock plan as one of these, or penstock check %[2]s, or ask for the plan of %s", admin.ErrForbidden, path, r.path)
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
	live := newCensus(&now, before, next)
	for _, c := range config.Diff(before, next) {
		p.Changes = append(p.Changes, live.planned(c, before))
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

// A census is how many connections there are of what, now, and where listeners will listen.
type census struct {
	of    map[place]int64
	binds map[string]map[string]int64 // by listener and bind
	next  *listenAddresses

	// What is gone drains as the configuration says that follows, or if that does not name its
	// upstream any more, as the one before said.
	upstreams map[string]*config.Upstream
}

// place is a listener, an upstream, or an endpoint of one.
type place struct {
	kind     config.Kind
	upstream string
	name     string
}

func newCensus(s *admin.Status, before, next *config.Config) *census {
	live := &census{
		of: map[place]int64{}, binds: map[string]map[string]int64{}, next: newAddresses(next), upstreams: map[string]*config.Upstream{},
	}
	for _, u := range slices.Concat(before.Upstreams, next.Upstreams) {
		live.upstreams[u.Name] = u
	}
	for _, l := range s.Listeners {
		live.of[place{config.KindListener, "", l.Name}] = l.Connections.Active
		live.binds[l.Name] = make(map[string]int64, len(l.Binds))
		for _, b := range l.Binds {
			live.binds[l.Name][b.Bind] += b.Active
		}
	}
	for _, u := range s.Upstreams {
		live.of[place{config.KindUpstream, "", u.Name}] = u.Active
		for _, e := range u.Endpoints {
			live.of[place{config.KindEndpoint, u.Name, e.Name}] += e.Active // one that drains may have the same name
		}
	}
	return live
}

// planned tells of a change, and what it does to those who are connected.
func (live *census) planned(c config.Change, before *config.Config) admin.Planned {
	p := admin.Planned{What: c.String()}
	if c.Action == config.Added {
		return p
	}
	n := live.of[place{c.Kind, c.Upstream, c.Name}]
	if c.Kind == config.KindListener {
		live.leaves(&p, c.Name, n, before)
		return p
	}
	if p.Connections = n; n == 0 {
		return p
	}
	p.Fate = admin.Keep
	if c.Action != config.Removed {
		return p
	}
	name := c.Upstream
	if c.Kind == config.KindUpstream {
		name = c.Name
	}
	if u := live.upstreams[name]; u != nil && u.OnRemoved != string(admin.Drain) {
		p.Fate = admin.Fate(u.OnRemoved)
	} else if u != nil {
		drain(&p, u.DrainTimeout)
	}
	return p
}

// drain has the connections of a change end after a time.
func drain(p *admin.Planned, within time.Duration) {
	p.Fate, p.ResetAfterUs = admin.Drain, within.Microseconds()
	if within <= 0 {
		p.Fate = admin.Reset
	}
}

// leaves tells of a listener that changes, and has so many connections: those who came in at
// an address where nobody listens any more drain; at one that stays they do not, whosever it
// is by then. Who came in at one that was given up before drains already.
func (live *census) leaves(p *admin.Planned, name string, active int64, before *config.Config) {
	i := slices.IndexFunc(before.Listeners, func(l *config.Listener) bool { return l.Name == name })
	if i < 0 {
		return
	}
	for j, b := range before.Listeners[i].Bind {
		if n, there := live.binds[name][b.String()]; there && !live.next.has(name, j, b) {
			p.Leaves = append(p.Leaves, admin.Bound{Bind: b.String(), Active: n})
			p.Connections += n
		}
	}
	switch p.Kept = max(active-p.Connections, 0); {
	case p.Connections > 0:
		ln := before.Listeners[i]
		drain(p, ln.DrainTime(func(name string) *config.Upstream { return live.upstreams[name] }))
	case p.Kept > 0 && len(p.Leaves) == 0:
		p.Connections, p.Kept, p.Fate = p.Kept, 0, admin.Keep
	}
}
