package config

import (
	"slices"
	"strconv"
	"time"
)

// percentages warns of parts of 1 that were probably meant as percentages.
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
		k.warnAt(k.at(percent, section), "write "+strconv.FormatFloat(100*p, 'g', 6, 64)+" for that part of all", "%s is %v of 100", key, p)
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
	k.warnAt(at, "make first_byte shorter or idle longer", "first_byte is %v, and idle, which ends such connections first, is %v",
		t.FirstByte.Round(time.Millisecond), t.Idle.Round(time.Millisecond))
}

// refusesAll warns of a listener that refuses all clients although some are allowed.
func (k *checker) refusesAll(ln *Listener) {
	if len(ln.Allow) > 0 && !k.bad[&ln.Allow] && !k.bad[&ln.Deny] && ln.deniesAllowed() {
		k.warnAt(k.at(&ln.Allow, ln), "leave some out of deny", "all clients are refused: %s", deniesAllowed)
	}
}

const (
	nowhereToGo   = "there is neither a route nor an upstream"
	deniesAllowed = "deny has all that allow has"
)

func (ln *Listener) deniesAllowed() bool {
	return !slices.ContainsFunc(ln.Allow, func(r Rule) bool { return !covered(r, ln.Deny) })
}

// RefusesAll returns the reason for which the listener refuses every client, whatever happens; empty: it does not.
func (ln *Listener) RefusesAll() string {
	unix := func(b Bind) bool { return b.Address.Network == "unix" }
	switch {
	case ln.Upstream == "" && len(ln.Routes) == 0 && !ln.Transparent:
		return nowhereToGo
	case len(ln.Allow) > 0 && ln.deniesAllowed():
		return deniesAllowed
	case len(ln.Allow) > 0 && !namesUnix(ln.Allow) && ln.AcceptProxy == nil && !slices.ContainsFunc(ln.Bind, func(b Bind) bool { return !unix(b) }):
		return "allow has no unix, and it has unix sockets alone"
	case covered(everyIPv4, ln.Deny) && covered(everyIPv6, ln.Deny) &&
		(covered(everyUnix, ln.Deny) || !slices.ContainsFunc(ln.Bind, func(b Bind) bool { return unix(b) || b.Systemd != "" })):
		return "deny has every source"
	}
	return ""
}

// absent warns of an endpoints file that this machine does not have. It may be created later.
func (k *checker) absent(f *DiscoverFile) {
	if f.Path != "" && !k.bad[&f.Path] && !k.exists(string(f.Path)) {
		k.warnAt(k.at(&f.Path, f), "make it, or write another path: until it is there the upstream has no endpoint", "there is no file %s", f.Path)
	}
}

// zones warns of spill_below without a local zone.
func (k *checker) zones(z *ZoneAware) {
	if z.Local == "" && !k.bad[&z.Local] && k.given(&z.SpillBelow) {
		k.warnAt(k.at(&z.SpillBelow, z), "write local: and the zone that this process is in", "zones do not matter, for local is empty")
	}
}
