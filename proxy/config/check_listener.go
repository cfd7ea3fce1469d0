package config

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	clients "github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/sockopt"
)

func (k *checker) listener(ln *Listener) {
	if len(ln.Bind) == 0 && k.given(&ln.Bind) && !k.bad[&ln.Bind] {
		k.complainAt(k.at(&ln.Bind, ln), `write bind: ":443"`, "there is no address to listen on")
	}
	k.upstreams.use(&ln.Upstream, ln)
	if ln.Upstream == "" && len(ln.Routes) == 0 && !ln.Transparent {
		k.warnAt(k.at(&ln.Upstream, ln), "write upstream: and the name of an upstream", "every client is refused: %s", nowhereToGo)
	}
	for i := range ln.Bind {
		if b := &ln.Bind[i]; ln.Transparent && b.Address.Network == "unix" {
			k.complainAt(k.at(b, ln), "leave out this address or transparent", "a unix socket cannot be transparent")
		}
	}
	if a := ln.AcceptProxy; a != nil {
		k.versions(a)
	}
	if ln.TLS != nil {
		k.termination(ln.TLS)
	}
	if m := ln.MetricsBy; m != nil {
		k.metricsBy(ln, m)
	}
	k.postgres(ln)
	k.burst(&ln.Limits.Bandwidth)
	k.burst(&ln.Limits.BandwidthPerConnection)
	k.silence(&ln.Timeouts)
	k.congestion(&ln.Socket.Congestion, &ln.Socket)
	k.sources(ln)
	k.refusesAll(ln)
	k.covered(ln)
	k.firstBytes(ln)
	k.filters(ln)
	seen := make(map[string]int) // line of the first route, by its conditions
	for i := range ln.Routes {
		k.route(ln, &ln.Routes[i])
		if k.bad[&ln.Routes[i]] || k.checkVague(&ln.Routes[i].Match) {
			continue
		}
		same := ln.Routes[i].Match.key()
		if line, ok := seen[same]; ok && !ln.Routes[i].Match.everybody() {
			k.complainAt(k.at(&ln.Routes[i], ln), "leave it out, or match other clients", "this route is never reached: the route in line %d matches the same clients", line)
		} else {
			seen[same] = ln.Routes[i].Pos.Line
		}
		if ln.Routes[i].Match.everybody() && i+1 < len(ln.Routes) {
			k.complainAt(k.at(&ln.Routes[i+1], ln), fmt.Sprintf("put it before the route in line %d, which matches every client", ln.Routes[i].Pos.Line), "this route is never reached")
			break
		}
	}
}

func (k *checker) versions(a *AcceptProxy) {
	switch {
	case len(a.Versions) == 0:
		k.complainAt(k.at(&a.Versions, a), "write versions: [1, 2]", "no version of the PROXY header is accepted")
	case slices.ContainsFunc(pointers(a.Versions), func(v *int) bool { return k.bad[v] }):
	case len(a.Versions) > 1 && len(slices.Compact(slices.Sorted(slices.Values(a.Versions)))) < len(a.Versions):
		k.complainAt(k.at(&a.Versions, a), "write versions: [1, 2]", "a version is listed twice")
	}
}

// everybody reports whether there is no condition.
func (m *Match) everybody() bool {
	return len(m.SNI)+len(m.ALPN) == 0 && !m.excludes() && !m.FirstBytes()
}

// excludes reports whether some clients cannot get the route, whatever they say.
func (m *Match) excludes() bool { return len(m.Source)+len(m.TLV) > 0 || m.Port != 0 }

// checkVague reports whether there may be conditions that could not be read.
func (k *checker) checkVague(m *Match) bool {
	if k.bad[m] || k.strange[m] || k.bad[&m.Source] || k.bad[&m.Port] {
		return true
	}
	unread := func(s *string) bool { return k.bad[s] }
	for _, list := range []*[]string{&m.SNI, &m.ALPN, &m.Protocol, &m.Host, &m.Path, &m.User, &m.Database} {
		if k.bad[list] || slices.ContainsFunc(pointers(*list), unread) {
			return true
		}
	}
	return k.bad[&m.Bytes] || k.bad[&m.TLV] || slices.ContainsFunc(pointers(m.Source), func(r *Rule) bool { return k.bad[r] })
}

