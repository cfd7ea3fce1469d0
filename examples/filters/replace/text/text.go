// Package text replaces texts by others in a stream: the part of the example that needs no proxy, and is tested
// without one.
package text

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Pairs are texts and their replacements, in the order of the configuration: if two texts begin at the same
// byte, the first pair counts.
type Pairs struct {
	pairs [][2][]byte
	first [256]bool // bytes that a text begins with
}

// ErrNone is the error of a configuration without a pair.
var ErrNone = errors.New("write a line old=new")

// Parse reads lines old=new.
func Parse(config string) (*Pairs, error) {
	p := new(Pairs)
	for line := range strings.Lines(config) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		from, to, ok := strings.Cut(line, "=")
		if !ok || from == "" {
			return nil, fmt.Errorf("%q: %w", line, ErrNone)
		}
		p.pairs = append(p.pairs, [2][]byte{[]byte(from), []byte(to)})
		p.first[from[0]] = true
	}
	if len(p.pairs) == 0 {
		return nil, ErrNone
	}
	return p, nil
}

// Replace appends b to out, with the texts replaced. The held bytes at the end of out may begin a text: they
// must come first in the next b. If last is set, no more bytes come and none are held.
func (p *Pairs) Replace(out, b []byte, last bool) (_ []byte, held int) {
	plain := 0 // b[plain:i] contains no text
	for i := 0; i < len(b); {
		if !p.first[b[i]] {
			i++
			continue
		}
		from, to, undecided := p.at(b[i:], last)
		switch {
		case undecided:
			return append(out, b[plain:]...), len(b) - i
		case from == 0:
			i++
			continue
		}
		out = append(append(out, b[plain:i]...), to...)
		i += from
		plain = i
	}
	return append(out, b[plain:]...), 0
}

// at returns the length of the text that b begins with, and its replacement. undecided says that b is too short
// to know.
func (p *Pairs) at(b []byte, last bool) (from int, to []byte, undecided bool) {
	for _, pair := range p.pairs {
		switch {
		case bytes.HasPrefix(b, pair[0]):
			return len(pair[0]), pair[1], false
		case !last && len(b) < len(pair[0]) && bytes.HasPrefix(pair[0], b):
			return 0, nil, true
		}
	}
	return 0, nil, false
}
