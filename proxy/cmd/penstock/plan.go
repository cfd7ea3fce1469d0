package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/server"
)

type planCmd struct {
	configFlag
	accessFlags `group:"The process to ask:"`
}

// Run prints the changes that a configuration would make in the running process, and the affected connections. It
// changes nothing.
func (c *planCmd) Run(e *cli.Env) error {
	next, err := c.load(e, "plan")
	if err == nil {
		err = printProblems(e, next.Warnings)
	}
	if err != nil {
		return err
	}
	if c.address(e) == "" && next.Admin == nil {
		if err := elsewhere(e.Environment(), c.path, errAdminOff); !errors.Is(err, errAdminOff) {
			return err
		}
		return c.unasked(e, next, c.path+": its admin API is off, so no process was asked; penstock run would begin with:")
	}
	path, err := filepath.Abs(c.path)
	if err != nil {
		return err
	}
	var p admin.Plan
	whom := adminFlags{Config: cmp.Or(c.Config, c.File), accessFlags: c.accessFlags}
	err = whom.ask(e, "plan", func(ctx context.Context, client *admin.Client) (err error) {
		p, err = client.Plan(ctx, path)
		return err
	})
	switch {
	case errors.Is(err, admin.ErrNotRunning):
		if other, ok := errors.AsType[*notRunningError](err); ok {
			err = errors.New(other.text("runs: to compare with it, add --admin"))
		}
		return errors.Join(c.unasked(e, next, fmt.Sprintf("penstock run %s would begin with:", c.path)), err)
	case err != nil:
		return err
	}
	return c.write(e, p, path, next)
}

// writeCopied writes which directions are not zero-copy under a configuration.
func writeCopied(w io.Writer, next *config.Config) {
	for _, line := range config.Copied(next) {
		fmt.Fprintf(w, "  %s\n", display.Text(line))
	}
}

// unasked prints a heading and the initial configuration, because there is no process to compare with.
func (c *planCmd) unasked(e *cli.Env, next *config.Config, heading string) error {
	var text strings.Builder
	text.WriteString(heading + "\n")
	for _, line := range lines(config.Initial(next)) {
		fmt.Fprintf(&text, "  %s\n", display.Text(line))
	}
	writeCopied(&text, next)
	_, err := fmt.Fprint(e.Stdout, text.String())
	return err
}

func (c *planCmd) write(e *cli.Env, p admin.Plan, path string, next *config.Config) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s to generation %d (now %s)\n", c.path,
		count(len(p.Changes), "change"), p.Generation, count(int(p.Connections), "connection"))
	for _, change := range p.Changes {
		fmt.Fprintf(&text, "  %s\n", display.Text(change.What))
		writeDispositions(&text, &change)
	}
	writeCopied(&text, next)
	writeLive(&text, "changes by hand", p.Live, planned)
	if p.Path != path && !sameFile(p.Path, path) {
		fmt.Fprintf(&text, "penstock reload reads %s: copy this file there first\n", display.Text(p.Path))
	}
	_, err := fmt.Fprint(e.Stdout, text.String())
	return err
}

// writeDispositions writes what happens to the connections that a change affects, by address if some stay.
func writeDispositions(w io.Writer, p *admin.PlannedChange) {
	switch {
	case len(p.Leaves) > 1 || len(p.Leaves) == 1 && p.Kept > 0:
		for _, b := range p.Leaves {
			if b.Active == 0 {
				continue
			}
			fmt.Fprintf(w, "    at %s: %s\n", display.Text(b.Bind), dispositionWords(b.Active, p.Disposition, p.ResetAfterUs))
		}
	case p.Connections > 0:
		fmt.Fprintf(w, "    %s\n", dispositionWords(p.Connections, p.Disposition, p.ResetAfterUs))
	}
	if p.LaneReturned > 0 {
		fmt.Fprintf(w, "    in the lane: %s back to user space\n", plural(p.LaneReturned, "connection comes", "connections come"))
	}
	if p.Draining > 0 {
		fmt.Fprintf(w, "    %s reset within %s\n", plural(p.Draining, "connection drains already, and is", "connections drain already, and are"), sinceText(p.DrainingUs))
	}
	if p.Kept > 0 {
		fmt.Fprintf(w, "    %s\n", dispositionWords(p.Kept, admin.Keep, 0))
	}
}

