package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
)

// check finds errors that the configuration has as a whole, even if each value is valid by itself.
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
	k := newChecker(&l.decoder, c)
	k.upstreams = upstreams
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
	if len(l.problems) == 0 { // else nobody sees the warnings
		l.writtenByOthers()
	}
}

// writtenByOthers warns of each file that is read, if another user could change or replace it. Only a warning: the
// process may run as that user.
func (l *loader) writtenByOthers() {
	seen, hangs := make(map[string]bool), false
	warn := func(path string, at place) {
		if seen[path] || hangs {
			return
		}
		seen[path] = true
		if _, err := l.mode(path); errors.Is(err, os.ErrDeadlineExceeded) {
			l.warnAt(at, mend(err, 0), "%v", err)
			hangs = true // many files of this file system would take minutes
			return
		}
		if _, err := file.Foreign(path); err != nil {
			l.warnAt(at, "", "%v", err)
		}
	}
	for i, path := range l.cfg.Files {
		warn(path, place{src: &source{name: l.names[i]}})
	}
	for i := range l.files {
		if f := &l.files[i]; f.key != "state_file" && f.key != "pins" { // only the process itself writes these
			warn(f.path, f.at)
		}
	}
}

// A checker checks listeners and upstreams.
type checker struct {
	*decoder
	upstreams *names
	byName    map[string]*Upstream     // the first upstream with each name
	pairs     map[Certificate]unpaired // certificates already read, and their errors
	modules   map[module]*complaint    // modules already checked, and their errors
	late      bool                     // a module has timed out
	compared  int                      // conditions of routes, see covered
}

func newChecker(d *decoder, c *Config) *checker {
	k := &checker{decoder: d, byName: make(map[string]*Upstream), pairs: make(map[Certificate]unpaired), modules: make(map[module]*complaint)}
	for _, u := range c.Upstreams {
		if k.byName[u.Name] == nil {
			k.byName[u.Name] = u
		}
	}
	return k
}

// find returns the upstream with a name, or nil.
func (k *checker) find(name string) *Upstream { return k.byName[name] }

// A choice is one of several keys in a section that needs exactly one of them.
type choice struct {
	key   string
	field any // pointer to it
	set   bool
}

// oneOf complains if several of the keys are set, or none. If none is set, the key is missing, or it was written and is
// empty. at is the place to report if the section itself was not written.
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
		k.complainAt(k.at(section, section).or(at), "leave one of them out", "%s cannot be used together", enumeration(have, "and"))
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

	// partial means that some names are unknown, and that this was already reported. Then an undefined name is not
	// reported.
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
		n.d.complainAt(at, fix, "the %s %s is already defined in %v", n.kind, *name, before.pos())
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
	fix := fmt.Sprintf("define it under %ss", n.kind)
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
			u = k.byName[u.Fallback.Upstream]
		}
		if from, ok := index[u]; ok && u != nil && u.Fallback != nil && u.Fallback.Upstream != "" {
			k.cycle(path[from:])
		}
	}
}

func (k *checker) cycle(path []*Upstream) {
	names := make([]string, len(path))
	for i, u := range path {
		names[i] = u.Name
	}
	last := path[len(path)-1]
	k.complainAt(k.at(&last.Fallback.Upstream, last), "leave one of these fallbacks out, or write another upstream",
		"fallbacks go in a circle: %s", circular(names))
}

// circular writes a circle, up to a bound.
func circular(names []string) string {
	first := names[0]
	if len(names) > 9 {
		names = append(names[:8], "…")
	}
	return strings.Join(append(names, first), " → ")
}

// percentages warns of fractions of 1 that were probably meant as percentages.
func (k *checker) percentages(u *Upstream) {
	if o := u.OutlierDetection; o != nil {
		k.percentage("failure_percentage", &o.FailurePercentage, o)
	}
	if b := u.CircuitBreaker; b != nil {
		k.percentage("failure_percentage", &b.FailurePercentage, b)
	}
}

func (k *checker) percentage(key string, percent *float64, section any) {
	if p := *percent; p > 0 && p < 1 && !k.bad[percent] {
		k.warnAt(k.at(percent, section), "write "+strconv.FormatFloat(100*p, 'g', 6, 64)+" if you mean this percentage", "%s is a percentage: %[2]v means %[2]v %%", key, p)
	}
}

