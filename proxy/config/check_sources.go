package config

import (
	"net/netip"
	"slices"

	clients "github.com/penstock/penstock/proxy/source"
)

// Every address there is, of IPv4 and of IPv6.
var (
	everyIPv4 = clients.Prefix(netip.MustParsePrefix("0.0.0.0/0"))
	everyIPv6 = clients.Prefix(netip.MustParsePrefix("::/0"))
)

// sources warns of lists of sources that are for others than was meant: clients of unix
// sockets and those of IPv4 are in none by being forgotten.
func (k *checker) sources(ln *Listener) {
	if k.bad[&ln.Bind] || slices.ContainsFunc(pointers(ln.Bind), func(b *Bind) bool { return k.bad[b] }) {
		return
	}
	unix := slices.IndexFunc(ln.Bind, func(b Bind) bool { return b.Address.Network == "unix" })
	if unix < 0 {
		if !slices.ContainsFunc(ln.Bind, func(b Bind) bool { return b.Systemd != "" }) {
			k.nobodysUnix(ln)
		}
	} else {
		k.unixClients(ln, ln.Bind[unix])
	}
	k.familyClients(ln)
}

// unixClients warns of lists that have been written without a thought of the clients of a
// unix socket.
func (k *checker) unixClients(ln *Listener, socket Bind) {
	allow, deny, a := ln.Allow, ln.Deny, ln.AcceptProxy
	headers := a != nil && (len(a.From) == 0 || namesUnix(a.From)) // that say who they are
	switch {
	case headers:
	case len(allow) > 0 && !namesUnix(allow):
		k.doubtAt(k.at(&ln.Allow, ln), "write unix in it, or unix:uid=1000 for a user, or leave the socket out",
			"all clients of %v are refused: allow has no unix", socket)
	case len(allow) == 0 && covered(everyIPv4, deny) && covered(everyIPv6, deny) && !namesUnix(deny):
		k.doubtAt(k.at(&ln.Deny, ln), "write deny: [all]", "clients of %v come in: deny has no unix", socket)
	}
	if a != nil && !headers {
		k.doubtAt(k.at(&a.From, a), "write unix in it if they send one", "no PROXY header is read from clients of %v: from has no unix", socket)
	}
}

// nobodysUnix warns of rules for clients of unix sockets where there is none.
func (k *checker) nobodysUnix(ln *Listener) {
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
				k.doubtAt(k.at(&list[i], ln), "leave it out, or bind a unix socket", "%v is nobody: the listener %s has no unix socket", list[i], ln.Name)
			}
		}
	}
}

// familyClients warns of ::/0 where it was meant to be everybody: it is IPv6 alone.
func (k *checker) familyClients(ln *Listener) {
	if !slices.ContainsFunc(ln.Bind, takesIPv4) {
		return
	}
	is4 := func(r Rule) bool { return everyIPv4.Covers(r) || r.Covers(everyIPv4) }
	const fix = "write all, or 0.0.0.0/0 as well"
	switch {
	case slices.Contains(ln.Allow, everyIPv6) && !slices.ContainsFunc(ln.Allow, is4):
		k.doubtAt(k.at(&ln.Allow, ln), fix, "all clients of IPv4 are refused: ::/0 is IPv6 alone")
	case len(ln.Allow) == 0 && slices.Contains(ln.Deny, everyIPv6) && !slices.ContainsFunc(ln.Deny, is4):
		k.doubtAt(k.at(&ln.Deny, ln), fix, "clients of IPv4 come in: ::/0 is IPv6 alone")
	}
}

// takesIPv4 reports whether clients of IPv4 come to an address, as far as it tells.
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

// covered reports whether one rule of a list is for everybody that another one is for.
func covered(narrow Rule, list []Rule) bool {
	return slices.ContainsFunc(list, func(wide Rule) bool { return wide.Covers(narrow) })
}
