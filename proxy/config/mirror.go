package config

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/proxy/internal/compare"
)

// A Mirror has an upstream sent a copy of the bytes of some clients.
type Mirror struct {
	Pos      Pos
	Upstream string        `key:"upstream" type:"upstream" required:"yes" eg:"shadow" doc:"Upstream that gets the bytes that these clients send, in addition to their own. Its answers reach no client."`
	Percent  float64       `key:"percent" default:"100" range:"0..100" unit:"%" eg:"5" doc:"Share of the sessions that are mirrored, to a hundredth of a percent. 0: none."`
	Patience time.Duration `key:"patience" default:"1s" range:"1ms..1h" doc:"Longest time for which bytes may wait for the mirror's endpoint; then this session is not mirrored any more. Also the longest time by which a mirror outlives its session."`
	Compare  *Compare      `key:"compare" doc:"The answers of the mirror's endpoint are compared with those that the clients get, and what differs is reported (penstock mirror). The answers of these sessions are copied, not spliced. Absent: they are thrown away."`
}

func (m *Mirror) same(o *Mirror) bool {
	return m.Upstream == o.Upstream && m.Percent == o.Percent && m.Patience == o.Patience && both(m.Compare, o.Compare, (*Compare).same)
}

// Comparing returns how answers are compared; nil: they are not.
func (m *Mirror) Comparing() *Compare {
	if m.Compare == nil || !m.Compare.Enabled {
		return nil
	}
	return m.Compare
}

// SameComparison reports whether the answers of two mirrors are compared alike, with those of the same upstream.
func (m *Mirror) SameComparison(o *Mirror) bool {
	return m.Upstream == o.Upstream && both(m.Comparing(), o.Comparing(), (*Compare).same)
}

// MirrorOf returns the mirror of a route, of the default route if that is nil; nil: there is none.
func (ln *Listener) MirrorOf(r *Route) *Mirror {
	if r != nil && r.Mirror != nil {
		return r.Mirror
	}
	return ln.Mirror
}

// Mirrors returns the upstreams to which some clients are mirrored.
func (ln *Listener) Mirrors() (upstreams []string) {
	add := func(m *Mirror) {
		if m != nil && m.Upstream != "" && !slices.Contains(upstreams, m.Upstream) {
			upstreams = append(upstreams, m.Upstream)
		}
	}
	add(ln.Mirror)
	for i := range ln.Routes {
		add(ln.Routes[i].Mirror)
	}
	return upstreams
}

// mirrors checks the mirrors of all listeners.
func (k *checker) mirrors(c *Config) {
	byName := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		byName[u.Name] = u
	}
	for _, ln := range c.Listeners {
		k.mirror(ln.Mirror, byName)
		k.mirroredTLS(ln)
		k.mirrorOf(ln, nil, []string{ln.Upstream}, byName)
		for i := range ln.Routes {
			r := &ln.Routes[i]
			k.mirror(r.Mirror, byName)
			to := []string{r.Upstream}
			for j := range r.Split {
				to = append(to, r.Split[j].Upstream)
			}
			k.mirrorOf(ln, r, to, byName)
		}
	}
}

// mirror checks one by itself.
func (k *checker) mirror(m *Mirror, byName map[string]*Upstream) {
	if m == nil || k.bad[m] {
		return
	}
	k.upstreams.use(&m.Upstream, m)
	k.comparison(m.Compare)
	if hundredths := math.Round(m.Percent * 100); !k.bad[&m.Percent] && math.Abs(hundredths-m.Percent*100) > 1e-6 {
		k.complainAt(k.at(&m.Percent, m), "write "+percent(int(hundredths)), "%v %% is finer than a hundredth", m.Percent)
	}
	if u := byName[m.Upstream]; u != nil && u.TLS != nil {
		k.complainAt(k.at(&m.Upstream, m), "write an upstream without tls", "the upstream %s has tls: a mirror sends bytes as they are", m.Upstream)
	}
}

// mirrorOf complains of clients that would be mirrored to the upstream that serves them, or to a fallback of it.
func (k *checker) mirrorOf(ln *Listener, r *Route, to []string, byName map[string]*Upstream) {
	m := ln.MirrorOf(r)
	if m == nil || m.Upstream == "" || m.Percent == 0 {
		return
	}
	if rw := ln.RewriteOf(r); m.Comparing() != nil && rw.Active() && rw.Direction == Down {
		k.complainAt(k.at(&m.Compare, m), "leave compare out, or the rewrite in line "+strconv.Itoa(rw.Pos.Line), "the answers to these clients are rewritten, those of the mirror are not: they would differ")
	}
	if r == nil || r.Mirror != nil || r.Rewrite != nil {
		k.comparedFraming(m, ln.RewriteOf(r))
	}
	for _, name := range to {
		for range len(byName) + 1 { // circles are reported by cycles
			if name == m.Upstream {
				fix := "write another upstream"
				if r != nil && r.Mirror == nil {
					fix += ", or a mirror with percent: 0 at the route in line " + strconv.Itoa(r.Pos.Line)
				}
				k.complainAt(k.at(&m.Upstream, m), fix, "the upstream %s serves these clients itself: it would get their bytes twice", m.Upstream)
				return
			}
			u := byName[name]
			if u == nil || u.Fallback == nil {
				break
			}
			name = u.Fallback.Upstream
		}
	}
}

// comparedFraming complains of masks in bytes whose framing they would break.
func (k *checker) comparedFraming(m *Mirror, rw *Rewrite) {
	c := m.Comparing()
	if c == nil || !rw.Active() || k.bad[c] || k.bad[rw] || k.bad[&c.Framing] || c.Framing == compare.Bytes || c.Framing == compare.Lines {
		return
	}
	k.complainAt(k.at(&rw.Framing, rw), "leave rewrite out", "the mirror in line %d compares answers by framing: %s, which masks cannot keep valid", m.Pos.Line, c.Framing)
}

// mirroredTLS warns of a mirror of TLS that is passed through.
func (k *checker) mirroredTLS(ln *Listener) {
	if ln.TLS != nil {
		return
	}
	for i := range ln.Routes {
		r := &ln.Routes[i]
		if m := ln.MirrorOf(r); m != nil && m.Percent > 0 && (ln.RequireTLS || len(r.Match.SNI)+len(r.Match.ALPN) > 0) {
			k.warnAt(k.at(&m.Upstream, m), "write tls at the listener, so that decrypted bytes are mirrored", "TLS is passed through: the mirror %s cannot decrypt more than the first bytes of a client", m.Upstream)
			return
		}
	}
}
