package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// garbage finds the first byte that is no UTF-8, or that no text has.
func (s *source) garbage() *Problem {
	i, what, fix := 0, "", ""
	for i < len(s.data) {
		r, n := utf8.DecodeRuneInString(s.data[i:])
		if r == utf8.RuneError && n == 1 {
			what, fix = fmt.Sprintf("the byte %#x is no UTF-8", s.data[i]), "write the file in UTF-8"
			break
		}
		if control(r) && (r != '\r' || !strings.HasPrefix(s.data[i:], "\r\n")) {
			what, fix = fmt.Sprintf("the character %U is no text", r), fmt.Sprintf(`write "\u%04x" in quotes`, r)
			break
		}
		i += n
	}
	if what == "" {
		return nil
	}
	before := s.data[:i]
	start := strings.LastIndexByte(before, '\n') + 1
	at := place{s, 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[start:]), 1}
	p := at.problem(fix, "%s", what)
	return &p
}

// control reports whether r is no text to YAML, or ends a line to YAML but to nobody else.
func control(r rune) bool {
	switch r {
	case '\t', '\n':
		return false
	case '\u2028', '\u2029', 0xfffe, 0xffff:
		return true
	}
	return r < ' ' || r >= 0x7f && r < 0xa0
}

// syntax makes a problem of what the YAML parser says; nil if there was no document at all.
func (s *source) syntax(err error) *Problem {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		p := place{src: s}.problem("", "%v", err)
		return &p
	}
	if strings.Contains(load.Message, "no documents") {
		return nil
	}
	at := place{src: s, line: load.Mark.Line, col: load.Mark.Column, width: 1}
	message := load.Message
	if load.ContextMsg != "" {
		message = load.ContextMsg + ": " + message
	}
	p := at.problem(syntaxFix(message, at), "%s", printable(strings.TrimPrefix(message, "yaml: ")))
	return &p
}

// syntaxFix says what to write instead of what the YAML parser does not understand.
func syntaxFix(message string, at place) string {
	if fix := flowFix(message, at); fix != "" {
		return fix
	}
	text := at.src.line(at.line)
	for _, known := range []struct{ message, fix string }{
		{"mapping values are not allowed", "write text with a colon in quotes, or begin a new line"},
		{"single document", "write one document, without ---"},
		{"unknown anchor", "define it before, with &"},
		{"exceeded max depth", "nest less"},
		{"did not find expected ',' or ']'", "write , or ] before"},
		{"did not find expected ',' or '}'", "write , or } before"},
		{"unexpected end of stream", "close the quotes"},
		{"did not find expected", "indent it like the lines above"},
	} {
		if strings.Contains(message, known.message) {
			return known.fix
		}
	}
	if strings.HasPrefix(strings.TrimLeft(text, " "), "\t") {
		return "indent with spaces instead of tabs"
	}
	if strings.Contains(message, "cannot start any token") {
		return "write it in quotes"
	}
	return ""
}
