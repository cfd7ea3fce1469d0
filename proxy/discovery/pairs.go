package discovery

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON escapes characters beyond U+FFFF in pairs (RFC 8259, 7), as many programs write them.
// YAML takes the characters themselves.

// A pair is the position of a character that was written as a pair of escapes. The line and
// column are those in the text that has the character, counted from 1.
type pair struct{ line, column int }

// pairLength is the number of characters of a pair.
const pairLength = len(`\ud83d\ude00`)

// escapes matches pairs, and also other escapes, so that no pair is found within one.
var escapes = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\.`)

// joinPairs replaces pairs by their characters, if the text of a piece is JSON.
func (at *piece) joinPairs() {
	if !bytes.Contains(at.text, []byte(`\u`)) || !json.Valid(bytes.TrimPrefix(at.text, []byte("--- "))) {
		return
	}
	c := &cursor{data: nil, line: 1}
	text := make([]byte, 0, len(at.text))
	rest := at.text
	for _, found := range escapes.FindAllIndex(at.text, -1) {
		if found[1]-found[0] != pairLength {
			continue
		}
		written := at.text[found[0]:found[1]]
		text = append(text, rest[:found[0]-(len(at.text)-len(rest))]...)
		rest = at.text[found[1]:]
		c.data = text
		c.to(len(text))
		at.pairs = append(at.pairs, pair{c.line, c.column()})
		text = utf8.AppendRune(text, utf16.DecodeRune(half(written[2:6]), half(written[8:])))
	}
	at.text = append(text, rest...)
}

func half(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits), 16, 16) // they are hexadecimal digits
	return rune(n)
}

// joined returns how many characters fewer a line has, before a column, than in the file.
func (at *piece) joined(line, column int) (fewer int) {
	for _, p := range at.pairs {
		if p.line == line && p.column < column {
			fewer += pairLength - 1
		}
	}
	return fewer
}
