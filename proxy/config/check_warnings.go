package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// unused warns of upstreams that no client ever reaches.
func (k *checker) unused(c *Config) {
	byName := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		byName[u.Name] = u
	}
	used := make(map[string]bool, len(c.Upstreams))
	use := func(name string) {
		for name != "" && !used[name] { // a used upstream uses its fallback
			used[name] = true
			u := byName[name]
			if u == nil || u.Fallback == nil {
				return
			}
			name = u.Fallback.Upstream
		}
	}
	for _, ln := range c.Listeners {
		use(ln.Upstream)
		for _, name := range ln.Mirrors() {
			used[name] = true // a mirror has no fallback
		}
		for _, name := range ln.FilteredTo() {
			use(name)
		}
		for i := range ln.Routes {
			use(ln.Routes[i].Upstream)
			for j := range ln.Routes[i].Split {
				use(ln.Routes[i].Split[j].Upstream)
			}
		}
	}
	for _, u := range c.Upstreams {
		if !used[u.Name] {
			k.warnAt(k.at(&u.Name, u), "write upstream: "+u.Name+" at a listener or a route, or leave it out", "no client gets to the upstream %s", u.Name)
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
		k.warnAt(at, "write weight: 1 at one of them", "every endpoint has weight 0: all clients get the fallback")
	case !chosen:
		k.complainAt(at, "write weight: 1 at one of them, or a fallback", "every endpoint has weight 0: none would ever be chosen")
	case !first:
		k.warnAt(at, "leave backup out", "every endpoint is a backup: they are used as if none was")
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
	k.warnAt(k.at(&u.BackupWhen, u), "write connections: at the endpoints that are no backups, or backup_when: down",
		"backup_when: full changes nothing: no endpoint of the upstream %s that is no backup has a limit", u.Name)
}

// burst warns of a burst without a rate.
func (k *checker) burst(b *Bandwidth) {
	if b.Burst > 0 && b.Both == 0 && b.Up == 0 && b.Down == 0 && !k.bad[&b.Both] && !k.bad[&b.Up] && !k.bad[&b.Down] {
		k.warnAt(k.at(&b.Burst, b), "write both:, up: or down: as well, or leave it out", "nothing limits the bandwidth, so the burst changes nothing")
	}
}

// twice warns of an address with several endpoints, each of which has its own limits and
// health.
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
			"%s is the address of the endpoint %s in %v too", e.Address, before.Name, k.at(&before.Address, before).pos())
	}
}

// destination returns the same text for all addresses of the same destination, except for
// names.
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
	fix := "write zone: " + z.Local + " at those that are, or leave zone_aware out"
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
		k.warnAt(k.at(&r.Attempts, r), "write a budget such as 0.2, or attempts: 0", "a budget of 0 leaves no client any of its %d attempts", r.Attempts)
	case 2*r.Attempts > RetryFloor:
		k.warnAt(k.at(&r.Attempts, r), fmt.Sprintf("write attempts: %d or less", RetryFloor/2),
			"attempts is %d, which is more than the budget grants: if all their endpoints fail, clients have %d retries within %v together, or %v for each if that is more",
			r.Attempts, RetryFloor, RetryWindow, r.Budget)
	}
}

// queue sets the default size to 0 if there is a fallback. It warns of a queue in which no
// client ever waits. Clients wait where a limit is reached, or without a fallback. Endpoints
// discovered from a file may have limits of their own.
func (k *checker) queue(u *Upstream) {
	q, holds := &u.Queue, u.Fallback == nil
	if !holds && !k.given(&q.Size) {
		q.Size = 0
	}
	if !holds && k.given(&q.Hold) && q.Hold > 0 {
		k.warnAt(k.at(&q.Hold, q), "leave hold out, or fallback", "no client is held: the fallback of the upstream %s gets them at once", u.Name)
	}
	if holds && q.Size == 0 && k.given(&q.Size) && k.given(&q.Hold) && q.Hold > 0 {
		k.warnAt(k.at(&q.Hold, q), "write a size such as 1000, or leave both out", "no client is held: the queue of the upstream %s has no places", u.Name)
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
		"no client would ever wait in the queue: nothing limits the connections of the upstream %s", u.Name)
}
