package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/sockopt"
)

func setBind(d *decoder, f *field, v reflect.Value, text string) *complaint {
	b := v.Addr().Interface().(*Bind)
	if text == f.dflt && text == Auto {
		return nil
	}
	if d != nil {
		b.Pos = d.here.pos()
	}
	if name, ok := strings.CutPrefix(text, "systemd:"); ok {
		if name == "" || len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
			return complain("write the name that FileDescriptorName= gives it, such as systemd:web", "%q names no socket", text)
		}
		b.Systemd = name
		return nil
	}
	addr, c := parseAddress(text)
	if c == nil && addr.Network == "tcp" {
		addr.Name, c = bindHost(addr.Name)
	} else if c == nil {
		c = checkSocketPath(addr)
	}
	if c == nil {
		b.Address = addr
	}
	return c
}

// bindHost accepts a host that can be listened on without a lookup: an IP address, or
// localhost, which is 127.0.0.1. The addresses of any other name may change at any time.
func bindHost(name string) (string, *complaint) {
	host, port := splitHostPort(name)
	switch addr, err := netip.ParseAddr(host); {
	case host == "":
		return name, nil
	case sockopt.Localhost(host):
		return "127.0.0.1:" + port, nil
	case host == "*":
		return name, complain("write :"+port+", or 0.0.0.0:"+port+" for IPv4 alone", "%q is not an address: * is no host", name)
	case err != nil:
		return name, complain("write an address of this machine, such as 10.0.0.5:"+port+", or :"+port+" for all of them", "%q is not an IP address", host)
	default:
		return name, checkAddr(addr, port)
	}
}

// checkAddr rejects addresses that no connection ever has.
func checkAddr(addr netip.Addr, port string) *complaint {
	switch {
	case addr.IsMulticast():
		return complain("write another one", "%q is a multicast address, to which there are no connections", addr)
	case addr.Zone() != "" && addr.WithZone("").IsUnspecified(): // the kernel binds it to all interfaces (net/ipv6/af_inet6.c: __inet6_bind)
		return complain("write [::]:"+port+" for all interfaces, or an address that "+addr.Zone()+" has", "%q is not the addresses of an interface", addr)
	case addr.IsLinkLocalUnicast() && addr.Is6() && addr.Zone() == "":
		return complain(fmt.Sprintf("write its interface too, such as [%v%%eth0]:%s", addr, port), "%q is an address of each interface", addr)
	}
	return nil
}

// checkSocketPath rejects paths of directories.
func checkSocketPath(addr Address) *complaint {
	last := addr.Name[strings.LastIndexByte(addr.Name, '/')+1:]
	if !addr.Abstract() && (last == "" || last == "." || last == "..") {
		return complain("write the path of a socket, such as unix:/run/penstock/web.sock", "%q is a directory", addr.Name)
	}
	return nil
}

func setAddress(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	addr, c := parseAddress(text)
	if c != nil {
		if meant, what := suggestEndpoint(text); meant != "" {
			c.fix = "write the " + what + " too, such as " + meant
		}
		return c
	}
	if addr.Network == "tcp" {
		c = checkHost(text, addr.Name)
	} else if c = checkSocketPath(addr); c == nil && addr.Mode != 0 {
		c = complain("write it without ?mode=", "%q is to be connected to, so it has no mode", text)
	}
	if c == nil {
		*v.Addr().Interface().(*Address) = addr
	}
	return c
}

// checkHost requires the destination of a connection to be an address or a name, and a port.
func checkHost(text, name string) *complaint {
	host, port := splitHostPort(name)
	switch {
	case host == "":
		return complain("write 127.0.0.1:"+port+" for this machine", "%q has no host", text)
	case port == "0":
		return complain("write the port after the colon, 1 to 65535", "%q has no port", text)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return checkAddr(addr, port)
	}
	host = strings.TrimSuffix(host, ".")
	if c := checkHostname(host); c != nil {
		if !strings.Contains(c.fix, "Punycode") {
			c.fix = "write 10.0.0.12:" + port + ", [2001:db8::12]:" + port + " or db.example:" + port
		}
		return complain(c.fix, "%q has no host: %q is neither an IP address nor a name", text, host)
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return complain("write the four numbers of an IPv4 address, from 0 to 255", "%q is not an IP address", host)
	}
	return nil
}

// suggestEndpoint completes an address that lacks its host or its port, and returns which of
// the two it lacks. Both are "" if it can suggest nothing.
func suggestEndpoint(text string) (meant, missing string) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= 65535 {
		return "127.0.0.1:" + text, "host"
	}
	if !strings.ContainsAny(text, ":/") && checkHost(text, text+":1") == nil {
		return text + ":8080", "port"
	}
	return "", ""
}

// parseAddress is sockopt.Parse with messages for a file instead of a flag.
func parseAddress(text string) (Address, *complaint) {
	if c := checkLine(text); c != nil {
		return Address{}, c
	}
	addr, err := sockopt.Parse(text)
	if err == nil {
		return addr, nil
	}
	fix := strings.TrimPrefix(err.Error(), fmt.Sprintf("%v %q: ", sockopt.ErrAddress, text))
	if strings.Contains(text, ",") && !strings.HasPrefix(text, "unix:") {
		fix = "write a list: [" + strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), ", ") + "]"
	}
	return Address{}, complain(fix, "%q is not an address", text)
}

// splitHostPort splits a name that sockopt.Parse has joined.
func splitHostPort(name string) (host, port string) {
	i := strings.LastIndexByte(name, ':')
	return strings.Trim(name[:i], "[]"), name[i+1:]
}
