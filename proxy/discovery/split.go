package discovery

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// A file is read in pieces of a few endpoints each. The YAML parser takes up to 800 times the
// memory of the text that it reads, and reads brackets on one line all at once. So the memory
// for a whole file is bounded by that for a piece and that for the endpoints.

// maxPiece is the number of bytes of a file that are read at once, and so the largest size of
// an endpoint.
const maxPiece = 4 << 10

// beforeList begins a piece in brackets. After the dashes the parser knows that the brackets
// are no key, and does not look for their end first.
const beforeList = "--- ["

// A piece is a part of a file that is a list of its own.
type piece struct {
	text []byte
	line int // line of the file, counted from 1, at which the text begins
	col  int // columns that the first line of the text has less than the line of the file
	// brackets is the nesting of the endpoints in brackets: those of the list, and of one
	// endpoint.
	brackets int
	pairs    []pair
}

// A part is the position of an endpoint's text in the file.
type part struct{ from, to int }

// split calls f with the pieces of a file. If it finds an error, that is a problem of p, and
// split ends.
func (p *parser) split(data []byte, f func(piece)) {
	c := &cursor{data: data, line: 1}
	c.to(begins(data, 0))
	var parts []part
	brackets := false
	switch {
	case p.noText(data):
		return
	case len(data) <= p.most:
		f(piece{text: data, line: 1, brackets: 2})
		return
	case c.at == len(data):
		p.problem(1, 1, "%s", saysNothing)
		return
	case entry(data[c.at:]):
		parts = p.lines(c)
	case data[c.at] == '[':
		parts, brackets = p.inBrackets(c), true
	default:
		p.problem(c.line, c.column(), "%s", wantsList)
		return
	}
	c = &cursor{data: data, line: 1}
	for len(parts) > 0 && len(p.problems) <= maxProblems {
		n := 1
		for n < len(parts) && parts[n].to-parts[0].from <= p.most {
			n++
		}
		c.to(parts[0].from)
		text := data[parts[0].from:parts[n-1].to]
		if brackets {
			f(piece{text: slices.Concat([]byte(beforeList), text, []byte("]")), line: c.line, col: c.column() - len(beforeList) - 1, brackets: 2})
		} else {
			f(piece{text: text, line: c.line, brackets: 1})
		}
		parts = parts[n:]
	}
}

// noText complains of a character that is not text, or that ends a line for YAML alone. It
// reports whether there is one.
func (p *parser) noText(data []byte) bool {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		text := r >= ' ' && r < 0x7f || r >= 0xa0 && r != '\u2028' && r != '\u2029' && r != '\ufeff' && r < 0xfff0 || r > 0xffff
		switch {
		case r == utf8.RuneError && size == 1:
			p.noTextAt(data, at, "the byte %#x is no UTF-8: write the file in UTF-8", data[at])
			return true
		case text, r == '\n', r == '\t', at == 0 && r == '\ufeff', r == '\r' && bytes.HasPrefix(data[at:], []byte("\r\n")):
		default:
			p.noTextAt(data, at, "the character %U is no text: leave it out", r)
			return true
		}
		at += size
	}
	return false
}

func (p *parser) noTextAt(data []byte, at int, format string, args ...any) {
	c := &cursor{data: data, line: 1}
	c.to(at)
	p.problem(c.line, c.column(), format, args...)
}

// fits reports whether another part may follow. If not, it adds a problem.
func (p *parser) fits(parts []part, c *cursor) bool {
	switch n := len(parts); {
	case n > 0 && parts[n-1].to-parts[n-1].from > p.most:
		c.to(parts[n-1].from)
		p.problem(c.line, c.column(), "an endpoint of more than %d bytes: write less", p.most)
	case n > MaxEndpoints:
		p.tooMany(c.line)
	default:
		return true
	}
	return false
}

// lines returns the parts of a list in which each entry begins a line, with a dash in the same
// column. The further lines of an entry are further to the right.
func (p *parser) lines(c *cursor) (parts []part) {
	data, indent := c.data, c.column()-1
	at := &cursor{data: data, line: 1} // for problems
	for next := c.start; next < len(data); {
		length := lineLength(data[next:])
		text := data[next : next+length]
		if next == c.start {
			text = text[c.at-c.start-indent:] // without a byte order mark
		}
		if length > indent && len(bytes.TrimLeft(text[:indent], " ")) == 0 && entry(text[indent:]) {
			if !p.fits(parts, at) {
				return nil
			}
			at.to(next)
			parts = append(parts, part{from: next})
		}
		if len(parts) == 0 {
			p.problem(c.line, 1, "indent with spaces")
			return nil
		}
		if ends(text) { // of the document, and so of the list
			if rest := begins(data, next+length); text[0] == '-' || rest < len(data) {
				at.to(next)
				p.problem(at.line, 1, "%s", wantsOne)
				return nil
			}
			break
		}
		next += length
		if says := bytes.TrimLeft(text, " \t\r\n"); len(says) > 0 && says[0] != '#' { // comments after it belong to no entry
			parts[len(parts)-1].to = next
		}
	}
	if !p.fits(parts, at) {
		return nil
	}
	return parts
}

