package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// firstBytes complains of conditions on clients' first bytes that no client can meet, or that the listener does not look
// at.
func (k *checker) firstBytes(ln *Listener) {
	needs, silent, patterns := -1, -1, []ByteMatch(nil)
	for i := range ln.Routes {
		m := &ln.Routes[i].Match
		for j := range m.Bytes {
			k.byteMatch(&m.Bytes[j])
			if !slices.ContainsFunc(patterns, func(b ByteMatch) bool { return b.equal(&m.Bytes[j]) }) {
				patterns = append(patterns, m.Bytes[j])
			}
		}
		k.tlvs(ln, m)
		if k.checkVague(m) || ln.SpeaksPostgres() { // whose negotiation is read instead
			continue
		}
		k.contradiction(ln, m)
		if m.FirstBytes() && needs < 0 {
			needs = i
		}
		if m.silent() && silent < 0 {
			silent = i
		}
	}
	if len(patterns) > firstbytes.MaxPatterns {
		k.complainAt(k.at(&ln.Routes, ln), "leave some out", "the routes have %d different patterns of bytes, more than %d", len(patterns), firstbytes.MaxPatterns)
	}
	k.prereadSilence(ln, silent)
	if needs < 0 {
		return
	}
	k.hiddenHTTP2(ln)
	r := &ln.Routes[needs]
	switch {
	case ln.TLS != nil:
		k.complainAt(k.at(&r.Match, r), "leave tls out, or route by sni and alpn", "a route is chosen before TLS is terminated: this one depends on bytes that are encrypted until then")
	case ln.RequireTLS && !k.bad[&ln.RequireTLS]:
		k.complainAt(k.at(&ln.RequireTLS, ln), "leave it out, and write protocol: [tls] at the routes for TLS", "require_tls refuses the clients that the route in line %d is for", r.Pos.Line)
	}
}

// byteMatch complains of a pattern that has no bytes, or a mask of another length.
func (k *checker) byteMatch(b *ByteMatch) {
	if k.bad[b] || k.bad[&b.Text] || k.bad[&b.Hex] || k.bad[&b.Mask] {
		return
	}
	k.oneOf(b, place{}, "write text: or hex:", choice{"text", &b.Text, b.Text != ""}, choice{"hex", &b.Hex, b.Hex != ""})
	switch content, mask := b.Content(); {
	case len(content) == 0:
	case len(content) > firstbytes.MaxPattern:
		k.complainAt(k.at(b, b), fmt.Sprintf("write at most %d", firstbytes.MaxPattern), "the pattern has %d bytes", len(content))
	case mask == nil:
	case len(mask) != len(content):
		k.complainAt(k.at(&b.Mask, b), fmt.Sprintf("write %d bytes", len(content)), "the mask has %d bytes, and the pattern %d", len(mask), len(content))
	case !slices.ContainsFunc(mask, func(c byte) bool { return c != 0 }):
		k.complainAt(k.at(&b.Mask, b), "write ff for each byte that counts", "no bit of the pattern counts")
	}
}

// tlvs complains of TLVs that no header has.
func (k *checker) tlvs(ln *Listener, m *Match) {
	for i := range m.TLV {
		t := &m.TLV[i]
		if t.Text != "" && t.Hex != "" {
			k.complainAt(k.at(t, m), "leave one of them out", "text and hex exclude each other")
		}
	}
	if len(m.TLV) == 0 || k.bad[&m.TLV] || k.bad[&ln.AcceptProxy] {
		return
	}
	switch a := ln.AcceptProxy; {
	case a == nil:
		k.complainAt(k.at(&m.TLV, m), "write accept_proxy: {versions: [2]} at the listener", "this route is never taken: no PROXY header is read")
	case !k.bad[&a.Versions] && !slices.Contains(a.Versions, 2):
		k.complainAt(k.at(&m.TLV, m), "write versions: [2] in accept_proxy", "this route is never taken: a PROXY header of version 1 has no TLVs")
	}
}

// contradiction complains of conditions of which a client can meet one alone.
func (k *checker) contradiction(ln *Listener, m *Match) {
	var keys []string
	protocols := m.Protocol
	for _, c := range []struct {
		keys     string
		given    bool
		protocol string
	}{
		{"sni and alpn", len(m.SNI)+len(m.ALPN) > 0, "tls"},
		{"host and path", len(m.Host)+len(m.Path) > 0, "http1"},
		{"user and database", len(m.User)+len(m.Database) > 0, "postgres"},
	} {
		if !c.given {
			continue
		}
		keys = append(keys, c.keys)
		if len(protocols) > 0 && !slices.Contains(protocols, c.protocol) {
			k.complainAt(k.at(&m.Protocol, m), "write protocol: ["+c.protocol+"], or leave it out", "this route is never taken: %s are those of %s", c.keys, c.protocol)
			return
		}
	}
	switch {
	case len(keys) > 1:
		k.complainAt(k.at(m, m), "make a route for each", "this route is never taken: %s are those of different protocols", strings.Join(keys, ", "))
	case m.silent() && len(keys)+len(m.Bytes) > 0:
		k.complainAt(k.at(&m.Protocol, m), "make a route for each", "a silent client has sent nothing that the other conditions are about")
	case m.silent() && ln.Connect == "on_data" && !k.bad[&ln.Connect]:
		k.complainAt(k.at(&ln.Connect, ln), "leave it out", "connect: on_data waits for the first byte of a silent client")
	}
}

// prereadSilence complains of silent clients that are never found to be so. route is the first one for them; negative:
// there is none.
func (k *checker) prereadSilence(ln *Listener, route int) {
	if k.bad[&ln.Silence] || k.bad[&ln.Routes] {
		return
	}
	switch at := k.at(&ln.Silence, ln); {
	case route >= 0 && ln.Silence == 0:
		m := &ln.Routes[route].Match
		k.complainAt(k.at(&m.Protocol, m), "write preread_silence: 200ms at the listener", "this route is never taken: it is not known how long a client is to be silent")
	case !ln.readsFirst() && ln.Silence > 0 && !slices.ContainsFunc(ln.Routes, func(r Route) bool { return k.checkVague(&r.Match) }):
		k.warnAt(at, "leave it out", "preread_silence changes nothing: silent clients are served at once, or never")
	case ln.Silence >= ln.Timeouts.Preread && ln.Silence > 0 && !k.bad[&ln.Timeouts.Preread]:
		k.complainAt(at, "make it shorter, or timeouts.preread longer", "no client is found to be silent: it is refused after %v, the preread timeout", ln.Timeouts.Preread)
	}
}

// hiddenHTTP2 warns of a route for HTTP/2 behind one that depends on the host or path of a request, which are not read of
// HTTP/2.
func (k *checker) hiddenHTTP2(ln *Listener) {
	first := -1
	for i := range ln.Routes {
		m := &ln.Routes[i].Match
		if first >= 0 && slices.Contains(m.Protocol, "http2") {
			k.warnAt(k.at(&m.Protocol, m), "put it before that one", "clients of HTTP/2 are refused: their host and path are not read, so the route in line %d may be theirs", ln.Routes[first].Pos.Line)
			return
		}
		if first < 0 && len(m.Host)+len(m.Path) > 0 {
			first = i
		}
	}
}
