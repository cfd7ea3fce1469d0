package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

func (k *checker) listener(ln *Listener) {
	if len(ln.Bind) == 0 && k.given(&ln.Bind) && !k.bad[&ln.Bind] {
		k.complainAt(k.at(&ln.Bind, ln), `write bind: ":443"`, "there is no address to listen on")
	}
	k.upstreams.use(&ln.Upstream, ln)
	if ln.Upstream == "" && len(ln.Routes) == 0 && !ln.Transparent {
		k.warnAt(k.at(&ln.Upstream, ln), "write upstream: and the name of one", "every client is refused: %s", nowhereToGo)
	}
	for i := range ln.Bind {
		if b := &ln.Bind[i]; ln.Transparent && b.Address.Network == "unix" {
			k.complainAt(k.at(b, ln), "leave it out, or transparent", "a unix socket cannot be transparent")
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
	seen := make(map[string]int) // line by conditions
	for i := range ln.Routes {
		k.route(ln, &ln.Routes[i])
		if k.bad[&ln.Routes[i]] || k.checkVague(&ln.Routes[i].Match) {
			continue
		}
		same := ln.Routes[i].Match.key()
		if line, ok := seen[same]; ok && !ln.Routes[i].Match.everybody() {
			k.complainAt(k.at(&ln.Routes[i], ln), "leave it out, or match other clients", "this route is never reached: the one in line %d matches the same clients", line)
		} else {
			seen[same] = ln.Routes[i].Pos.Line
		}
		if ln.Routes[i].Match.everybody() && i+1 < len(ln.Routes) {
			k.complainAt(k.at(&ln.Routes[i+1], ln), fmt.Sprintf("put it before the one in line %d, which matches every client", ln.Routes[i].Pos.Line), "this route is never reached")
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
	return len(m.SNI) == 0 && len(m.ALPN) == 0 && len(m.Source) == 0 && m.Port == 0 && len(m.TLV) == 0 && !m.FirstBytes()
}

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
	k.oneOf(r, k.at(r, ln), "write upstream: and the name of one",
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
			k.complainAt(k.at(&s.Percent, s), "write "+percent(int(hundredths)), "%v %% is finer than a hundredth", s.Percent)
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
	return "make them smaller"
}

func percent(hundredths int) string {
	return strconv.FormatFloat(float64(hundredths)/100, 'f', -1, 64)
}