// dispositionWords says what happens to n connections. Draining connections are reset after resetAfter microseconds.
func dispositionWords(n int64, fate admin.Disposition, resetAfter int64) string {
	after := config.ShowDuration(time.Duration(resetAfter) * time.Microsecond)
	switch {
	case fate == admin.Keep:
		return plural(n, "connection goes on", "connections go on")
	case fate == admin.Reset:
		return plural(n, "connection is reset at once", "connections are reset at once")
	case fate == admin.Depends && resetAfter == 0:
		return plural(n, "connection stays if its endpoint is still listed; otherwise it is reset at once",
			"connections stay if their endpoints are still listed; otherwise they are reset at once")
	case fate == admin.Depends:
		return plural(n, "connection stays if its endpoint is still listed; otherwise it drains, and is reset after ",
			"connections stay if their endpoints are still listed; otherwise they drain, and are reset after ") + after
	}
	return plural(n, "connection drains, and is reset after ", "connections drain, and are reset after ") + after
}

// fatesOf says in words, for each change, what happens to the sessions that it affects; "": nothing.
func (r *daemon) fatesOf(changes []config.Change, from, to *config.Config) []string {
	list := make([]string, len(changes))
	if !slices.ContainsFunc(changes, func(c config.Change) bool { return !c.Kind.Single() }) {
		return list
	}
	now := r.loadBalancer.Status()
	live, draining := newConnectionCounts(&now, from, to), r.DrainingUnder(to)
	for i, c := range changes {
		switch p := live.planned(c, from); {
		case p.Disposition == admin.Drain, p.Disposition == admin.Reset:
			list[i] = itsReset(p.Connections, p.Connections+p.Kept, time.Duration(p.ResetAfterUs)*time.Microsecond)
		case p.Disposition == admin.Depends, c.Action == config.Added && c.Kind == config.KindUpstream && now.RemovedSessions[c.Name] > 0:
			list[i] = "; its " + plural(max(p.Connections, now.RemovedSessions[c.Name]), "session stays if its endpoint is still listed", "sessions stay if their endpoints are still listed")
		case p.Disposition == admin.Keep && c.Action == config.Removed:
			list[i] = "; its " + plural(p.Connections, "session goes on", "sessions go on")
		}
		back := live.removed[[3]string{c.Upstream, c.Name, c.Address}]
		if c.Kind == config.KindListener {
			back = now.ClosedListeners[c.Name].Sessions - draining[c.Name].Sessions
		}
		if back > 0 && c.Action != config.Removed {
			list[i] += "; its " + plural(back, "old session stays", "old sessions stay")
		}
	}
	return list
}

// Plan returns the changes that a reload from a file would make. For any file other than the process's own, the
// caller must be trusted, since the file may name variables of the process's environment. The file's problems are not
// returned: the process may be allowed to read files that the caller is not.
func (r *daemon) Plan(ctx context.Context, path string, trusted bool) (admin.Plan, error) {
	here := r.source.name()
	other := path != "" && path != here
	read := r.source.known
	switch {
	case !other:
	case !trusted:
		return admin.Plan{}, fmt.Errorf("%w: %s is not the file in force. Over its unix socket the process reads another file only for root and for the user that it runs as: run penstock plan as root or as that user, run penstock check %[2]s, or ask for the plan of %s", admin.ErrForbidden, path, here)
	default:
		read = func() (*config.Config, []*config.Unknown, error) { return knownConfig(path, r.env) }
	}
	next, err := r.look(ctx, read)
	switch {
	case errors.Is(err, errBusy):
		return admin.Plan{}, err
	case err != nil && other:
		return admin.Plan{}, fmt.Errorf("%w: the running process cannot use %s: run penstock check %[2]s, which shows its problems. If there are none, the process's user is not allowed to read one of the files, or the process has other environment variables", admin.ErrInvalid, path)
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
			n, err := r.count(ctx, admin.SessionQuery{Listener: c.Name, Engine: admin.EngineLane})
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
	return p, endWithUpstreams(changes, p.Changes, func() (iter.Seq[admin.Session], error) {
		list, err := r.Sessions(ctx, admin.SessionQuery{}, admin.SessionOrder{})
		return list.Sessions, err
	})
}

// errBusy means that a look at a file did not get its turn.
var errBusy = errors.New("another plan or reload is under way")

// mostLooks is how often a file is read if it has new modules each time.
const mostLooks = 3

// look reads a configuration for a caller who may only look. Only one such caller reads at a time. Unknown modules are
// loaded one by one, in turn with reloads, so that a reload waits for at most one module.
func (r *daemon) look(ctx context.Context, read func() (*config.Config, []*config.Unknown, error)) (*config.Config, error) {
	select {
	case r.looks <- struct{}{}:
		defer func() { <-r.looks }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errBusy, context.Cause(ctx))
	case <-r.over:
		return nil, rollback.ErrClosed
	}
	for range mostLooks {
		cfg, unknown, err := read()
		if len(unknown) == 0 {
			return cfg, err
		}
		for _, module := range unknown {
			if err := r.take(ctx); err != nil {
				return nil, fmt.Errorf("%w: %w", errBusy, err)
			}
			module.Load()
			<-r.turn
		}
	}
	return nil, fmt.Errorf("%w: the WebAssembly modules of the configuration keep changing", errBusy)
}