// inBrackets returns the parts of a list in brackets, which is JSON.
func (p *parser) inBrackets(c *cursor) (parts []part) {
	data := c.data
	const space = " \t\r\n"
	skip := func(at int) int { return len(data) - len(bytes.TrimLeft(data[at:], space)) }
	at := skip(c.at + 1)
	for at < len(data) && data[at] != ']' {
		text := bytes.TrimRight(data[at:at+jsonLength(data[at:], p.most)], space)
		parts = append(parts, part{at, at + len(text)})
		if !p.fits(parts, c) {
			return nil
		}
		if !json.Valid(text) {
			return p.noJSON(c, at)
		}
		at = skip(at + len(text))
		if at < len(data) && data[at] == ',' {
			if at = skip(at + 1); at < len(data) && data[at] == ']' {
				return p.noJSON(c, at)
			}
		}
	}
	if at == len(data) {
		return p.noJSON(c, at)
	}
	if rest := begins(data, at+1); rest < len(data) {
		c.to(rest)
		p.problem(c.line, c.column(), "%s", wantsOne)
		return nil
	}
	return parts
}

// jsonLength returns the length of a value in a list, with the space after it. If it is longer
// than most, it returns a little more than most.
func jsonLength(data []byte, limit int) int {
	depth, text, escaped := 0, false, false
	for i, b := range data[:min(len(data), limit+1)] {
		switch {
		case escaped:
			escaped = false
		case text:
			escaped, text = b == '\\', b != '"'
		case b == '"':
			text = true
		case b == '[' || b == '{':
			depth++
		case depth == 0 && (b == ',' || b == ']'):
			return i
		case b == ']' || b == '}':
			depth--
		}
	}
	return min(len(data), limit+1)
}

// noJSON complains of a list in brackets that is no JSON.
func (p *parser) noJSON(c *cursor, at int) []part {
	c.to(at)
	p.problem(c.line, c.column(), "a list in brackets of more than %d bytes is read as JSON, and here it is none: write JSON, or begin a line with - for each endpoint", p.most)
	return nil
}

// begins returns the offset of the content of a file, from at on, after comments and lines of
// dashes.
func begins(data []byte, at int) int {
	if at == 0 && bytes.HasPrefix(data, []byte("\ufeff")) {
		at = len("\ufeff")
	}
	for at < len(data) {
		end := at + lineLength(data[at:])
		text := bytes.TrimLeft(data[at:end], " \t\r\n")
		if len(text) > 0 && text[0] != '#' && !bytes.Equal(bytes.TrimRight(data[at:end], " \r\n"), []byte("---")) {
			return end - len(text)
		}
		at = end
	}
	return at
}

// ends reports whether a line ends a document: three dots, or the dashes of the next one.
func ends(text []byte) bool {
	return (bytes.HasPrefix(text, []byte("---")) || bytes.HasPrefix(text, []byte("..."))) &&
		(len(text) == 3 || bytes.IndexByte([]byte(" \t\r\n"), text[3]) >= 0)
}

// lineLength returns the length of the first line of a text, with its end.
func lineLength(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1
	}
	return len(data)
}

// entry reports whether an entry of a list in lines begins here.
func entry(data []byte) bool {
	return len(data) > 0 && data[0] == '-' && (len(data) == 1 || bytes.IndexByte([]byte(" \t\r\n"), data[1]) >= 0)
}

// A cursor is a position in a file that moves forward.
type cursor struct {
	data        []byte
	at          int
	line, start int // number of the line, counted from 1, and its offset
}

func (c *cursor) to(at int) {
	for at > c.at {
		length := lineLength(c.data[c.at:])
		if c.at+length > at || c.data[c.at+length-1] != '\n' {
			break
		}
		c.at += length
		c.line, c.start = c.line+1, c.at
	}
	c.at = at
}

// column returns the column, counted from 1 in characters.
func (c *cursor) column() int {
	return 1 + utf8.RuneCount(bytes.TrimPrefix(c.data[c.start:c.at], []byte("\ufeff")))
}
