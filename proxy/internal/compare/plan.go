// Package compare holds the answers of a mirror's shadow against those of the primary: as a
// stream of bytes, or by the frames of a protocol. It has no sockets and no goroutines: bytes
// come by calls, in pieces of any size, and what it finds goes to a [Report].
package compare

import (
	"fmt"
	"strings"
)

// The framings.
const (
	Bytes          = "bytes"
	Lines          = "lines"
	LengthPrefixed = "length_prefixed"
	Resp           = "resp"
	Postgres       = "postgres"
	HTTP1          = "http1"
	HTTP2          = "http2"
	GRPC           = "grpc"
)

// Framings are the names of all framings.
var Framings = []string{Bytes, Lines, LengthPrefixed, Resp, Postgres, HTTP1, HTTP2, GRPC}

// ExamplesByName is the usual number of examples for each name.
const ExamplesByName = 3

// maxExamples is the largest number of examples for each name.
const maxExamples = 100

// A Config says how answers are compared.
type Config struct {
	Framing string // one of Framings; empty is bytes

	// For length_prefixed: where the length is in a frame, how wide it is (1, 2, 4 or 8 bytes), its
	// order (big or little; empty is big), and whether it counts the bytes up to its own end too.
	Offset         int
	Width          int
	Endian         string
	IncludesHeader bool

	Mask     []Mask
	Examples int   // of differences, by name; 0 is ExamplesByName, and less than 0 is none
	Redact   *bool // whether examples hide letters and digits; nil is true
}

// A Mask is bytes that may differ. Either Pattern or Field is set.
type Mask struct {
	Pattern string // a regular expression (RE2); the bytes that it matches in a frame are not compared
	Field   string // a field of the framing, such as postgres.server_version; [Fields] has all
	Name    string // the command, statement kind or path that it is for; empty is all
}

// A Plan is a Config that was checked. It is immutable, and safe for concurrent use.
type Plan struct {
	framing  string
	length   prefix
	masks    masks
	examples int
	redact   bool
	byteCost int             // see byteCosts
	names    map[string]bool // that masks have
}

// NewPlan checks a configuration. Its errors name the field, and say what to write.
func NewPlan(c Config) (*Plan, error) {
	p := &Plan{framing: c.Framing, examples: c.Examples, redact: c.Redact == nil || *c.Redact}
	if p.framing == "" {
		p.framing = Bytes
	}
	if framings[p.framing] == nil {
		return nil, fmt.Errorf("framing %q: write one of %s", c.Framing, strings.Join(Framings, ", "))
	}
	p.byteCost = byteCosts[p.framing]
	switch {
	case c.Examples > maxExamples:
		return nil, fmt.Errorf("examples %d: write at most %d", c.Examples, maxExamples)
	case c.Examples == 0:
		p.examples = ExamplesByName
	}

	if err := p.prefix(c); err != nil {
		return nil, err
	}
	p.masks.framing = p.framing
	for _, field := range defaults[p.framing] {
		p.masks.setField(Mask{Field: p.framing + "." + field})
	}
	p.names = make(map[string]bool)
	for i, m := range c.Mask {
		p.names[m.Name] = true
		p.names[commandName(m.Name)] = true
		if err := p.masks.add(m); err != nil {
			return nil, fmt.Errorf("mask[%d]: %w", i, err)
		}
	}
	return p, p.masks.compile()
}

// prefix checks the keys of length_prefixed.
func (p *Plan) prefix(c Config) error {
	if p.framing != LengthPrefixed {
		if c.Offset != 0 || c.Width != 0 || c.Endian != "" || c.IncludesHeader {
			return fmt.Errorf("offset, width, endian and includes_header are for framing %s: leave them out with %s", LengthPrefixed, p.framing)
		}
		return nil
	}
	switch {
	case c.Width != 1 && c.Width != 2 && c.Width != 4 && c.Width != 8:
		return fmt.Errorf("width %d: write 1, 2, 4 or 8, the bytes of the length", c.Width)
	case c.Offset < 0 || c.Offset > maxOffset:
		return fmt.Errorf("offset %d: write 0 to %d, the bytes before the length", c.Offset, maxOffset)
	case c.Endian != "" && c.Endian != "big" && c.Endian != "little":
		return fmt.Errorf("endian %q: write big or little", c.Endian)
	}
	p.length = prefix{offset: c.Offset, width: c.Width, little: c.Endian == "little", whole: c.IncludesHeader}
	return nil
}

// A framing makes the parsers of a session.
type framing func(s *Session)

var framings = map[string]framing{
	Bytes: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &stream{out: newSink(s, &s.main, i)}
		}
	},
	Lines: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lines{out: newSink(s, &s.main, i)}
		}
	},
	LengthPrefixed: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lengths{prefix: s.plan.length, out: newSink(s, &s.main, i)}
		}
	},
	HTTP1: func(s *Session) {
		s.requests = newHTTP1Requests(s)
		for i := range s.answers {
			s.answers[i] = newHTTP1Answers(s, i)
		}
	},
	Postgres: func(s *Session) {
		s.requests = newPostgresRequests(s)
		for i := range s.answers {
			s.answers[i] = newPostgresAnswers(s, i)
		}
	},
	HTTP2: newHTTP2(false),
	GRPC:  newHTTP2(true),
	Resp: func(s *Session) {
		s.requests = &respRequests{s: s}
		for i := range s.answers {
			s.answers[i] = &respAnswers{s: s, side: i, sinks: [2]sink{newSink(s, &s.main, i), newSink(s, nil, i)}}
		}
	},
}

// masks are the masks of a plan: patterns by the name that they are for, with those for all
// names in each, and fields.
type masks struct {
	framing  string
	patterns []Mask
	all      *program // for names without one of their own; nil if there is none
	named    map[string]*program
	fields   map[Mask]bool
}
