package config

import (
	"net/netip"
	"slices"

	clients "github.com/penstock/penstock/proxy/internal/source"
)

// All addresses of IPv4 and of IPv6.
var (
	everyIPv4 = clients.Prefix(netip.MustParsePrefix("0.0.0.0/0"))
	everyIPv6 = clients.Prefix(netip.MustParsePrefix("::/0"))
	everyUnix = clients.UnixClients()
)

// sources warns of source lists that probably forget some clients: clients of unix sockets and
// clients of IPv4 are not in a list unless it names them.
func (k *checker) sources(ln *Listener) {
	if k.bad[&ln.Bind] || slices.ContainsFunc(pointers(ln.Bind), func(b *Bind) bool { return k.bad[b] }) {
		return
	}
	unix := slices.IndexFunc(ln.Bind, func(b Bind) bool { return b.Address.Network == "unix" })
	if unix < 0 {
		if !slices.ContainsFunc(ln.Bind, func(b Bind) bool { return b.Systemd != "" }) {
			k.unusedUnix(ln)
		}
	} else {
		k.unixClients(ln, ln.Bind[unix])
	}
	k.familyClients(ln)
}

// unixClients warns of lists that forget the clients of a unix socket.
func (k *checker) unixClients(ln *Listener, socket Bind) {
	allow, deny, a := ln.Allow, ln.Deny, ln.AcceptProxy
	headers := a != nil && (len(a.From) == 0 || namesUnix(a.From)) // the headers have the real source
	switch {
	case headers:
	case len(allow) > 0 && !namesUnix(allow):
		k.warnAt(k.at(&ln.Allow, ln), "write unix in it, or unix:uid=1000 for a user, or leave the socket out",
			"all clients of %v are refused: allow has no unix", socket)
	case len(allow) == 0 && covered(everyIPv4, deny) && covered(everyIPv6, deny) && !namesUnix(deny):
		k.warnAt(k.at(&ln.Deny, ln), "write deny: [all]", "clients of %v come in: deny has no unix", socket)
	}
	if a != nil && !headers {
		k.warnAt(k.at(&a.From, a), "write unix in it if they send one", "no PROXY header is read from clients of %v: from has no unix", socket)
	}
}

// unusedUnix warns of rules for clients of unix sockets if the listener has no such socket.
func (k *checker) unusedUnix(ln *Listener) {
	lists := [][]Rule{ln.Allow, ln.Deny}
	if ln.AcceptProxy != nil {
		lists = append(lists, ln.AcceptProxy.From)
	}
	for i := range ln.Routes {
		lists = append(lists, ln.Routes[i].Match.Source)
	}
	for _, list := range lists {
		for i := range list {
			if list[i].Unix() {
				k.warnAt(k.at(&list[i], ln), "leave it out, or bind a unix socket", "%v matches no client: the listener %s has no unix socket", list[i], ln.Name)
			}
		}
	}
}

// familyClients warns of ::/0 that was probably meant to be all addresses. It is IPv6 alone.
func (k *checker) familyClients(ln *Listener) {
	if !slices.ContainsFunc(ln.Bind, takesIPv4) {
		return
	}
	is4 := func(r Rule) bool { return everyIPv4.Covers(r) || r.Covers(everyIPv4) }
	const fix = "write all, or 0.0.0.0/0 as well"
	switch {
	case slices.Contains(ln.Allow, everyIPv6) && !slices.ContainsFunc(ln.Allow, is4):
		k.warnAt(k.at(&ln.Allow, ln), fix, "all clients of IPv4 are refused: ::/0 is IPv6 alone")
	case len(ln.Allow) == 0 && slices.Contains(ln.Deny, everyIPv6) && !slices.ContainsFunc(ln.Deny, is4):
		k.warnAt(k.at(&ln.Deny, ln), fix, "clients of IPv4 come in: ::/0 is IPv6 alone")
	}
}

// takesIPv4 reports whether clients of IPv4 can connect to an address, as far as the address
// shows it.
func takesIPv4(b Bind) bool {
	if b.Address.Network != "tcp" {
		return false
	}
	host, _ := splitHostPort(b.Address.Name)
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.Unmap().Is4()
}

// namesUnix reports whether some client of a unix socket is in a list.
func namesUnix(list []Rule) bool {
	return slices.ContainsFunc(list, func(r Rule) bool { return r.Unix() || r == clients.All() })
}

// covered reports whether a rule of a list covers all clients of narrow.
func covered(narrow Rule, list []Rule) bool {
	return slices.ContainsFunc(list, func(wide Rule) bool { return wide.Covers(narrow) })
}