// silence warns of an idle timeout that ends sessions before first_byte is over.
func (k *checker) silence(t *Timeouts) {
	if k.bad[&t.FirstByte] || k.bad[&t.Idle] || t.Idle == 0 || t.FirstByte < t.Idle || t.FirstByte == 0 {
		return
	}
	at := k.at(&t.FirstByte, t)
	if !k.given(&t.FirstByte) {
		at = k.at(&t.Idle, t)
	}
	k.warnAt(at, "make first_byte shorter or idle longer", "first_byte is %v and never takes effect, because idle ends such connections after %v",
		t.FirstByte.Round(time.Millisecond), t.Idle.Round(time.Millisecond))
}

// refusesAll warns of a listener that refuses all clients although some are allowed.
func (k *checker) refusesAll(ln *Listener) {
	if len(ln.Allow) > 0 && !k.bad[&ln.Allow] && !k.bad[&ln.Deny] && ln.deniesAllowed() {
		k.warnAt(k.at(&ln.Allow, ln), "leave some sources out of deny", "all clients are refused: %s", deniesAllowed)
	}
}

const (
	nowhereToGo   = "there is neither a route nor an upstream"
	deniesAllowed = "deny has every source of allow"
)

func (ln *Listener) deniesAllowed() bool {
	return !slices.ContainsFunc(ln.Allow, func(r Rule) bool { return !covered(r, ln.Deny) })
}

// RefusesAll returns why the listener refuses every client, whatever happens. It returns "" if it may accept some.
func (ln *Listener) RefusesAll() string {
	unix := func(b Bind) bool { return b.Address.Network == "unix" }
	switch {
	case ln.Upstream == "" && len(ln.Routes) == 0 && !ln.Transparent:
		return nowhereToGo
	case len(ln.Allow) > 0 && ln.deniesAllowed():
		return deniesAllowed
	case len(ln.Allow) > 0 && !namesUnix(ln.Allow) && ln.AcceptProxy == nil && !slices.ContainsFunc(ln.Bind, func(b Bind) bool { return !unix(b) }):
		return "every bind is a unix socket, and allow has no unix"
	case covered(everyIPv4, ln.Deny) && covered(everyIPv6, ln.Deny) &&
		(covered(everyUnix, ln.Deny) || !slices.ContainsFunc(ln.Bind, func(b Bind) bool { return unix(b) || b.Systemd != "" })):
		return "deny has every source"
	}
	return ""
}

// absent warns of an endpoints file that this machine does not have. It may be created later.
func (k *checker) absent(f *DiscoverFile) {
	if f.Path != "" && !k.bad[&f.Path] && k.look(string(f.Path)).absent {
		k.warnAt(k.at(&f.Path, f), "make the file, or write another path: without the file the upstream has no endpoint", "there is no file %s", f.Path)
	}
}

// zones warns of spill_below without a local zone.
func (k *checker) zones(z *ZoneAware) {
	if z.Local == "" && !k.bad[&z.Local] && k.given(&z.SpillBelow) {
		k.warnAt(k.at(&z.SpillBelow, z), "write local: and the zone of this process", "zones have no effect, because local is empty")
	}
}

// A sight says what a path is on this machine. All fields are false if this cannot be found out.
type sight struct {
	absent, dir, noDir, socket, disk bool
	err                              error // any error, except that the file is absent
}

func (d *decoder) look(path string) (s sight) {
	mode, err := d.mode(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		s.absent, s.noDir = true, true
	case err != nil:
		s.err = err
	default:
		s.dir, s.noDir, s.socket, s.disk = mode.IsDir(), !mode.IsDir(), mode&fs.ModeSocket != 0, mode&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice
	}
	return s
}

// directories warns of sockets in directories that this machine does not have. This is no
// problem: the file may be for another machine, or the directory may be made before the
// process starts.
func (k *checker) directories(c *Config) {
	if c.Admin != nil {
		k.directory(&c.Admin.Bind)
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			k.directory(&ln.Bind[i])
		}
	}
}

func (k *checker) directory(b *Bind) {
	if b.Address.Network != "unix" || b.Address.Abstract() {
		return
	}
	k.directoryOf(b.Address.Name, k.at(b, b))
}