// Text returns the conditions in one line, or "" if there is none.
func (m *Match) Text() string {
	var parts []string
	add := func(key string, n int, value any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %v", key, value))
		}
	}
	add("sni", len(m.SNI), m.SNI)
	add("alpn", len(m.ALPN), m.ALPN)
	add("user", len(m.User), m.User)
	add("database", len(m.Database), m.Database)
	add("source", len(m.Source), m.Source)
	add("port", m.Port, m.Port)
	add("protocol", len(m.Protocol), m.Protocol)
	add("host", len(m.Host), m.Host)
	add("path", len(m.Path), m.Path)
	for i := range m.Bytes {
		content, _ := m.Bytes[i].Content()
		add(fmt.Sprintf("bytes at %d", m.Bytes[i].Offset), 1, fmt.Sprintf("%q", content))
	}
	for i := range m.TLV {
		add(fmt.Sprintf("tlv 0x%02x", m.TLV[i].Type), 1, fmt.Sprintf("%q", m.TLV[i].Value()))
	}
	return strings.Join(parts, ", ")
}

// key returns the same text for the same conditions.
func (m *Match) key() string {
	key := fmt.Sprintf("%q %q %v %d %q %q %q %q %q", m.SNI, m.ALPN, m.Source, m.Port, m.Protocol, m.Host, m.Path, m.User, m.Database)
	for i := range m.Bytes {
		content, mask := m.Bytes[i].Content()
		key += fmt.Sprintf(" %d %x %x", m.Bytes[i].Offset, content, mask)
	}
	for i := range m.TLV {
		key += fmt.Sprintf(" %d %v %x", m.TLV[i].Type, m.TLV[i].Value() == nil, m.TLV[i].Value())
	}
	return key
}

func (k *checker) route(ln *Listener, r *Route) {
	if k.bad[r] {
		return
	}
	k.oneOf(r, k.at(r, ln), "write upstream: and the name of an upstream",
		choice{"upstream", &r.Upstream, r.Upstream != ""}, choice{"split", &r.Split, len(r.Split) > 0})
	k.upstreams.use(&r.Upstream, r)
	k.split(r)
	if r.Match.Port != 0 && !k.bad[&r.Match.Port] && !k.bad[&ln.Bind] && !k.bad[&ln.Transparent] && !ln.hasPort(r.Match.Port) {
		k.complainAt(k.at(&r.Match.Port, r), "write a port that bind has", "this route is never taken: the listener is not bound to port %d", r.Match.Port)
	}
}

// hasPort reports whether a client may have connected to a port.
func (ln *Listener) hasPort(want int) bool {
	if ln.Transparent || ln.AcceptProxy != nil {
		return true // the PROXY header or the kernel may report any port
	}
	for _, b := range ln.Bind {
		switch {
		case b.Address.Network == "tcp":
		case b.Address.Network == "": // a socket of systemd, or it could not be read
			return true
		default:
			continue
		}
		if _, port := splitHostPort(b.Address.Name); port == "0" || port == strconv.Itoa(want) {
			return true
		}
	}
	return false
}

// split requires the shares of a route to add up to 100 percent.
func (k *checker) split(r *Route) {
	sum, seen := 0, make(map[string]bool)
	for i := range r.Split {
		s := &r.Split[i]
		k.upstreams.use(&s.Upstream, s)
		if seen[s.Upstream] && s.Upstream != "" {
			k.complainAt(k.at(&s.Upstream, s), "add its percentages", "the upstream %s has two shares", s.Upstream)
		}
		seen[s.Upstream] = true
		if !k.given(&s.Percent) || k.bad[&s.Percent] {
			return // already reported
		}
		hundredths := math.Round(s.Percent * 100)
		if math.Abs(hundredths-s.Percent*100) > 1e-6 {
			k.complainAt(k.at(&s.Percent, s), "write "+percent(int(hundredths)), "%v %% has more than two decimals", s.Percent)
		}
		sum += int(hundredths)
	}
	if len(r.Split) > 0 && sum != 100_00 {
		k.complainAt(k.at(&r.Split, r), k.missing(r, sum), "the percentages add up to %s, not to 100", percent(sum))
	}
}

// missing says which percentage would make the sum 100.
func (k *checker) missing(r *Route, sum int) string {
	last := &r.Split[len(r.Split)-1]
	if p := int(math.Round(last.Percent*100)) + 100_00 - sum; p >= 0 {
		return fmt.Sprintf("write percent: %s for %s", percent(p), last.Upstream)
	}
	return "make the percentages smaller"
}

