// Package text puts texts in place of others in a stream: the part of the example that does not need a proxy, and is tested without.
package text

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Pairs are texts and their replacements. They are looked for in the order in which they were written: where two begin at the
// same byte, the first one counts.
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

// Replace appends b to out, with the texts replaced. The last held bytes of out may be the beginning of a text, and
// have to come first in the next b. With last, no more bytes come and none are held.
func (p *Pairs) Replace(out, b []byte, last bool) (_ []byte, held int) {
	plain := 0 // b[plain:i] has no text
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

// at returns the length of the text that b begins with, and its replacement. It is undecided if b is too short.
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
