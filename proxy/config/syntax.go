package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// garbage finds the first byte that is not UTF-8, or the first character that is not text.
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
	at := place{src: s, line: 1 + strings.Count(before, "\n"), col: 1 + utf8.RuneCountInString(before[start:]), width: 1}
	p := at.problem(fix, "%s", what)
	return &p
}

// documents finds the --- that begins a second document. One before the first document is
// allowed.
func (s *source) documents() *Problem {
	begun, number := false, 0
	for line := range strings.Lines(s.data) {
		number++
		text := strings.TrimRight(line, " \t\r\n")
		switch {
		case text == "---" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "---\t"):
			if begun {
				p := place{src: s, line: number, col: 1, width: 3}.problem("leave this line out, or include the rest as another file", "a file is one document: a second one begins here")
				return &p
			}
			begun = true
		case text != "" && !strings.HasPrefix(strings.TrimLeft(text, " \t"), "#") && !strings.HasPrefix(text, "%"):
			begun = true
		}
	}
	return nil
}

// control reports whether r is not text in YAML, or ends a line in YAML alone.
func control(r rune) bool {
	switch r {
	case '\t', '\n':
		return false
	case '\u2028', '\u2029', 0xfffe, 0xffff:
		return true
	}
	return r < ' ' || r >= 0x7f && r < 0xa0
}

// syntax makes a problem of an error of the YAML parser. It returns nil if there was no
// document at all.
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
	if p := s.star(load.Message, at); p != nil {
		return p
	}
	message := load.Message
	if load.ContextMsg != "" {
		message = load.ContextMsg + ": " + message
	}
	p := at.problem(syntaxFix(message, at), "%s", printable(strings.TrimPrefix(message, "yaml: ")))
	return &p
}

// starWord matches text that begins with *. To YAML it is an alias, but no anchor has such a
// name.
var starWord = regexp.MustCompile(`^\*(?:[^A-Za-z0-9_ ,\[\]{}][^ ,\[\]{}]*)?`)

// star makes a problem of text that begins with *, such as *.example.com. It returns nil for
// any other error.
func (s *source) star(message string, at place) *Problem {
	if strings.Contains(message, "alphabetic or numeric") {
		at.col-- // it is behind the *
	} else if !strings.Contains(message, "unknown anchor") {
		return nil
	}
	line := s.line(at.line)
	rest := line[s.offset(line, at.line, max(at.col, 1)):]
	word := starWord.FindString(rest)
	if word == "" || word == "*" && !strings.Contains(message, "alphabetic") {
		return nil
	}
	at.width = utf8.RuneCountInString(word)
	p := at.problem(fmt.Sprintf("write it in quotes: %q", word), "without quotes a word that begins with * is an alias")
	return &p
}

// bracketed matches an IPv6 address with its port, which is a list to YAML.
var bracketed = regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%[^\]]*)?\]:[0-9]+`)

// bracketedFix returns the fix for an unquoted IPv6 address at or behind a place. It is "" if
// there is none.
func bracketedFix(at place) string {
	line := at.src.line(at.line)
	if found := bracketed.FindString(line[at.src.offset(line, at.line, max(at.col, 1)):]); found != "" {
		return fmt.Sprintf("write it in quotes: %q", found)
	}
	return ""
}

// syntaxFix returns the fix for text that the YAML parser rejects.
func syntaxFix(message string, at place) string {
	if fix := flowFix(message, at); fix != "" {
		return fix
	}
	if fix := bracketedFix(place{src: at.src, line: at.line, col: 1}); fix != "" && strings.Contains(message, "expected key") {
		return fix
	}
	text := at.src.line(at.line)
	for _, known := range []struct{ message, fix string }{
		{"mapping values are not allowed", "write text with a colon in quotes, or begin a new line"},
		{"single document", "leave out ... and the rest, or include the rest as another file"},
		{"incompatible YAML document", "leave this line out"},
		{"unknown anchor", "define it before, with &, or write it in quotes if it is text"},
		{"while scanning an anchor", "write it in quotes: & has a meaning of its own"},
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