func percent(hundredths int) string {
	return strconv.FormatFloat(float64(hundredths)/100, 'f', -1, 64)
}

// maxCompared limits the comparisons of route conditions, all routes together. Without this
// limit, comparing the routes of a large file would take minutes.
const maxCompared = 1_000_000

// covered warns of a route that is never reached because one earlier route matches all of its clients. It does not find
// several earlier routes that match them only together.
func (k *checker) covered(ln *Listener) {
	for j := range ln.Routes {
		for i := range j {
			first, second := &ln.Routes[i], &ln.Routes[j]
			if k.compared >= maxCompared {
				return
			}
			if k.covers(&first.Match, &second.Match) {
				k.warnAt(k.at(second, ln), "put it before that route, or leave it out",
					"this route is never reached: the route in line %d matches all its clients", first.Pos.Line)
				break
			}
		}
	}
}

// covers reports whether first matches every client that m matches. An absent condition of first excludes no client. A
// present one must have each of m's alternatives.
func (k *checker) covers(first, m *Match) bool {
	k.compared++
	return (first.Port == 0 || first.Port == m.Port) &&
		among(k, first.Source, m.Source, Rule.Covers) &&
		among(k, first.SNI, m.SNI, coversName) &&
		among(k, first.ALPN, m.ALPN, equal) && k.coversBytes(first, m)
}

// coversBytes is covers for the conditions on first bytes.
func (k *checker) coversBytes(first, m *Match) bool {
	return among(k, first.Protocol, m.spoken(), equal) &&
		among(k, first.Host, m.Host, coversName) &&
		among(k, first.Path, m.Path, coversPath) &&
		among(k, first.User, m.User, equal) &&
		among(k, first.Database, m.Database, equal) &&
		among(k, first.Bytes, m.Bytes, func(a, b ByteMatch) bool { return a.equal(&b) }) &&
		among(k, first.TLV, m.TLV, func(a, b TLVMatch) bool { return a.equal(&b) || a.Type == b.Type && a.Value() == nil })
}

func equal(a, b string) bool { return a == b }

// coversPath reports whether the pattern wide matches all paths that narrow matches.
func coversPath(wide, narrow string) bool {
	parent, below := strings.CutSuffix(wide, "*")
	return wide == narrow || below && strings.HasPrefix(narrow, parent)
}

// among reports whether each element of list is covered by an accepted one.
func among[T any](k *checker, accepted, list []T, covers func(wide, narrow T) bool) bool {
	if len(accepted) == 0 {
		return true
	}
	for _, narrow := range list {
		found := slices.ContainsFunc(accepted, func(wide T) bool {
			k.compared++
			return covers(wide, narrow)
		})
		if !found || k.compared >= maxCompared {
			return false
		}
	}
	return len(list) > 0
}

// coversName reports whether the pattern wide matches all names that narrow matches.
func coversName(wide, narrow string) bool {
	if parent, ok := strings.CutPrefix(wide, "*"); ok {
		return parent == "" || strings.HasSuffix(narrow, parent)
	}
	return wide == narrow
}

// All addresses of IPv4 and of IPv6.
var (
	everyIPv4 = clients.Prefix(netip.MustParsePrefix("0.0.0.0/0"))
	everyIPv6 = clients.Prefix(netip.MustParsePrefix("::/0"))
	everyUnix = clients.UnixClients()
)

