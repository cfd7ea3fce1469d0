package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/nearest"
	"go.yaml.in/yaml/v4"
)

// A Problem is an error or a warning in a configuration file.
type Problem struct {
	Pos     Pos
	Message string // the error, in one line
	Fix     string // the suggested fix; may be empty
	Warning bool   // the value is valid but suspicious

	line          string // excerpt of the line
	column, width int    // of the marked part of line
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

// printable replaces each invisible character by a visible one. The number of characters stays the same.
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

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a group of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return strings.ToLower(n.Value)
	case "!!null":
		return "nothing"
	}
	return "text"
}

func article(name string) string {
	switch {
	case name == "text":
		return name
	case name == "integer":
		return "a whole number"
	case name == "IP" || strings.ContainsRune("aeiou", rune(name[0])) && name != "URL path":
		return "an " + name
	}
	return "a " + name
}

func (f *field) sample() string {
	value := f.sampleValue()
	switch {
	case f.fixed > 0:
		value = "[" + strings.Join(strings.Fields(f.dflt), ", ") + "]"
	case f.list && !f.single:
		value = "[" + value + "]"
	}
	return f.key + ": " + value
}

func (f *field) sampleValue() string {
	first, _, _ := strings.Cut(f.dflt, " ")
	switch {
	case f.obj != nil && f.obj.shorthand != nil && !f.list:
		return f.obj.shorthand.sampleValue()
	case f.obj != nil:
		return f.obj.outline()
	case f.example != "":
		return quoted(f.example)
	case f.form.style == styleBoolean:
		return "true"
	case f.hasDflt && first != "":
		return quoted(first)
	case f.form.style == styleText:
		return `""`
	}
	return "1"
}

// outline returns a mapping of the required keys, or of the first key if there are none.
func (o *object) outline() string {
	var parts []string
	for _, f := range o.fields {
		if f.required {
			parts = append(parts, f.sample())
		}
	}
	if f := o.fields[0]; len(parts) == 0 && f.list && f.hasDflt && f.dflt != "" {
		parts = append(parts, f.key+": ["+strings.Join(strings.Fields(f.dflt), ", ")+"]")
	} else if len(parts) == 0 {
		parts = append(parts, f.key+": …")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// quoted puts text in quotes if YAML would not read it as text within a flow.
func quoted(text string) string {
	if strings.ContainsAny(text, ":,[]{}#&*!|>'\"%@`$\\ ") {
		return `"` + text + `"`
	}
	return text
}

// closest returns the word that text most likely stands for, or "" if none is close.
func closest(text string, words []string) string {
	best, least := "", min(max(len(text)/3, 1)+1, len(text))
	if len(text) > maxName {
		return ""
	}
	fold := strings.ToLower(strings.NewReplacer("-", "_", " ", "_").Replace(text))
	for _, word := range words {
		if len(word) > maxName || word == "" {
			continue
		}
		if abs(len(word)-len(fold)) >= least {
			continue
		}
		if d := nearest.Distance(fold, strings.ToLower(strings.ReplaceAll(word, "-", "_"))); d < least {
			best, least = word, d
		}
	}
	return best
}

func didYouMean(word string) string { return fmt.Sprintf("did you mean %q?", word) }

// enumeration joins words: a, b or c. Long lists are cut short.
func enumeration(words []string, last string) string {
	const most = 12
	if len(words) > most {
		return strings.Join(words[:most], ", ") + ", …"
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}

func abs(n int) int { return max(n, -n) }
