package config

import "strings"

// The YAML parser keeps all tokens within brackets until the end if these may be a key. These
// are the outermost brackets, except for the value of a key, and those in a list. Each token
// takes 600 bytes, and all are copied when the buffer grows.

// maxKept is the limit of tokens kept by the parser: 10,000 endpoints of four keys.
const maxKept = 240_000

// A bracketScanner counts the tokens that the parser keeps at a place. It knows only as much
// of YAML as necessary. Where it is wrong, it counts too many.
type bracketScanner struct {
	depth   int    // of brackets
	keeps   int    // depth from which tokens are kept, at least 1
	half    int    // twice the number of kept tokens
	quote   byte   // quote character of the text being read; 0: none
	line    string // the rest of the line
	last    byte   // the character before in the line; 0: there is none
	solid   byte   // the last one that is no space
	between bool   // the line has an anchor or a tag, which may stand before brackets
}

// keptFrom returns the line, counted from 1, in which the parser would keep too many tokens.
// It is 0 if there is none.
func (s *source) keptFrom() (number int) {
	c := &bracketScanner{keeps: 1}
	for line := range strings.Lines(s.data) {
		number++
		c.line, c.last, c.solid, c.between = line, 0, 0, strings.ContainsAny(line, "&!")
		for c.line != "" {
			if c.next(); c.half > 2*maxKept {
				return number
			}
		}
	}
	return 0
}

// next reads one character.
func (c *bracketScanner) next() {
	at := c.line[0]
	c.line = c.line[1:]
	if c.depth >= c.keeps {
		c.half += c.weight(at)
	}
	switch {
	case c.quote != 0:
		if at == '\\' && c.quote == '"' && c.line != "" {
			c.line = c.line[1:]
		} else if at == c.quote {
			c.quote = 0
		}
	case at == '#' && (c.last == 0 || strings.IndexByte(" \t,:?[]{}\"'", c.last) >= 0):
		c.line = ""
	case c.depth > 0 && (at == '"' || at == '\''):
		c.quote = at
	case at == '[' || at == '{':
		c.open()
	case c.depth > 0 && (at == ']' || at == '}'):
		c.depth--
	}
	if c.depth < c.keeps {
		c.half = 0
	}
	if c.last = at; at != ' ' && at != '\t' {
		c.solid = at
	}
}

// open reads an opening bracket. Outside of other brackets it is one only where a value
// begins.
func (c *bracketScanner) open() {
	if c.depth == 0 {
		if c.solid != 0 && strings.IndexByte("-:?", c.solid) < 0 && !c.between {
			return
		}
		if c.keeps = 1; c.solid == ':' {
			c.keeps = 2
		}
	}
	c.depth++
}

// weight returns twice the number of tokens that a character stands for, given the text after
// it.
func (c *bracketScanner) weight(at byte) int {
	ends := wordEnds(c.line)
	switch at {
	case ',', '[', '{': // includes the closing bracket
		return 4
	case ':':
		if ends || c.last == '"' || c.last == '\'' {
			return 6
		}
	case '-', '?':
		if ends {
			return 2
		}
	case '&', '*', '!':
		return 2
	case '"', '\'':
		return 1
	}
	return 0
}