// sources warns of lists that probably forget some clients: a list covers clients of unix sockets, and of IPv4, only if
// it names them.
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
		k.warnAt(k.at(&ln.Allow, ln), "add unix to allow, or unix:uid=1000 for a user, or leave the socket out",
			"all clients of %v are refused: allow has no unix", socket)
	case len(allow) == 0 && covered(everyIPv4, deny) && covered(everyIPv6, deny) && !namesUnix(deny):
		k.warnAt(k.at(&ln.Deny, ln), "write deny: [all]", "clients of %v are accepted: deny has no unix", socket)
	}
	if a != nil && !headers {
		k.warnAt(k.at(&a.From, a), "add unix to from if these clients send a PROXY header", "no PROXY header is read from clients of %v: from has no unix", socket)
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

// familyClients warns of ::/0, which matches only IPv6, if it was probably meant to match all addresses.
func (k *checker) familyClients(ln *Listener) {
	if !slices.ContainsFunc(ln.Bind, takesIPv4) {
		return
	}
	is4 := func(r Rule) bool { return everyIPv4.Covers(r) || r.Covers(everyIPv4) }
	const fix = "write all, or add 0.0.0.0/0"
	switch {
	case slices.Contains(ln.Allow, everyIPv6) && !slices.ContainsFunc(ln.Allow, is4):
		k.warnAt(k.at(&ln.Allow, ln), fix, "all IPv4 clients are refused: ::/0 is only IPv6")
	case len(ln.Allow) == 0 && slices.Contains(ln.Deny, everyIPv6) && !slices.ContainsFunc(ln.Deny, is4):
		k.warnAt(k.at(&ln.Deny, ln), fix, "IPv4 clients are accepted: ::/0 is only IPv6")
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

// empty complains of empty lists: the other conditions alone would decide, and if there are none, the route would match
// every client. A configuration as Penstock prints it has every list, and there an empty list is no condition.
func (k *checker) empty(m *Match) {
	keys := []string{"sni", "alpn", "source", "protocol", "host", "path", "user", "database", "bytes", "tlv"}
	lists := []any{&m.SNI, &m.ALPN, &m.Source, &m.Protocol, &m.Host, &m.Path, &m.User, &m.Database, &m.Bytes, &m.TLV}
	if !slices.ContainsFunc(lists, func(list any) bool { return !k.given(list) }) {
		return
	}
	for i, list := range lists {
		if k.given(list) && !k.bad[list] && reflect.ValueOf(list).Elem().Len() == 0 {
			k.complainAt(k.at(list, m), "write a value, or leave it out", "%s is empty, so every client would meet it", keys[i])
		}
	}
}

// firstBytes complains of conditions on first bytes that no client can meet, or that the listener does not examine.
func (k *checker) firstBytes(ln *Listener) {
	needs, silent, patterns := -1, -1, []ByteMatch(nil)
	for i := range ln.Routes {
		m := &ln.Routes[i].Match
		k.empty(m)
		for j := range m.Bytes {
			k.byteMatch(&m.Bytes[j])
			if !slices.ContainsFunc(patterns, func(b ByteMatch) bool { return b.equal(&m.Bytes[j]) }) {
				patterns = append(patterns, m.Bytes[j])
			}
		}
		k.tlvs(ln, m)
		if k.checkVague(m) || ln.SpeaksPostgres() { // the negotiation of its clients is read instead
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
		k.complainAt(k.at(&r.Match, r), "leave tls out, or route by sni and alpn", "a route is chosen before TLS is terminated, but this route depends on bytes that are still encrypted")
	case ln.RequireTLS && !k.bad[&ln.RequireTLS]:
		k.complainAt(k.at(&ln.RequireTLS, ln), "leave it out, and write protocol: [tls] at the routes for TLS", "require_tls refuses the clients of the route in line %d", r.Pos.Line)
	}
}

// byteMatch complains of a pattern without bytes, or with a mask of another length.
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
		k.complainAt(k.at(&b.Mask, b), "write "+display.Plural(int64(len(content)), "byte", "bytes"), "the mask has %s, but the pattern has %d", display.Plural(int64(len(mask)), "byte", "bytes"), len(content))
	case !slices.ContainsFunc(mask, func(c byte) bool { return c != 0 }):
		k.complainAt(k.at(&b.Mask, b), "write ff for each byte to compare", "the mask is 0, so no bit of the pattern is compared")
	}
}

// tlvs complains of TLVs that no header has.
func (k *checker) tlvs(ln *Listener, m *Match) {
	for i := range m.TLV {
		t := &m.TLV[i]
		if t.Text != "" && t.Hex != "" {
			k.complainAt(k.at(t, m), "leave one of them out", "text and hex cannot be used together")
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

// contradiction complains of two conditions that no client can meet together.
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
			k.complainAt(k.at(&m.Protocol, m), "write protocol: ["+c.protocol+"], or leave it out", "this route is never taken: %s belong to %s", c.keys, c.protocol)
			return
		}
	}
	switch {
	case len(keys) > 1:
		k.complainAt(k.at(m, m), "make a route for each", "this route is never taken: %s belong to different protocols", strings.Join(keys, ", "))
	case m.silent() && len(keys)+len(m.Bytes) > 0:
		k.complainAt(k.at(&m.Protocol, m), "make a route for each", "a silent client has sent nothing that the other conditions could match")
	case m.silent() && ln.Connect == "on_data" && !k.bad[&ln.Connect]:
		k.complainAt(k.at(&ln.Connect, ln), "leave it out", "connect: on_data waits for the first byte of a silent client")
	}
}

// prereadSilence complains if silent clients can never be recognised as silent. route is the first route for silent
// clients, or negative.
func (k *checker) prereadSilence(ln *Listener, route int) {
	if k.bad[&ln.Silence] || k.bad[&ln.Routes] {
		return
	}
	switch at := k.at(&ln.Silence, ln); {
	case route >= 0 && ln.Silence == 0:
		m := &ln.Routes[route].Match
		k.complainAt(k.at(&m.Protocol, m), "write preread_silence: "+ln.silence()+" at the listener", "this route is never taken: nothing says how long a client must be silent")
	case !ln.readsFirst() && ln.Silence > 0 && !slices.ContainsFunc(ln.Routes, func(r Route) bool { return k.checkVague(&r.Match) }):
		k.warnAt(at, "leave it out", "preread_silence has no effect here: it needs a listener without tls, and routes that match a client's first bytes")
	case ln.Silence >= ln.Timeouts.Preread && ln.Silence > 0 && !k.bad[&ln.Timeouts.Preread]:
		k.complainAt(at, "make preread_silence shorter, or timeouts.preread longer", "preread_silence has no effect: timeouts.preread refuses silent clients after %v", ln.Timeouts.Preread)
	}
}

// silence suggests a preread_silence for the listener: longer than most round trips, but shorter than
// timeouts.preread.
func (ln *Listener) silence() string {
	return ShowDuration(min(200*time.Millisecond, ln.Timeouts.Preread/2))
}

// hiddenHTTP2 warns of a route for HTTP/2 behind a route that depends on the host or path of a request, which are not
// read for HTTP/2.
func (k *checker) hiddenHTTP2(ln *Listener) {
	first := -1
	for i := range ln.Routes {
		m := &ln.Routes[i].Match
		if first >= 0 && slices.Contains(m.Protocol, "http2") {
			k.warnAt(k.at(&m.Protocol, m), "put it before that route", "HTTP/2 clients are refused: the route in line %d may be meant for them, but their host and path are not read", ln.Routes[first].Pos.Line)
			return
		}
		if first < 0 && len(m.Host)+len(m.Path) > 0 {
			first = i
		}
	}
}

// disguised warns of endpoints that get HTTP clients by host and path, and also clients of TLS or PostgreSQL. A lenient
// endpoint may take a ClientHello or a StartupMessage for an HTTP method, and then serve a request that no route by
// host and path has checked.
func (k *checker) disguised(c *Config) {
	for _, ln := range c.Listeners {
		guard := slices.IndexFunc(ln.Routes, func(r Route) bool { return len(r.Match.Host)+len(r.Match.Path) > 0 })
		if guard < 0 || ln.TLS != nil || ln.SpeaksPostgres() || k.bad[&ln.Routes] {
			continue
		}
		for _, p := range []string{"tls", "postgres"} { // clients of other protocols are refused if a route needs a host or path
			if !slices.ContainsFunc(ln.Routes, func(r Route) bool { return slices.Contains(r.Match.spoken(), p) }) {
				continue
			}
			if to := k.meeting(ln.gettingTo("http1", guard), ln.gettingTo(p, 0)); to != "" {
				r := &ln.Routes[guard]
				k.warnAt(k.at(&r.Match, r), "write a route with protocol: ["+p+"] to an upstream with other endpoints",
					"clients of %s reach the upstream %s, as HTTP clients do: if an endpoint takes their first message for an HTTP request, it serves a request that this route has not checked", p, to)
			}
		}
	}
}

// gettingTo returns the upstreams that clients of a protocol may reach. It leaves out routes with conditions on bytes,
// and the routes before index from that take every protocol.
func (ln *Listener) gettingTo(protocol string, from int) (names []string) {
	for i := range ln.Routes {
		r := &ln.Routes[i]
		m, spoken := &r.Match, r.Match.spoken()
		if len(m.Bytes) > 0 || len(spoken) == 0 && i < from || len(spoken) > 0 && !slices.Contains(spoken, protocol) {
			continue
		}
		names = append(names, r.leadsTo()...)
		if m.only(protocol) {
			return names
		}
	}
	return append(names, ln.Upstream)
}

// only reports whether the route matches every client of a protocol.
func (m *Match) only(protocol string) bool {
	return (len(m.Protocol) == 0 || slices.Contains(m.Protocol, protocol)) &&
		len(m.SNI)+len(m.ALPN)+len(m.Host)+len(m.Path)+len(m.User)+len(m.Database)+len(m.Bytes) == 0 && !m.excludes()
}

// meeting returns an upstream in second that shares a destination with an upstream in first, or "" if there is none.
func (k *checker) meeting(first, second []string) string {
	a, b := k.destinationsOf(first), k.destinationsOf(second)
	for _, at := range slices.Sorted(maps.Keys(b)) {
		if a[at] != "" {
			return b[at]
		}
	}
	return ""
}

// destinationsOf maps each destination of these upstreams and their fallbacks to the name of the upstream that has it.
func (k *checker) destinationsOf(names []string) map[string]string {
	list := make(map[string]string)
	for _, name := range slices.Sorted(slices.Values(names)) {
		for u := range withFallbacks(k.find, name) {
			list["upstream "+u.Name] = u.Name
			for i := range u.Endpoints {
				if a := u.Endpoints[i].Address; a.Network != "" {
					list[destination(a)] = u.Name
				}
			}
		}
	}
	return list
}

// evaded warns of a route by name that excludes some clients, if these clients reach the same endpoints by a route
// without a name, or by the listener's upstream. No route sees what such a client says to the endpoint later, for
// example a Host within TLS.
func (k *checker) evaded(c *Config) {
	for _, ln := range c.Listeners {
		if k.bad[&ln.Routes] {
			continue
		}
		for i := range ln.Routes {
			r := &ln.Routes[i]
			if !r.Match.names() || !r.Match.excludes() && r.Filter == nil {
				continue
			}
			if to := k.meeting(r.leadsTo(), ln.withoutName()); to != "" {
				k.warnAt(k.at(&r.Match, r), "give these clients an upstream with endpoints of their own",
					"clients that this route excludes can still reach its endpoints without sending its name: upstream, or a route without names, leads to the upstream %s", to)
			}
		}
	}
}

func (m *Match) names() bool {
	return len(m.SNI)+len(m.Host) > 0 && !slices.Contains(m.SNI, "*") && !slices.Contains(m.Host, "*")
}

func (r *Route) leadsTo() []string {
	names := []string{r.Upstream}
	for j := range r.Split {
		names = append(names, r.Split[j].Upstream)
	}
	return names
}

// withoutName returns the upstreams that clients reach whatever name they send: the listener's own, and the upstreams
// of routes without conditions on clients.
func (ln *Listener) withoutName() []string {
	all := []string{ln.Upstream}
	for i := range ln.Routes {
		if m := &ln.Routes[i].Match; !m.names() && !m.excludes() {
			all = append(all, ln.Routes[i].leadsTo()...)
		}
	}
	return all
}

// readsFirst reports whether some of the listener's clients must say something before they have a route.
func (ln *Listener) readsFirst() bool {
	return ln.TLS == nil && !ln.RequireTLS && !ln.SpeaksPostgres() && slices.ContainsFunc(ln.Routes, func(r Route) bool {
		return len(r.Match.SNI)+len(r.Match.ALPN) > 0 || r.Match.FirstBytes()
	})
}

// speakingFirst are the ports of protocols with servers that speak first.
var speakingFirst = map[string]string{
	"21": "FTP", "25": "SMTP", "110": "POP3", "119": "NNTP", "143": "IMAP", "587": "SMTP", "2525": "SMTP", "3306": "MySQL", "4190": "ManageSieve", "5900": "VNC",
}

// waitsInVain warns if servers that speak first are behind routes by first bytes: their clients say nothing, and are
// refused.
func (k *checker) waitsInVain(c *Config) {
	for _, ln := range c.Listeners {
		if k.bad[&ln.Routes] || k.given(&ln.Silence) || !ln.readsFirst() {
			continue
		}
		for _, name := range slices.Sorted(slices.Values(ln.withoutName())) {
			if u := k.find(name); u != nil && u.speaksFirst() != "" {
				k.warnAt(k.at(&ln.Routes, ln), "write preread_silence: "+ln.silence()+" at the listener, or preread_silence: 0s if the clients speak first",
					"clients that wait for the server's first bytes are refused after %v: routes depend on the client's first bytes, but the upstream %s seems to speak %s", ln.Timeouts.Preread, u.Name, u.speaksFirst())
				break
			}
		}
	}
}

// speaksFirst returns the protocol of a server that speaks first, judging by its port, or by a check that expects an
// answer without a question. It returns "" if nothing suggests this.
func (u *Upstream) speaksFirst() string {
	if h := u.HealthCheck; h != nil && h.Expect.Value != "" && h.Send.Value == "" && h.Type == "tcp" {
		return "first, as its check expects"
	}
	for i := range u.Endpoints {
		if a := u.Endpoints[i].Address; a.Network == "tcp" {
			_, port := splitHostPort(a.Name)
			if protocol := speakingFirst[port]; protocol != "" {
				return protocol
			}
		}
	}
	return ""
}

// A bindOwners says who has a bind, and where it is written.
type bindOwners struct {
	whose string
	at    place
}

// A port maps the addresses of one port number to their owners.
type port struct {
	hosts    map[string]bindOwners
	first    bindOwners // any of the owners
	wild     bindOwners // owner of all addresses of both families
	families [2]family
}

// A family holds the owners of the addresses of IPv4 or of IPv6.
type family struct{ first, wild bindOwners }

// give sets the owner, unless there is one.
func (t *bindOwners) give(to bindOwners) {
	if t.whose == "" {
		*t = to
	}
}

// binds finds addresses that the kernel would not bind beside each other.
func (k *checker) binds(c *Config) {
	ports, names := make(map[string]*port), make(map[string]bindOwners)
	if c.Admin != nil {
		k.admin(c.Admin)
		k.bind(ports, names, &c.Admin.Bind, "admin")
	}
	if c.Metrics != nil {
		k.bind(ports, names, &c.Metrics.Bind, "metrics")
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			k.bind(ports, names, &ln.Bind[i], "listener "+ln.Name)
		}
	}
}

func (k *checker) bind(ports map[string]*port, names map[string]bindOwners, b *Bind, whose string) {
	t := bindOwners{whose, k.at(b, b)}
	var before bindOwners
	switch {
	case b.Systemd != "":
		before = claim(names, b.String(), t)
	case b.Address.Network == "unix":
		before = claim(names, b.Address.Place(), t)
	case b.Address.Network == "":
		return // the address could not be read
	default:
		host, number := splitHostPort(b.Address.Name)
		if number == "0" {
			return // the kernel chooses a new port each time
		}
		if ports[number] == nil {
			ports[number] = &port{hosts: make(map[string]bindOwners)}
		}
		before = ports[number].claim(host, t)
	}
	if before.whose != "" {
		k.complainAt(t.at, "write another address or port, or leave one of them out", "%s overlaps with the address of %s in %v", b, before.whose, before.at.pos())
	}
}

// claim returns the earlier owner of the name. If there is none, t becomes the owner.
func claim(names map[string]bindOwners, name string, t bindOwners) (before bindOwners) {
	before, ok := names[name]
	if !ok {
		names[name] = t
	}
	return before
}

// claim returns the owner that conflicts with t at a host. 0.0.0.0 and [::] each stand for all addresses of one
// family.
func (p *port) claim(host string, t bindOwners) (before bindOwners) {
	defer p.first.give(t)
	addr, err := netip.ParseAddr(host)
	addr = sockopt.Canonical(addr)
	switch {
	case host == "":
		if p.first.whose == "" {
			p.wild = t
		}
		return p.first
	case p.wild.whose != "":
		return p.wild
	case err != nil: // it could not be read
		return bindOwners{}
	}
	f := &p.families[0]
	if addr.Is6() {
		f = &p.families[1]
	}
	defer f.first.give(t)
	switch {
	case addr.IsUnspecified() && f.first.whose != "":
		return f.first
	case addr.IsUnspecified():
		f.wild = t
		return bindOwners{}
	case f.wild.whose != "":
		return f.wild
	}
	return claim(p.hosts, addr.String(), t)
}
