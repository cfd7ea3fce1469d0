package admin

import (
	"cmp"
	"fmt"
)

// denials adds the denials of a listener that refuse all of its clients, or nearly all.
func (f *finder) denials(of Problem, l *Listener) {
	d := l.DeniedByHand
	if d == nil || !d.All && !d.nearlyAll() {
		return
	}
	of.Since = d.Latest.Since
	clients := "every client"
	if !d.All {
		clients = fmt.Sprintf("%d of its last %s", d.Refused, plural(max(d.Clients, d.Refused), "client", "clients"))
	}
	others := ""
	if n := int64(d.Count - 1); n > 0 {
		others = ", the latest of " + plural(n+1, "source", "sources")
	}
	remedy := "penstock deny remove " + d.Latest.Source
	if d.Latest.Listener != "" {
		remedy += " --listener " + d.Latest.Listener
	}
	f.add(of, Warning, "listener_denied", "listener %s refuses %s: %s is denied by hand%s, until %s, by %s: %s takes it back",
		l.Name, clients, d.Latest.Source, others, f.clock(d.Latest.Until), cmp.Or(d.Latest.By, "-"), remedy)
}
