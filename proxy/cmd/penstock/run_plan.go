package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
)

// Plan returns the changes that a reload from a file would make. A file other than that of the
// process is read only for trusted callers, since it may name variables of the process's
// environment. Its problems are not returned: the process may have permission to read files
// that the caller has not.
func (r *daemon) Plan(_ context.Context, path string, trusted bool) (admin.Plan, error) {
	here := r.source.name()
	other := path != "" && path != here
	read := r.source.load
	switch {
	case !other:
	case !trusted:
		return admin.Plan{}, fmt.Errorf("%w: %s is another file than the one in force, which the process reads for root and for its own user alone, over its unix socket: write penstock plan as one of these, or penstock check %[2]s, or ask for the plan of %s", admin.ErrForbidden, path, here)
	default:
		read = func() (*config.Config, error) { return loadConfig(path, r.env) }
	}
	next, err := read()
	switch {
	case err != nil && other:
		return admin.Plan{}, fmt.Errorf("%w: the process that runs cannot use %s: penstock check says why, or the process may not read it, or has other variables in its environment", admin.ErrInvalid, path)
	case err != nil:
		return admin.Plan{}, err
	}
	before, number := r.keeper.Current()
	now := r.Status()
	p := admin.Plan{Path: here, Generation: number, Connections: now.Connections.Active, Changes: []admin.PlannedChange{}, Live: r.LiveUnder(next)}
	live, draining := newConnectionCounts(&now, before, next), r.DrainingUnder(next)
	changes := changesTo(before, next, r.Awaiting(next))
	for _, c := range changes {
		change := live.planned(c, before)
		if c.Kind == config.KindListener && mayLeave(before, c.Name) && !mayLeave(next, c.Name) && c.Action != config.Removed {
			n, err := r.inLane(c.Name)
			if err != nil {
				return admin.Plan{}, err
			}
			returnFromLane(&change, n)
		}
		if c.Kind == config.KindListener {
			drainOn(&change, draining[c.Name])
		}
		p.Changes = append(p.Changes, change)
	}
	endWithEndpoints(changes, p.Changes)
	return p, nil
}

// mayLeave reports whether sessions of a listener may leave user space.
func mayLeave(c *config.Config, listener string) bool {
	return slices.ContainsFunc(c.Listeners, func(l *config.Listener) bool {
		return l.Name == listener && l.Lane != config.LaneOff && !l.Transparent
	})
}

// inLane counts the sessions of a listener that have left user space.
func (r *daemon) inLane(listener string) (n int64, err error) {
	list, err := r.Sessions(context.Background(), admin.SessionQuery{Listener: listener, Engine: admin.EngineLane}, admin.SessionOrder{})
	if err != nil {
		return 0, err
	}
	for range list.Sessions {
		n++
	}
	return n, nil
}

// returnFromLane has n connections of a listener come back that would stay as they are.
func returnFromLane(p *admin.PlannedChange, n int64) {
	p.LaneReturned = n
	keepLess(p, n)
}

// drainOn has connections of a listener drain, as they do already, that would stay as they are.
func drainOn(p *admin.PlannedChange, of server.Draining) {
	if of.Sessions > 0 {
		p.Draining, p.DrainingUs = of.Sessions, max(of.Within, 0).Microseconds()
		keepLess(p, of.Sessions)
	}
}

// endWithEndpoints takes the connections of endpoints that are removed, and that end with them, from those of their upstream that stay as they are. planned are
// the effects of the changes.
func endWithEndpoints(changes []config.Change, planned []admin.PlannedChange) {
	ends := make(map[string]int64) // by upstream
	for i, c := range changes {
		if p := &planned[i]; c.Kind == config.KindEndpoint && p.Disposition != admin.Keep {
			ends[c.Upstream] += p.Connections
		}
	}
	for i, c := range changes {
		if p := &planned[i]; c.Kind == config.KindUpstream && p.Disposition == admin.Keep {
			keepLess(p, ends[c.Name])
		}
	}
}

