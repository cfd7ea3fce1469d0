package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/compare"
)

// A Mirror sends a copy of the bytes of some clients to an upstream.
type Mirror struct {
	Pos      Pos
	Upstream string        `key:"upstream" type:"upstream" required:"yes" eg:"shadow" doc:"Upstream that gets a copy of what these clients send. Its answers reach no client."`
	Percent  float64       `key:"percent" default:"100" range:"0..100" unit:"%" eg:"5" doc:"Percentage of the sessions that are mirrored, with up to two decimals. 0: none."`
	Patience time.Duration `key:"patience" default:"1s" range:"1ms..1h" doc:"The mirror ends when bytes have waited this long for its endpoint, or this long after its session has ended."`
	Compare  *Compare      `key:"compare" doc:"Compares the endpoints' answers and reports differences (penstock mirror). Answers are then copied, not spliced. Absent: the mirror's answers are discarded."`
}

// Comparing returns how answers are compared, or nil if they are not.
func (m *Mirror) Comparing() *Compare {
	if m.Compare == nil || !m.Compare.Enabled {
		return nil
	}
	return m.Compare
}

// SameComparison reports whether two mirrors compare answers in the same way, and with the same upstream.
func (m *Mirror) SameComparison(o *Mirror) bool {
	return m.Upstream == o.Upstream && alike(m.Comparing(), o.Comparing())
}

// MirrorOf returns the mirror of a route, or of the default route if r is nil. It returns nil without a mirror.
func (ln *Listener) MirrorOf(r *Route) *Mirror {
	if r != nil && r.Mirror != nil {
		return r.Mirror
	}
	return ln.Mirror
}

// Mirrors returns the upstreams to which some clients are mirrored.
func (ln *Listener) Mirrors() (upstreams []string) {
	for _, m := range own(ln, ln.Mirror, func(r *Route) *Mirror { return r.Mirror }) {
		if m.Upstream != "" && !slices.Contains(upstreams, m.Upstream) {
			upstreams = append(upstreams, m.Upstream)
		}
	}
	return upstreams
}

func (k *checker) mirrors(c *Config) {
	for _, ln := range c.Listeners {
		k.mirror(ln.Mirror)
		k.mirroredTLS(ln)
		k.mirrorOf(ln, nil, []string{ln.Upstream})
		for i := range ln.Routes {
			r := &ln.Routes[i]
			k.mirror(r.Mirror)
			k.mirrorOf(ln, r, r.leadsTo())
		}
	}
}

func (k *checker) mirror(m *Mirror) {
	if m == nil || k.bad[m] {
		return
	}
	k.upstreams.use(&m.Upstream, m)
	k.comparison(m.Compare)
	if hundredths := math.Round(m.Percent * 100); !k.bad[&m.Percent] && math.Abs(hundredths-m.Percent*100) > 1e-6 {
		k.complainAt(k.at(&m.Percent, m), "write "+percent(int(hundredths)), "%v %% has more than two decimals", m.Percent)
	}
	if u := k.find(m.Upstream); u != nil && u.TLS != nil {
		k.complainAt(k.at(&m.Upstream, m), "write an upstream without tls", "the upstream %s has tls, but a mirror sends bytes unchanged", m.Upstream)
	}
}

// mirrorOf complains if clients would be mirrored to the upstream that serves them, or to its fallback.
func (k *checker) mirrorOf(ln *Listener, r *Route, to []string) {
	m := ln.MirrorOf(r)
	if m == nil || m.Upstream == "" || m.Percent == 0 {
		return
	}
	if rw := ln.RewriteOf(r); m.Comparing() != nil && rw.Active() && rw.Direction == Down {
		k.complainAt(k.at(&m.Compare, m), "leave compare out, or the rewrite in line "+strconv.Itoa(rw.Pos.Line), "the answers to these clients are rewritten, and the mirror's answers are not, so they would differ")
	}
	if u := k.find(m.Upstream); withFallbacks(k.find, to...)[u] {
		fix := "write another upstream"
		if r != nil && r.Mirror == nil {
			fix += ", or a mirror with percent: 0 at the route in line " + strconv.Itoa(r.Pos.Line)
		}
		k.complainAt(k.at(&m.Upstream, m), fix, "the upstream %s already serves these clients: it would get their bytes twice", m.Upstream)
	}
}

// mirroredTLS warns of a mirror for TLS that is passed through.
func (k *checker) mirroredTLS(ln *Listener) {
	if ln.TLS != nil {
		return
	}
	for i := range ln.Routes {
		r := &ln.Routes[i]
		if m := ln.MirrorOf(r); m != nil && m.Percent > 0 && (ln.RequireTLS || len(r.Match.SNI)+len(r.Match.ALPN) > 0) {
			k.warnAt(k.at(&m.Upstream, m), "write tls at the listener, so that decrypted bytes are mirrored", "TLS is passed through: the mirror %s cannot decrypt the bytes of a client", m.Upstream)
			return
		}
	}
}

