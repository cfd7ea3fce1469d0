package filter

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

// property returns a property by its path. Numbers have 8 bytes, little-endian, as in Envoy.
func (s *instance) property(path [][]byte) ([]byte, bool) {
	name := string(path[0])
	if len(path) == 1 {
		switch name {
		case "plugin_name", "plugin_root_id":
			return []byte(s.filter.cfg.Name), true
		}
		return nil, false
	}
	of := s.of
	if of == nil {
		return nil, false
	}
	switch full := name + "." + string(path[1]); full {
	case "source.address":
		return address(of.Source)
	case "source.port":
		return port(of.Source)
	case "destination.address":
		return address(of.Destination)
	case "destination.port":
		return port(of.Destination)
	case "connection.requested_server_name", "penstock.alpn":
		if of.Unread {
			s.wrong(fmt.Errorf("%w: it reads %s, but the ClientHello is longer than preread", ErrAnswer, full))
		}
		if name == "penstock" {
			return []byte(strings.Join(of.ALPN, ",")), len(of.ALPN) > 0
		}
		return []byte(of.ServerName), of.ServerName != ""
	case "penstock.listener":
		return []byte(of.Listener), true
	case "penstock.session":
		return []byte(of.Session), of.Session != ""
	case "penstock.upstream":
		return []byte(of.Upstream), of.Upstream != ""
	case "penstock.tlv":
		return s.tlv(path[2:])
	}
	return nil, false
}

func address(at netip.AddrPort) ([]byte, bool) {
	if !at.IsValid() {
		return nil, false
	}
	return at.AppendTo(nil), true
}

func port(at netip.AddrPort) ([]byte, bool) {
	return binary.LittleEndian.AppendUint64(nil, uint64(at.Port())), at.IsValid()
}

// tlv returns a TLV of the PROXY header by its type, which is written as two hexadecimal digits.
func (s *instance) tlv(path [][]byte) ([]byte, bool) {
	if len(path) != 1 || len(path[0]) != 2 {
		return nil, false
	}
	kind, err := hex.DecodeString(string(path[0]))
	if err != nil {
		return nil, false
	}
	return proxyproto.Find(s.of.TLVs, proxyproto.Type(kind[0]))
}

// set sets a property that the module may write: the answer, or a part of it. An unknown answer makes the call
// fail.
func (s *instance) set(path [][]byte, value []byte) uint32 {
	if len(path) == 2 && string(path[0]) == "tag" {
		if !s.answer.addTag(path[1], value) {
			return statusBadArgument
		}
		return statusOK
	}
	name := ""
	if len(path) == 1 {
		name = string(path[0])
	}
	if s.stream != nil {
		return s.setStream(name, value)
	}
	switch name {
	case "allow":
		s.choose(Answer{Verdict: Allow})
	case "deny":
		s.choose(Answer{Verdict: Deny, Reason: text(value, MaxReason)})
	case "next":
		s.choose(Answer{Verdict: Next})
	case "route":
		if !slices.Contains(s.filter.cfg.Upstreams, string(value)) {
			s.wrong(fmt.Errorf("%w: the upstream %q is not in the filter's list", ErrAnswer, text(value, MaxReason)))
			return statusBadArgument
		}
		s.choose(Answer{Verdict: Route, Upstream: string(value)})
	default:
		s.wrong(fmt.Errorf("%w: penstock.%s cannot be set", ErrAnswer, text(slices.Concat(path...), MaxReason)))
		return statusNotFound
	}
	return statusOK
}

// choose takes a verdict. A denial stays; otherwise the last verdict counts.
func (s *instance) choose(a Answer) {
	if s.chosen && s.answer.Verdict == Deny && (a.Verdict != Deny || a.Reason == "") {
		return
	}
	a.Tags = s.answer.Tags
	s.answer, s.chosen = a, true
}

func (s *instance) wrong(err error) {
	if s.err == nil {
		s.err = err
	}
}
