package proxyproto

import (
	"bytes"
	"fmt"
	"net/netip"
)

// lengthV1 finds the end of the line at the beginning of b.
func lengthV1(b []byte) (need int, err error) {
	line := b[:min(len(b), MaxV1)]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		if end < minV1-1 || line[end-1] != '\r' {
			return 0, fmt.Errorf("%w: a line of version 1 that ends in %q", ErrMalformed, tail(line[:end+1]))
		}
		return end + 1, nil
	}
	if len(line) == MaxV1 {
		return 0, fmt.Errorf("%w: a line of version 1 with more than %d bytes", ErrTooLong, MaxV1)
	}
	need = len(b) + len("\r\n")
	if b[len(b)-1] == '\r' {
		need = len(b) + len("\n")
	}
	return max(need, minV1), nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-2):] }

// parseV1 parses a line of version 1, without its end.
func (i *Info) parseV1(line []byte) error {
	i.Version = 1
	kind, rest, more := bytes.Cut(line[len("PROXY "):], []byte(" "))
	switch string(kind) {
	case "UNKNOWN":
		return nil // the rest is to be ignored
	case "TCP4", "TCP6":
	default:
		return fmt.Errorf("%w: protocol %q, which is none of TCP4, TCP6, UNKNOWN", ErrMalformed, kind)
	}
	var fields [4][]byte
	for n := range fields {
		if !more {
			return fmt.Errorf("%w: %d fields after the protocol, and not 4", ErrMalformed, n)
		}
		fields[n], rest, more = bytes.Cut(rest, []byte(" "))
	}
	if more {
		return fmt.Errorf("%w: more than 4 fields after the protocol", ErrMalformed)
	}
	var err error
	if i.Source, err = addrPort(kind, fields[0], fields[2]); err != nil {
		return err
	}
	i.Destination, err = addrPort(kind, fields[1], fields[3])
	return err
}

// addrPort parses an address and a port. The address is of IPv4 after TCP4; after TCP6 it may
// be of either: if one side's is of IPv4, nginx writes it as it is.
func addrPort(kind, host, port []byte) (netip.AddrPort, error) {
	a, ok := addr(host)
	if !ok || string(kind) == "TCP4" && !a.Is4() {
		return netip.AddrPort{}, fmt.Errorf("%w: %q is no address of %s", ErrMalformed, host, kind)
	}
	n := 0
	for _, c := range port {
		if c < '0' || c > '9' || n > 0xffff {
			n = -1
			break
		}
		n = 10*n + int(c-'0')
	}
	// No leading zeros, as the specification says.
	if n < 0 || n > 0xffff || len(port) == 0 || len(port) > 1 && port[0] == '0' {
		return netip.AddrPort{}, fmt.Errorf("%w: %q is no port", ErrMalformed, port)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}