// A Compare compares the answers of a mirror's endpoint with the answers that the clients get.
type Compare struct {
	Pos            Pos
	Enabled        bool   `key:"enabled" default:"true" doc:"false: this section has no effect."`
	Framing        string `key:"framing" default:"bytes" enum:"bytes lines length_prefixed grpc" doc:"Protocol that says where an answer ends and, with grpc, its method. bytes: no protocol, a connection is one answer."`
	Offset         int    `key:"offset" default:"0" range:"0..64" unit:"B" doc:"With length_prefixed: offset of the length in a message."`
	Width          int    `key:"width" default:"0" range:"0..8" unit:"B" eg:"4" doc:"Required with length_prefixed: size of the length, 1, 2, 4 or 8."`
	Endian         string `key:"endian" default:"big" enum:"big little" doc:"With length_prefixed: order of the length's bytes."`
	IncludesHeader bool   `key:"includes_header" default:"false" doc:"With length_prefixed: the length counts from the start of the message, not from its own end."`
	Mask           []Mask `key:"mask" doc:"Parts of answers that may differ, such as times. A plain text in the list is a pattern."`
	Examples       int    `key:"examples" default:"3" range:"0..100" doc:"Number of differences that are kept as examples, for each method. 0: none."`
	Redact         bool   `key:"redact" default:"true" doc:"Hides letters and digits in examples, and names that clients invented. false: everyone who may read the admin API sees the answers to clients."`
}

// A Mask is a part of answers that may differ.
type Mask struct {
	Pos     Pos
	Pattern string `key:"pattern" default:"" eg:"[0-9]{4}-[0-9]{2}-[0-9]{2}" doc:"Regular expression (RE2) of bytes that are not compared. Either this or field."`
	Field   string `key:"field" default:"" eg:"grpc.x-request-id" doc:"gRPC header or trailer field that is not compared, such as grpc.NAME. FRAMING.answer, such as grpc.answer, is the whole answer."`
	Name    string `key:"name" default:"" eg:"/shop.Cart/List" doc:"Method to which the mask applies. Empty: all."`
}

// Plan returns the plan of a section that was checked before.
func (c *Compare) Plan() (*compare.Plan, error) {
	plan := compare.Config{
		Framing: c.Framing, Length: compare.Length{Offset: c.Offset, Width: c.Width, Little: c.Endian == "little", Whole: c.IncludesHeader},
		Examples: c.Examples, Redact: c.Redact,
	}
	for _, m := range c.Mask {
		plan.Mask = append(plan.Mask, compare.Mask{Pattern: m.Pattern, Field: m.Field, Name: m.Name})
	}
	return compare.NewPlan(plan)
}

// formerFramings are removed framings, each with what to write instead.
var formerFramings = map[string]string{
	"resp":     "write lines, which compares the lines of Redis' replies",
	"postgres": "leave compare out: answers of PostgreSQL are no longer compared",
	"http1":    "write bytes, with a mask for what differs, such as 'Date: [^\\r]+'",
	"http2":    "write grpc, or leave compare out: other answers of HTTP/2 are no longer compared",
}

func (k *checker) comparison(c *Compare) {
	if c == nil || k.bad[c] || k.bad[&c.Framing] {
		return
	}
	prefixed := c.Framing == compare.LengthPrefixed
	if w := c.Width; prefixed && !k.bad[&c.Width] && w != 1 && w != 2 && w != 4 && w != 8 {
		k.complainAt(k.at(&c.Width, c), "write width: 1, 2, 4 or 8", "the length of a message has %d bytes", w)
		return
	}
	for _, key := range []struct {
		name  string
		field any
		set   bool
	}{{"offset", &c.Offset, c.Offset != 0}, {"width", &c.Width, c.Width != 0}, {"endian", &c.Endian, c.Endian != "big"}, {"includes_header", &c.IncludesHeader, c.IncludesHeader}} {
		if !prefixed && key.set && !k.bad[key.field] {
			k.complainAt(k.at(key.field, c), "leave it out, or write framing: "+compare.LengthPrefixed, "%s has no effect with framing: %s", key.name, c.Framing)
		}
	}
	for i := range c.Mask {
		k.mask(c, &c.Mask[i])
	}
}

func (k *checker) mask(c *Compare, m *Mask) {
	if k.bad[m] || k.bad[&m.Pattern] || k.bad[&m.Field] || k.bad[&m.Name] || k.full() {
		return
	}
	_, err := compare.NewPlan(compare.Config{Framing: c.Framing, Mask: []compare.Mask{{Pattern: m.Pattern, Field: m.Field, Name: m.Name}}})
	if err == nil {
		return
	}
	at := k.at(&m.Pattern, m)
	if m.Field != "" {
		at = k.at(&m.Field, m)
	}
	message, fix := strings.TrimPrefix(err.Error(), "mask[0]: "), ""
	if i := strings.LastIndex(message, "write "); i >= 0 { // the package's errors end with a suggestion
		message, fix = strings.TrimRight(message[:i], ": "), message[i:]
	}
	if message == "" {
		message = "a mask has either a pattern or a field"
	}
	k.complainAt(at, fix, "%s", message)
}