// keepLess takes n connections from those that stay as they are.
func keepLess(p *admin.PlannedChange, n int64) {
	if n == 0 {
		return
	}
	kept := &p.Kept
	if p.Disposition == admin.Keep {
		kept = &p.Connections
	}
	if *kept = max(*kept-n, 0); p.Connections == 0 {
		p.Disposition = ""
	}
}

// changesTo returns the changes to a configuration. awaiting are those keys whose values there are to wait for a restart, as
// [server.Server.Awaiting] returns them: a key that gets back the value which the process has in force is none.
func changesTo(before, next *config.Config, awaiting []string) []config.Change {
	changes := config.Diff(before, next)
	for _, c := range changes {
		section := string(c.Kind) + "."
		if c.Kind == config.KindStateFile {
			section = "" // it is a key by itself
		}
		for i := range c.Keys {
			k := &c.Keys[i]
			k.Restart = k.Restart && slices.Contains(awaiting, section+k.Key)
			if k.Restart && section+k.Key == "lane.sessions" && before.Lane.Leave {
				k.New += config.UnlessLeft
			}
		}
	}
	return changes
}

// lines formats changes, one in each line.
func lines(changes []config.Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.String())
	}
	return list
}

// connectionCounts are the present numbers of connections, and the addresses of the next
// listeners.
type connectionCounts struct {
	of    map[place]int64
	binds map[string]map[string]int64 // by listener and bind
	next  *listenAddresses

	// Removed endpoints drain according to the next configuration or, if that does not name
	// their upstream any more, to the present one.
	upstreams map[string]*config.Upstream
}

// place identifies a listener, an upstream, or an endpoint of one.
type place struct {
	kind     config.Kind
	upstream string
	name     string
}

func newConnectionCounts(s *admin.Status, before, next *config.Config) *connectionCounts {
	live := &connectionCounts{
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
			live.of[place{config.KindEndpoint, u.Name, e.Name}] += e.Active // a draining one may have the same name
		}
	}
	return live
}

// planned returns a change with its effect on connections.
func (live *connectionCounts) planned(c config.Change, before *config.Config) admin.PlannedChange {
	p := admin.PlannedChange{What: c.String()}
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
	p.Disposition = admin.Keep
	if c.Action != config.Removed {
		return p
	}
	name := c.Upstream
	if c.Kind == config.KindUpstream {
		name = c.Name
	}
	if u := live.upstreams[name]; u != nil && u.OnRemoved != string(admin.Drain) {
		p.Disposition = admin.Disposition(u.OnRemoved)
	} else if u != nil {
		drain(&p, u.DrainTimeout)
	}
	return p
}

// drain sets the disposition to a drain that ends after a time.
func drain(p *admin.PlannedChange, within time.Duration) {
	p.Disposition, p.ResetAfterUs = admin.Drain, within.Microseconds()
	if within <= 0 {
		p.Disposition = admin.Reset
	}
}

// leaves sets the effect of a changed listener that has active connections. Connections of an
// address on which no listener listens any more drain; those of an address that stays do not,
// whichever listener it belongs to by then. Connections of an address that was given up before
// drain already.
func (live *connectionCounts) leaves(p *admin.PlannedChange, name string, active int64, before *config.Config) {
	i := slices.IndexFunc(before.Listeners, func(l *config.Listener) bool { return l.Name == name })
	if i < 0 {
		return
	}
	for j, b := range before.Listeners[i].Bind {
		if n, there := live.binds[name][b.String()]; there && !live.next.has(name, j, b) {
			p.Leaves = append(p.Leaves, admin.Bind{Bind: b.String(), Active: n})
			p.Connections += n
		}
	}
	switch p.Kept = max(active-p.Connections, 0); {
	case p.Connections > 0:
		ln := before.Listeners[i]
		drain(p, ln.DrainTime(func(name string) *config.Upstream { return live.upstreams[name] }))
	case p.Kept > 0 && len(p.Leaves) == 0:
		p.Connections, p.Kept, p.Disposition = p.Kept, 0, admin.Keep
	}
}