// directoryOf warns unless this machine has the directory of a path.
func (k *checker) directoryOf(path string, at place) {
	dir := filepath.Dir(path)
	switch is := k.look(dir); {
	case is.noDir:
		k.warnAt(at, "make the directory before penstock run, or write another path", "this machine has no directory %s", dir)
	case is.err != nil:
		k.warnAt(at, mend(is.err, 0), "%v", is.err)
	}
}

// unused warns of upstreams that no client ever reaches.
func (k *checker) unused(c *Config) {
	used := make(map[string]bool, len(c.Upstreams))
	for _, ln := range c.Listeners {
		for u := range ln.reaches(k.find) {
			used[u.Name] = true
		}
		for _, name := range ln.Mirrors() {
			used[name] = true // a mirror has no fallback
		}
		for _, name := range ln.FilteredTo() {
			for u := range withFallbacks(k.find, name) {
				used[u.Name] = true
			}
		}
	}
	for _, u := range c.Upstreams {
		if !used[u.Name] {
			k.warnAt(k.at(&u.Name, u), "write upstream: "+u.Name+" at a listener or a route, or leave the upstream out", "no client reaches the upstream %s", u.Name)
		}
	}
}

// weights reports an upstream that never chooses an endpoint, or that has only backups.
func (k *checker) weights(u *Upstream) {
	if len(u.Endpoints) == 0 {
		return
	}
	chosen, first := false, false
	for i := range u.Endpoints {
		chosen = chosen || u.Endpoints[i].Weight != 0
		first = first || !u.Endpoints[i].Backup
	}
	at := k.at(&u.Endpoints, u)
	switch {
	case !chosen && u.Fallback != nil:
		k.warnAt(at, "write weight: 1 at an endpoint", "every endpoint has weight 0: all clients get the fallback")
	case !chosen:
		k.complainAt(at, "write weight: 1 at an endpoint, or a fallback", "every endpoint has weight 0: none can be chosen")
	case !first:
		k.warnAt(at, "leave backup out", "every endpoint is a backup: all are used like ordinary endpoints")
	}
}

// backups warns of backup_when: full if no endpoint can be full. Endpoints discovered from a
// file may have limits of their own.
func (k *checker) backups(u *Upstream) {
	if u.BackupWhen != "full" || k.bad[&u.Endpoints] || u.Discover != nil && u.Discover.File != nil {
		return
	}
	for i := range u.Endpoints {
		if e := &u.Endpoints[i]; k.bad[e] || !e.Backup && (e.Connections > 0 || k.bad[&e.Connections]) {
			return
		}
	}
	k.warnAt(k.at(&u.BackupWhen, u), "write connections: at the other endpoints, or backup_when: down",
		"backup_when: full has no effect: in the upstream %s only backups have a limit of connections", u.Name)
}

// burst warns of a burst without a rate.
func (k *checker) burst(b *Bandwidth) {
	if b.Burst > 0 && b.Both == 0 && b.Up == 0 && b.Down == 0 && !k.bad[&b.Both] && !k.bad[&b.Up] && !k.bad[&b.Down] {
		k.warnAt(k.at(&b.Burst, b), "write both:, up: or down: as well, or leave burst out", "burst has no effect, because nothing limits the bandwidth")
	}
}

// twice warns of an address with several endpoints: each endpoint has its own limits and health.
func (k *checker) twice(u *Upstream) {
	seen := make(map[string]*Endpoint, len(u.Endpoints))
	for i := range u.Endpoints {
		e := &u.Endpoints[i]
		if e.Address.Network == "" { // it could not be read
			continue
		}
		before := seen[destination(e.Address)]
		if before == nil {
			seen[destination(e.Address)] = e
			continue
		}
		k.warnAt(k.at(&e.Address, e), "leave one out, and give the other more weight",
			"%s is also the address of the endpoint %s in %v", e.Address, before.Name, k.at(&before.Address, before).pos())
	}
}

// destination returns the same text for all addresses of one destination. It does not resolve names.
func destination(a Address) string {
	if a.Network != "tcp" {
		return a.Network + ":" + filepath.Clean(a.Name)
	}
	host, port := splitHostPort(a.Name)
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().String()
	}
	return strings.ToLower(host) + " " + port
}