// mayLeave reports whether sessions of a listener may leave user space.
func mayLeave(c *config.Config, listener string) bool {
	return slices.ContainsFunc(c.Listeners, func(l *config.Listener) bool {
		return l.Name == listener && l.Lane != config.LaneOff && !l.Transparent
	})
}

// count returns the number of sessions that a query selects.
func (r *daemon) count(ctx context.Context, q admin.SessionQuery) (n int64, err error) {
	list, err := r.Sessions(ctx, q, admin.SessionOrder{})
	if err != nil {
		return 0, err
	}
	for range list.Sessions {
		n++
	}
	return n, nil
}

// returnFromLane notes that n connections of a listener come back from the lane, and do not stay as they are.
func returnFromLane(p *admin.PlannedChange, n int64) {
	p.LaneReturned = n
	keepLess(p, n)
}

// drainOn notes that connections of a listener go on draining, and do not stay as they are.
func drainOn(p *admin.PlannedChange, of server.Draining) {
	if of.Sessions > 0 {
		p.Draining, p.DrainingUs = of.Sessions, max(of.Within, 0).Microseconds()
		keepLess(p, of.Sessions)
	}
}

// endWithEndpoints subtracts the connections that end with a removed or drained endpoint from the unchanged connections of its
// upstream. planned are the effects of the changes.
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

// endWithUpstreams subtracts the connections that end with an upstream or endpoint from the unchanged connections of the
// changed listeners. sessions lists the sessions; it is called at most once.
func endWithUpstreams(changes []config.Change, planned []admin.PlannedChange, sessions func() (iter.Seq[admin.Session], error)) error {
	type part struct{ upstream, endpoint string } // endpoint is "" for a whole upstream
	ends, kept := make(map[part]bool), false
	for i, c := range changes {
		switch p := &planned[i]; {
		case c.Kind == config.KindListener:
			kept = kept || p.Kept > 0 || p.Disposition == admin.Keep
		case p.Connections == 0 || p.Disposition == admin.Keep:
		case c.Kind == config.KindUpstream:
			ends[part{c.Name, ""}] = true
		case c.Kind == config.KindEndpoint:
			ends[part{c.Upstream, c.Name}] = true
		}
	}
	if len(ends) == 0 || !kept {
		return nil
	}
	list, err := sessions()
	if err != nil {
		return err
	}
	ending := make(map[string]int64) // by listener
	for s := range list {
		if ends[part{s.Upstream, ""}] || ends[part{s.Upstream, s.Name}] {
			ending[s.Listener]++
		}
	}
	for i, c := range changes {
		if c.Kind == config.KindListener {
			keepLess(&planned[i], ending[c.Name])
		}
	}
	return nil
}

// keepLess subtracts n from the connections that stay as they are.
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

// changesTo returns the changes to a configuration. awaiting are the keys with values that wait for a restart, as
// [server.Server.Awaiting] returns them: it is no change if such a key gets back the value that is in force.
func changesTo(before, next *config.Config, awaiting []string) []config.Change {
	changes := config.Diff(before, next)
	for _, c := range changes {
		section := string(c.Kind) + "."
		if c.Kind == config.KindStateFile {
			section = "" // the key stands by itself
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

func lines(changes []config.Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.String())
	}
	return list
}

// connectionCounts are the present numbers of connections, and the addresses of the next listeners.
type connectionCounts struct {
	of      map[place]int64
	removed map[[3]string]int64         // of removed endpoints, by upstream, name and address
	binds   map[string]map[string]int64 // by listener and bind
	next    *listenAddresses

	// Removed endpoints drain as the next configuration says, or as the present one says if their upstream is
	// removed.
	upstreams map[string]*config.Upstream
}

// A place identifies a listener, an upstream, or an endpoint of an upstream.
type place struct {
	kind     config.Kind
	upstream string
	name     string
}

func newConnectionCounts(s *admin.Status, before, next *config.Config) *connectionCounts {
	live := &connectionCounts{
		of: map[place]int64{}, removed: map[[3]string]int64{}, binds: map[string]map[string]int64{}, next: newAddresses(next), upstreams: map[string]*config.Upstream{},
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
			live.of[place{config.KindEndpoint, u.Name, e.Name}] += e.Active // a draining endpoint may have the same name
			if e.State == admin.Removed {
				live.removed[[3]string{u.Name, e.Name, e.Address}] = e.Active
			}
		}
	}
	return live
}

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
	name := c.Upstream
	if c.Kind == config.KindUpstream {
		name = c.Name
	}
	u := live.upstreams[name]
	if u != nil && toDrain(c) {
		drain(&p, u.DrainTimeout)
		return p
	}
	depends := u != nil && live.listsAnew(u, before) && (c.Kind == config.KindUpstream) == (c.Action == config.Changed)
	if c.Action != config.Removed && !depends {
		return p
	}
	if u != nil && u.OnRemoved != string(admin.Drain) {
		p.Disposition = admin.Disposition(u.OnRemoved)
	} else if u != nil {
		drain(&p, u.DrainTimeout)
	}
	if depends && p.Disposition != admin.Keep {
		p.Disposition = admin.Depends
	}
	return p
}

