package config

import "strings"

// The YAML parser keeps all tokens of what is in brackets before it goes on, if these may be a
// key: the outermost ones, but for the value of a key, and those in a list. It takes 600 bytes
// for each, and copies them all where they become more.

// maxKept is how many tokens it may keep: 10,000 endpoints of four keys.
const maxKept = 240_000

// A bracketScanner counts the tokens that the parser keeps at a place. It knows only as much
// of YAML as it must: where it is wrong it counts too many.
type bracketScanner struct {
	depth   int    // of brackets
	keeps   int    // from which depth on tokens are kept
	half    int    // twice how many there are
	quote   byte   // which the text is in that is being read; 0: none
	line    string // the rest of it
	last    byte   // the character before in the line, 0: there is none
	solid   byte   // the last one that is no space
	between bool   // an anchor or a tag is in the line, which may stand before brackets
}

// keptFrom returns the line, counted from 1, in which there is too much for the parser to
// keep, 0 if there is none.
func (s *source) keptFrom() (number int) {
	c := new(bracketScanner)
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

// next takes a character.
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

// open is a bracket. Outside of others it is one only where a value begins.
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

// weight is twice how many tokens a character stands for, with the text after it.
func (c *bracketScanner) weight(at byte) int {
	ends := c.line == "" || strings.IndexByte(" \t\r\n,[]{}\"'", c.line[0]) >= 0
	switch at {
	case ',', '[', '{': // also the bracket that it ends with
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
