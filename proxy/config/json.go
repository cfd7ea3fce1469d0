package config

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// JSON is also YAML, except for characters beyond U+FFFF, which JSON escapes in pairs. JSON
// files do not go through the YAML parser, which reads everything within brackets first and
// takes ten times as much memory.

// A jsonReader makes nodes of JSON text, with the same positions as the YAML parser.
type jsonReader struct {
	text      string
	at        int
	line, col int // the place of at; both count from 1, the column in characters
	bad       bool
}

// json parses a JSON file. It returns nil if the file is not JSON, or if YAML would read it
// differently.
func (s *source) json() *yaml.Node {
	begins := strings.TrimLeft(s.data, " \t\r\n")
	if begins == "" || begins[0] != '{' && begins[0] != '[' || !json.Valid([]byte(s.data)) {
		return nil
	}
	r := &jsonReader{text: s.data, line: 1, col: 1}
	if n := r.value(0); !r.bad {
		return n
	}
	return nil
}

func (r *jsonReader) skip(bytes int) {
	passed := r.text[r.at : r.at+bytes]
	r.at += bytes
	if i := strings.LastIndexByte(passed, '\n'); i >= 0 {
		r.line += strings.Count(passed, "\n")
		r.col, passed = 1, passed[i+1:]
	}
	r.col += utf8.RuneCountInString(passed)
}

// next skips spaces and the characters in but, and returns the byte after them.
func (r *jsonReader) next(but string) byte {
	rest := r.text[r.at:]
	r.skip(len(rest) - len(strings.TrimLeft(rest, " \t\r\n"+but)))
	return r.text[r.at]
}

func (r *jsonReader) value(depth int) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode}
	begins := r.next("")
	n.Line, n.Column = r.line, r.col
	if depth > maxDepth {
		r.bad = true
	}
	switch {
	case r.bad:
	case begins == '{' || begins == '[':
		r.collection(n, begins, depth)
	case begins == '"':
		r.quoted(n)
	default:
		rest := r.text[r.at:]
		n.Value = rest[:strings.IndexAny(rest, ",]} \t\r\n")] // there is always one, because the first value is a { or a [
		n.Tag = literalTag(n.Value)
		r.skip(len(n.Value))
	}
	return n
}

// literalTag returns the YAML tag of a JSON literal without quotes.
func literalTag(text string) string {
	_, whole := strconv.ParseInt(text, 10, 64)
	_, large := strconv.ParseUint(text, 10, 64)
	_, number := strconv.ParseFloat(text, 64)
	switch {
	case text == "null":
		return "!!null"
	case text == "true", text == "false":
		return "!!bool"
	case text != "-0" && (whole == nil || large == nil):
		return "!!int"
	case number == nil:
		return "!!float"
	}
	return "!!str"
}

func (r *jsonReader) collection(n *yaml.Node, begins byte, depth int) {
	n.Kind, n.Tag, n.Style = yaml.MappingNode, "!!map", yaml.FlowStyle
	ends := byte('}')
	if begins == '[' {
		n.Kind, n.Tag, ends = yaml.SequenceNode, "!!seq", ']'
	}
	r.skip(1)
	for r.next(",:") != ends && !r.bad {
		n.Content = append(n.Content, r.value(depth+1))
	}
	n.Content = slices.Clip(n.Content)
	r.skip(1)
}

// quoted reads a string. Half of a surrogate pair is no character.
func (r *jsonReader) quoted(n *yaml.Node) {
	n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	rest, length := r.text[r.at:], 1
	for rest[length] != '"' {
		if rest[length] == '\\' {
			length++
		}
		length++
	}
	length++
	if n.Value = rest[1 : length-1]; strings.Contains(n.Value, `\`) {
		r.bad = json.Unmarshal([]byte(rest[:length]), &n.Value) != nil || strings.ContainsRune(n.Value, utf8.RuneError)
	}
	r.skip(length)
}
