// Package compare holds the answers of a mirror's shadow against those of the primary: as a stream of bytes, or by the
// frames of a protocol. It has no sockets and no goroutines: bytes come by calls, in pieces of any size, and what it
// finds goes to a [Report].
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
	GRPC           = "grpc"
)

// Framings are the names of all framings.
var Framings = []string{Bytes, Lines, LengthPrefixed, GRPC}

// A Config says how answers are compared.
type Config struct {
	Framing string // one of Framings
	Length  Length // of length_prefixed

	Mask     []Mask
	Examples int  // most examples of differences, by name
	Redact   bool // whether examples hide letters and digits
}

// A Mask is bytes that may differ. Either Pattern or Field is set.
type Mask struct {
	Pattern string // a regular expression (RE2); the bytes that it matches in a frame are not compared
	Field   string // a field of the framing, such as grpc.x-request-id
	Name    string // the name of the answers that it is for; empty is all
}

// A Plan is a Config that was checked. It is immutable, and safe for concurrent use.
type Plan struct {
	Config
	masks masks
	worst int64           // longest time of a byte, in nanoseconds
	names map[string]bool // that masks have
}

// NewPlan checks a configuration but for the numbers in it. Its errors say what to write.
func NewPlan(c Config) (*Plan, error) {
	if framings[c.Framing] == nil {
		return nil, fmt.Errorf("framing %q: write one of %s", c.Framing, strings.Join(Framings, ", "))
	}
	p := &Plan{Config: c, names: make(map[string]bool)}
	p.masks = masks{framing: c.Framing, fields: map[Mask]bool{{Field: GRPC + ".date"}: true}}
	for i, m := range c.Mask {
		p.names[m.Name] = true
		if err := p.masks.add(m); err != nil {
			return nil, fmt.Errorf("mask[%d]: %w", i, err)
		}
	}
	instructions, err := p.masks.compile()
	p.worst = worstByte + int64(instructions)*instructionCost
	return p, err
}

// framings make the parsers of a session.
var framings = map[string]func(s *Session){
	Bytes: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &stream{sink{s: s, f: &s.main, side: i}, s.report.name("stream")}
		}
	},
	Lines: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lines{stream{sink{s: s, f: &s.main, side: i}, s.report.name("line")}}
		}
	},
	LengthPrefixed: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lengths{Length: s.plan.Length, out: sink{s: s, f: &s.main, side: i}, name: s.report.name("frame")}
		}
	},
	GRPC: newCalls,
}