// zone warns of a local zone that no endpoint of the file is in.
func (k *checker) zone(u *Upstream) {
	z := u.ZoneAware
	if z != nil {
		k.zones(z)
	}
	if z == nil || z.Local == "" || len(u.Endpoints) == 0 {
		return
	}
	var zones []string
	for i := range u.Endpoints {
		switch zone := u.Endpoints[i].Zone; zone {
		case z.Local:
			return
		case "":
		default:
			zones = append(zones, zone)
		}
	}
	fix := "write zone: " + z.Local + " at the endpoints in it, or leave zone_aware out"
	if meant := closest(z.Local, zones[:min(len(zones), maxWords)]); meant != "" {
		fix = didYouMean(meant)
	}
	k.warnAt(k.at(&z.Local, z), fix, "no endpoint is in the zone %s", z.Local)
}

// retry warns of attempts that the retry budget does not grant.
func (k *checker) retry(u *Upstream) {
	r := &u.Retry
	switch {
	case k.bad[&r.Attempts] || k.bad[&r.Budget] || !k.given(&r.Attempts) && !k.given(&r.Budget):
	case r.Budget == 0 && r.Attempts > 0 && k.given(&r.Attempts):
		k.warnAt(k.at(&r.Attempts, r), "write a budget such as 0.2, or attempts: 0", "with a budget of 0 no client gets any of its %d attempts", r.Attempts)
	case 2*r.Attempts > RetryFloor:
		k.warnAt(k.at(&r.Attempts, r), fmt.Sprintf("write attempts: %d or less", RetryFloor/2),
			"attempts is %d, more than the budget allows: if all endpoints fail, all clients together get %d retries within %v, or %v per client if that is more",
			r.Attempts, RetryFloor, RetryWindow, r.Budget)
	}
}

// queue sets the defaults of size and hold to 0 if there is a fallback. It warns of a queue in which no
// client ever waits. Clients wait where a limit is reached, or without a fallback. Endpoints
// discovered from a file may have limits of their own.
func (k *checker) queue(u *Upstream) {
	q, holds := &u.Queue, u.Fallback == nil
	if !holds && !k.given(&q.Size) {
		q.Size = 0
	}
	if !holds && !k.given(&q.Hold) {
		q.Hold = 0
	}
	if !holds && q.Hold > 0 {
		k.warnAt(k.at(&q.Hold, q), "leave out hold or fallback", "hold has no effect: the fallback of the upstream %s gets the clients at once", u.Name)
	}
	if holds && q.Size == 0 && k.given(&q.Size) && k.given(&q.Hold) && q.Hold > 0 {
		k.warnAt(k.at(&q.Hold, q), "write a size such as 1000, or leave size and hold out", "hold has no effect: the queue of the upstream %s has size 0", u.Name)
	}
	if q.Size == 0 || !k.given(&q.Size) || holds && q.Hold > 0 || u.Discover != nil && u.Discover.File != nil {
		return
	}
	if b := u.CircuitBreaker; b != nil && (b.Connections > 0 || b.Pending > 0) {
		return
	}
	for i := range u.Endpoints {
		if u.Endpoints[i].Connections > 0 {
			return
		}
	}
	k.warnAt(k.at(&u.Queue.Size, &u.Queue), "write connections: at the endpoints, or in circuit_breaker, or leave queue out",
		"no client will wait in the queue, because nothing limits the connections of the upstream %s", u.Name)
}

// loops complains if listeners send clients round in a circle, because an endpoint is an address of the same or another
// listener. One client would then use up all connections. loops follows a client that meets no condition of a route. It
// does not find circles that depend on a condition, on the client's source or on discovery.
func (k *checker) loops(c *Config) {
	g := graph{checker: k, listeners: make(map[string]*Listener), state: make(map[any]int)}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			for _, at := range arrivals(ln.Bind[i].Address) {
				if g.listeners[at] == nil {
					g.listeners[at] = ln
				}
			}
		}
	}
	for _, ln := range c.Listeners {
		if g.state[ln] == 0 {
			g.walk(ln)
		}
	}
	k.adminEndpoints(c)
	g.ownPorts(c)
}

