package config

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/compare"
)

// A Compare has the answers of a mirror's endpoint compared with those that the clients get.
type Compare struct {
	Pos            Pos
	Enabled        bool   `key:"enabled" default:"true" doc:"false: the answers are not compared, and this section has no effect."`
	Framing        string `key:"framing" default:"bytes" enum:"bytes lines length_prefixed grpc" doc:"Protocol of the answers, which says where each of them ends and, with grpc, which method it is for. bytes: none; all answers of a connection are one."`
	Offset         int    `key:"offset" default:"0" range:"0..64" unit:"B" doc:"Only with length_prefixed: where the length is in a message."`
	Width          int    `key:"width" default:"0" range:"0..8" unit:"B" eg:"4" doc:"Only with length_prefixed, where it is required: size of the length: 1, 2, 4 or 8."`
	Endian         string `key:"endian" default:"big" enum:"big little" doc:"Only with length_prefixed: order of the bytes of the length."`
	IncludesHeader bool   `key:"includes_header" default:"false" doc:"Only with length_prefixed: the length counts the bytes from the begin of the message, and not from the end of the length."`
	Mask           []Mask `key:"mask" doc:"Parts of answers that may differ, such as times and identifiers. A mask that is one text is a pattern."`
	Examples       int    `key:"examples" default:"3" range:"0..100" doc:"Number of differences that are kept as examples, for each name of a method. 0: none."`
	Redact         bool   `key:"redact" default:"true" doc:"Letters and digits of examples are hidden, and names that clients have made up, paths included. false: examples and names show what clients get to everyone who may read the admin API."`
}

// A Mask is a part of answers that may differ.
type Mask struct {
	Pos     Pos
	Pattern string `key:"pattern" default:"" eg:"[0-9]{4}-[0-9]{2}-[0-9]{2}" doc:"Regular expression (RE2). The bytes that it matches are not compared. Either this or field is required."`
	Field   string `key:"field" default:"" eg:"grpc.x-request-id" doc:"Field of a head or of trailers of gRPC that is not compared, after grpc. A framing's name with .answer is the whole answer."`
	Name    string `key:"name" default:"" eg:"/shop.Cart/List" doc:"Name of the method whose answers are meant. Empty: all."`
}

func (m Mask) same(o Mask) bool { m.Pos = o.Pos; return m == o }

func (c *Compare) same(o *Compare) bool {
	return c.Enabled == o.Enabled && c.Framing == o.Framing && c.Offset == o.Offset && c.Width == o.Width && c.Endian == o.Endian &&
		c.IncludesHeader == o.IncludesHeader && slices.EqualFunc(c.Mask, o.Mask, Mask.same) && c.Examples == o.Examples && c.Redact == o.Redact
}

// Plan returns the plan of a section that was checked.
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

// formerFramings are the framings that are gone, with what to write in their place.
var formerFramings = map[string]string{
	"resp":     "write lines, which compares the lines of Redis' replies",
	"postgres": "leave compare out: answers of PostgreSQL are not compared any more",
	"http1":    "write bytes, with a mask for what differs, such as 'Date: [^\\r]+'",
	"http2":    "write grpc, or leave compare out: other answers of HTTP/2 are not compared any more",
}

// comparison checks how a mirror's answers are compared.
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
			k.complainAt(k.at(key.field, c), "leave it out, or write framing: "+compare.LengthPrefixed, "%s is not for framing %s", key.name, c.Framing)
		}
	}
	for i := range c.Mask {
		k.mask(c, &c.Mask[i])
	}
}

// mask checks one mask of a comparison.
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
	if i := strings.LastIndex(message, "write "); i >= 0 { // how the package's errors end
		message, fix = strings.TrimRight(message[:i], ": "), message[i:]
	}
	if message == "" {
		message = "a mask has a pattern or a field, and not both"
	}
	k.complainAt(at, fix, "%s", message)
}
