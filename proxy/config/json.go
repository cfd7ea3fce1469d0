package config

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// A file that is JSON is YAML, too, but for characters beyond U+FFFF, which JSON escapes in
// pairs. It is not read by the YAML parser, which reads all that is in brackets before it goes on,
// and takes ten times as much memory.

// A jsonReader makes nodes of a text that is JSON, with the places that the YAML parser gives
// them.
type jsonReader struct {
	text      string
	at        int
	line, col int // of at, counted from 1, the column in characters
	bad       bool
}

// json returns what a file says that is JSON, and nil if it is none, or not as YAML has it.
func (s *source) json() *yaml.Node {
	if !strings.HasPrefix(strings.TrimLeft(s.data, " \t\r\n"), "{") || !json.Valid([]byte(s.data)) {
		return nil
	}
	r := &jsonReader{text: s.data, line: 1, col: 1}
	if n := r.value(0); !r.bad {
		return n
	}
	return nil
}

// skip goes on behind so many bytes.
func (r *jsonReader) skip(bytes int) {
	passed := r.text[r.at : r.at+bytes]
	r.at += bytes
	if i := strings.LastIndexByte(passed, '\n'); i >= 0 {
		r.line += strings.Count(passed, "\n")
		r.col, passed = 1, passed[i+1:]
	}
	r.col += utf8.RuneCountInString(passed)
}

// next goes on to what is next that is none of these characters nor space, and returns what
// that begins with.
func (r *jsonReader) next(but string) byte {
	rest := r.text[r.at:]
	r.skip(len(rest) - len(strings.TrimLeft(rest, " \t\r\n"+but)))
	return r.text[r.at]
}

// value reads a value.
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
		n.Value = rest[:strings.IndexAny(rest, ",]} \t\r\n")] // there is one of them, for the first value is a {
		n.Tag = literalTag(n.Value)
		r.skip(len(n.Value))
	}
	return n
}

// literalTag is what YAML has for what JSON writes without quotes.
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

// quoted reads a text. Half of a pair is no character.
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
