package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/display"
)

// A Problem is an error or a warning in a configuration file.
type Problem struct {
	Pos     Pos
	Message string // the error, in one line
	Fix     string // the suggested fix; may be empty
	Warning bool   // the value is valid but suspicious

	line          string // excerpt of the line
	column, width int    // of the marked characters in line
	secret        bool   // the line is not shown
}

// String returns FILE:LINE:COLUMN: message, and below it the line, a caret and the fix.
func (p Problem) String() string {
	var b strings.Builder
	message := p.Message
	if p.Warning {
		message = "warning: " + message
	}
	at := p.Pos
	at.File = display.Text(at.File)
	switch {
	case at.Line > 0:
		fmt.Fprintf(&b, "%v: %s", at, message)
	case at.File != "":
		fmt.Fprintf(&b, "%s: %s", at.File, message)
	default:
		b.WriteString(message)
	}
	if p.Pos.Line == 0 || p.secret {
		if p.Fix != "" {
			fmt.Fprintf(&b, ": %s", p.Fix)
		}
		return b.String()
	}
	number := fmt.Sprintf("%5d", p.Pos.Line)
	width := min(max(p.width, 1), max(utf8.RuneCountInString(p.line)-p.column+1, 1))
	fmt.Fprintf(&b, "\n%s | %s\n%*s | %*s%s", number, p.line, len(number), "", p.column-1, "", strings.Repeat("^", width))
	if p.Fix != "" {
		fmt.Fprintf(&b, " %s", p.Fix)
	}
	return b.String()
}

// Error returns the first line of String and the fix, so that a Problem is an error of one
// line.
func (p Problem) Error() string {
	line, _, excerpt := strings.Cut(p.String(), "\n")
	if p.Fix != "" && excerpt {
		line += ": " + p.Fix
	}
	return line
}

// printable replaces each character that cannot be seen by one that can. The number of
// characters stays the same.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r
	}, line)
}

// sorted returns problems in the order of files, lines and columns, without duplicates.
func sorted(problems []Problem, files []string) []Problem {
	rank := make(map[string]int, len(files))
	for i, f := range files {
		rank[f] = i
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(rank[a.Pos.File], rank[b.Pos.File]),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(problems)
}
