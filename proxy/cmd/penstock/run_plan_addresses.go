package main

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/penstock/penstock/proxy/config"
)

// listenAddresses are the addresses of a configuration's listeners.
type listenAddresses struct {
	exact map[string]bool
	ports map[string][]string // hosts, by port
}

func newAddresses(cfg *config.Config) *listenAddresses {
	a := &listenAddresses{exact: map[string]bool{}, ports: map[string][]string{}}
	for _, l := range cfg.Listeners {
		for i, b := range l.Bind {
			a.exact[addressOf(l.Name, i, b)] = true
			if host, port, ok := hostPort(b); ok {
				a.ports[port] = append(a.ports[port], host)
			}
		}
	}
	return a
}

// has reports whether there is a listener at the address of a present one: at the same
// address, or at one that includes it or that it includes.
func (a *listenAddresses) has(listener string, index int, b config.Bind) bool {
	if a.exact[addressOf(listener, index, b)] {
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

// addressOf returns the identity of a listening socket. Each socket with port 0 is another
// one.
func addressOf(listener string, index int, b config.Bind) string {
	b.Address.Mode = 0
	switch _, port, _ := net.SplitHostPort(b.Address.Name); {
	case b.Address.Network == "unix" && !b.Address.Abstract():
		if path, err := filepath.Abs(b.Address.Name); err == nil {
			b.Address.Name = path
		}
	case b.Address.Network == "tcp" && port == "0":
		return fmt.Sprint(listener, "#", index, "#", b)
	}
	return b.String()
}

// hostPort returns the host and port for clients, if they are known in advance.
func hostPort(b config.Bind) (host, port string, ok bool) {
	if b.Address.Network != "tcp" {
		return "", "", false
	}
	host, port, err := net.SplitHostPort(b.Address.Name)
	return host, port, err == nil && port != "0"
}

// covers reports whether wide includes host: it is the same, or all addresses, or all of the
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