// ownPorts complains of checks of a port at which this process listens: its answer would say nothing about the endpoint. It also
// complains of a collector there, because each export would be traced in turn.
func (g *graph) ownPorts(c *Config) {
	own := make(map[string]string) // by arrival
	for at, ln := range g.listeners {
		own[at] = "the listener " + ln.Name
	}
	if c.Admin != nil {
		for _, at := range arrivals(c.Admin.Bind.Address) {
			own[at] = "the address of the admin API"
		}
	}
	if c.Metrics != nil {
		for _, at := range arrivals(c.Metrics.Bind.Address) {
			own[at] = "the address of the metrics"
		}
	}
	is := func(u *Upstream, host, port string) (Address, string) {
		to := Address{Network: "tcp", Name: net.JoinHostPort(host, port)}
		for _, at := range g.outgoing(u, to) {
			if what := own[at]; what != "" {
				return to, what
			}
		}
		return to, ""
	}
	if t := c.Traces; t != nil && !g.bad[t] {
		if u, err := url.Parse(t.Endpoint); err == nil {
			if to, what := is(new(Upstream), u.Hostname(), cmp.Or(u.Port(), "443")); what != "" {
				g.complainAt(g.at(&t.Endpoint, t), "write the address of a collector", "%s is %s: each export would be a client of this process", to, what)
			}
		}
	}
	for _, u := range c.Upstreams {
		h := u.HealthCheck
		if h == nil || h.Port == 0 {
			continue
		}
		for i := range u.Endpoints {
			e := &u.Endpoints[i]
			if e.Address.Network != "tcp" {
				continue
			}
			host, _ := splitHostPort(e.Address.Name)
			if to, what := is(u, host, strconv.Itoa(h.Port)); what != "" && to != e.Address {
				g.complainAt(g.at(&h.Port, h), "write another port, or leave it out", "%s is %s: checks of %s would be its clients", to, what, e.Address)
			}
		}
	}
}

// adminEndpoints complains of endpoints that are the admin API: each of their clients would be an operator.
func (k *checker) adminEndpoints(c *Config) {
	if c.Admin != nil {
		k.noEndpoint(c, arrivals(c.Admin.Bind.Address), "the address of the admin API: every client could control this process")
	}
	if c.Metrics != nil {
		k.noEndpoint(c, arrivals(c.Metrics.Bind.Address), "the address of the metrics: every client could read them, with the address of this machine")
	}
}

func (k *checker) noEndpoint(c *Config, own []string, what string) {
	for _, u := range c.Upstreams {
		for i := range u.Endpoints {
			e := &u.Endpoints[i]
			if slices.ContainsFunc(k.outgoing(u, e.Address), func(at string) bool { return slices.Contains(own, at) }) {
				k.complainAt(k.at(&e.Address, e), "write another address", "%s is %s", e.Address, what)
			}
		}
	}
}

// A graph has the ways of clients from listeners to upstreams, and from upstreams to other upstreams or back to
// listeners.
type graph struct {
	*checker
	listeners map[string]*Listener // by arrival
	state     map[any]int          // of a listener or upstream: 0 before the visit, its place in the path (from 1) during the visit, then done
	path      []step
}

// done is the state of a listener or upstream after all of its steps have been followed.
const done = -1

// A step leads from a listener to an upstream, or from an upstream to its fallback or to the listener at an endpoint's
// address.
type step struct {
	from any
	at   place   // where the listener or the route names its upstream
	by   Address // address of the endpoint
}

func (g *graph) walk(from any) {
	g.state[from] = len(g.path) + 1
	switch from := from.(type) {
	case *Listener:
		g.leave(from)
	case *Upstream:
		for i := range from.Endpoints {
			by := from.Endpoints[i].Address
			for _, at := range g.outgoing(from, by) {
				if ln := g.listeners[at]; ln != nil {
					g.follow(step{from: from, by: by}, ln)
					break
				}
			}
		}
		if from.Fallback != nil {
			g.followName(step{from: from}, from.Fallback.Upstream)
		}
	}
	g.state[from] = done
}

// leave follows the steps of a client that meets no condition of the listener's routes.
func (g *graph) leave(ln *Listener) {
	for i := range ln.Routes {
		r := &ln.Routes[i]
		switch m := &r.Match; {
		case len(m.Source) > 0 || m.Port != 0 || g.checkVague(m):
			return // a client that comes back may meet the condition
		case !m.everybody():
			continue
		}
		g.followName(step{from: ln, at: g.at(&r.Upstream, r)}, r.Upstream)
		for j := range r.Split {
			if s := &r.Split[j]; s.Percent > 0 {
				g.followName(step{from: ln, at: g.at(&s.Upstream, s)}, s.Upstream)
			}
		}
		g.followMirror(ln, r)
		return
	}
	g.followName(step{from: ln, at: g.at(&ln.Upstream, ln)}, ln.Upstream)
	g.followMirror(ln, nil)
}