// toDrain reports whether a change drains an endpoint, whatever on_removed says.
func toDrain(c config.Change) bool {
	return c.Kind == config.KindEndpoint && slices.ContainsFunc(c.Keys, func(k config.KeyChange) bool { return k.Key == "state" && k.New == config.Drain })
}

// listsAnew reports whether an upstream of the next configuration finds its endpoints in another way than now. Its
// endpoints are known only once it has asked.
func (live *connectionCounts) listsAnew(u *config.Upstream, before *config.Config) bool {
	i := slices.IndexFunc(before.Upstreams, func(b *config.Upstream) bool { return b.Name == u.Name })
	if i < 0 || before.Upstreams[i].Discover == nil && u.Discover == nil {
		return false
	}
	return !before.Upstreams[i].Discover.SameOrigin(u.Discover)
}

// drain sets the disposition to a drain that ends after a time.
func drain(p *admin.PlannedChange, within time.Duration) {
	p.Disposition, p.ResetAfterUs = admin.Drain, within.Microseconds()
	if within <= 0 {
		p.Disposition = admin.Reset
	}
}

// leaves sets the effect of a change to a listener with active connections. If no listener will listen at a
// connection's address, the connection drains. If any listener will, it stays. Connections at addresses that were given
// up earlier drain already.
func (live *connectionCounts) leaves(p *admin.PlannedChange, name string, active int64, before *config.Config) {
	i := slices.IndexFunc(before.Listeners, func(l *config.Listener) bool { return l.Name == name })
	if i < 0 {
		return
	}
	ln := before.Listeners[i]
	for _, b := range ln.Bind {
		if n, there := live.binds[name][b.String()]; there && !live.next.has(ln, b) {
			p.Leaves = append(p.Leaves, admin.Bind{Bind: b.String(), Active: n})
			p.Connections += n
		}
	}
	switch p.Kept = max(active-p.Connections, 0); {
	case p.Connections > 0:
		drain(p, ln.DrainTime(func(name string) *config.Upstream { return live.upstreams[name] }))
	case p.Kept > 0 && len(p.Leaves) == 0:
		p.Connections, p.Kept, p.Disposition = p.Kept, 0, admin.Keep
	}
}

// listenAddresses are the addresses of a configuration's listeners.
type listenAddresses struct {
	exact map[string]bool
	ports map[string][]string // hosts, by port
}

func newAddresses(cfg *config.Config) *listenAddresses {
	a := &listenAddresses{exact: map[string]bool{}, ports: map[string][]string{}}
	for _, l := range cfg.Listeners {
		for _, b := range l.Bind {
			a.exact[l.BindKey(b)] = true
			if host, port, ok := hostPort(b); ok {
				a.ports[port] = append(a.ports[port], host)
			}
		}
	}
	return a
}

// has reports whether one of these listeners covers the address of a present one: with the same address, a wider
// address or a narrower one.
func (a *listenAddresses) has(l *config.Listener, b config.Bind) bool {
	if a.exact[l.BindKey(b)] {
		return true
	}
	host, port, ok := hostPort(b)
	if !ok {
		return false
	}
	for _, other := range a.ports[port] {
		if covers(host, other) || covers(other, host) {
			return true
		}
	}
	return false
}

// hostPort returns the host and port for clients, if they are known in advance.
func hostPort(b config.Bind) (host, port string, ok bool) {
	if b.Address.Network != "tcp" {
		return "", "", false
	}
	host, port, err := net.SplitHostPort(b.Address.Name)
	return host, port, err == nil && port != "0"
}

// covers reports whether wide includes host: wide is the same, or stands for all addresses, or for all addresses of the
// family.
func covers(wide, host string) bool {
	all, err := netip.ParseAddr(wide)
	switch {
	case wide == "" || wide == host:
		return true
	case err != nil || !all.IsUnspecified():
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().Is4() == all.Is4()
}