// followMirror follows the mirror of a route, or of the default route if r is nil.
func (g *graph) followMirror(ln *Listener, r *Route) {
	if m := ln.MirrorOf(r); m != nil && m.Percent > 0 {
		g.followName(step{from: ln, at: g.at(&m.Upstream, m)}, m.Upstream)
	}
}

func (g *graph) followName(s step, upstream string) {
	if u := g.find(upstream); u != nil {
		g.follow(s, u)
	}
}

func (g *graph) follow(s step, to any) {
	g.path = append(g.path, s)
	switch depth := g.state[to]; depth {
	case done:
	case 0:
		g.walk(to)
	default:
		g.circle(g.path[depth-1:])
	}
	g.path = g.path[:len(g.path)-1]
}

// circle complains of a circle of steps. A circle of fallbacks alone is reported by cycles.
func (g *graph) circle(steps []step) {
	first := -1
	for i := range steps {
		if _, ok := steps[i].from.(*Listener); ok {
			first = i
			break
		}
	}
	if first < 0 {
		return
	}
	steps = append(append([]step(nil), steps[first:]...), steps[:first]...)
	fix := "write another upstream, or another bind"
	if len(steps) == 2 {
		g.complainAt(steps[0].at, fix, "connections would go in a circle: %s is an endpoint of %s, and an address of this listener", steps[1].by, steps[1].from.(*Upstream).Name)
		return
	}
	g.complainAt(steps[0].at, fix, "connections would go in a circle: %s", words(steps))
}

// words names the listeners and upstreams of a circle, up to a bound.
func words(steps []step) string {
	names := make([]string, len(steps))
	for i, s := range steps {
		switch from := s.from.(type) {
		case *Listener:
			names[i] = "listener " + from.Name
		case *Upstream:
			if names[i] = "upstream " + from.Name; s.by.Network != "" {
				names[i] += fmt.Sprintf(" (%s)", s.by)
			}
		}
	}
	return circular(names)
}

// arrivals returns the keys of a listener's address. outgoing returns the same keys for an endpoint that leads there. A
// listener at all addresses of a family has one key for them. arrivals returns nil if the address is not known in
// advance.
func arrivals(a Address) []string {
	if a.Network == "unix" {
		return []string{a.Place()}
	}
	if a.Network != "tcp" { // a socket of systemd, or it could not be read
		return nil
	}
	host, port := splitHostPort(a.Name)
	switch {
	case port == "0":
		return nil
	case host == "":
		return []string{"0.0.0.0 " + port, ":: " + port}
	}
	return []string{plain(host) + " " + port}
}

// outgoing returns the keys of the listeners that a connection to an upstream's endpoint may reach, the most likely key first.
func (d *decoder) outgoing(u *Upstream, a Address) []string {
	if a.Network != "tcp" {
		return arrivals(a)
	}
	host, port := splitHostPort(a.Name)
	if sockopt.Localhost(host) {
		return []string{"127.0.0.1 " + port, "0.0.0.0 " + port, "::1 " + port, ":: " + port}
	}
	list := []string{plain(host) + " " + port}
	if ip, err := netip.ParseAddr(host); err == nil {
		switch ip = sockopt.Canonical(ip); {
		case ip == netip.IPv4Unspecified() && u.SourceAddress.IsValid(): // a connection to it goes to its own address
			list = append(list, plain(u.SourceAddress.String())+" "+port)
		case ip == netip.IPv4Unspecified(): // a connection to it goes to the loopback, see ip(7)
			list = append(list, "127.0.0.1 "+port)
		case ip == netip.IPv6Unspecified():
			list = append(list, "::1 "+port)
		case ip.IsLoopback() && ip.Is4():
			list = append(list, "0.0.0.0 "+port)
		case ip.IsLoopback():
			list = append(list, ":: "+port)
		case ip.Is4() && d.reaches(ip):
			list = append(list, "0.0.0.0 "+port)
		case d.reaches(ip):
			list = append(list, ":: "+port)
		}
	}
	return list
}

// plain returns the same text for a host, however it is written.
func plain(host string) string {
	if sockopt.Localhost(host) {
		return "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return sockopt.Canonical(ip).String()
	}
	return host
}
