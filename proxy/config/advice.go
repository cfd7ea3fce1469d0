package config

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// within checks a number against the bounds of its field.
func (f *field) within(v reflect.Value) *complaint {
	if len(f.bounds) == 0 {
		return nil
	}
	b := f.bounds[0]
	switch n := number(v); {
	case n < b.lo:
		return complain("write "+b.loText+" or more", "%s is %s, less than %s", f.key, f.form.show(v), b.loText)
	case n > b.hi && b.hi == 1 && n <= 100 && v.Kind() == reflect.Float64: // in percent
		return complain("write "+strconv.FormatFloat(n/100, 'g', 6, 64)+" for "+f.form.show(v)+" in 100", "%s is %s, more than %s", f.key, f.form.show(v), b.hiText)
	case n > b.hi:
		return complain("write "+b.hiText+" or less", "%s is %s, more than %s", f.key, f.form.show(v), b.hiText)
	}
	return nil
}

// whole returns the complaint about a number that was written in place of an integer: with a
// point or an exponent, or too large for one.
func (f *field) whole(text string) *complaint {
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	lo, hi := math.Inf(-1), math.Inf(1)
	if len(f.bounds) > 0 {
		lo, hi = f.bounds[0].lo, f.bounds[0].hi
	}
	below, above := max(math.Floor(n), lo), min(math.Ceil(n), hi)
	switch {
	case err != nil:
		return complain(f.integers(), "%s is an integer: %q is not a whole number", f.key, text)
	case n < lo:
		return complain("write "+f.bounds[0].loText+" or more", "%s is %s, less than %s", f.key, text, f.bounds[0].loText)
	case n > hi:
		return complain("write "+f.bounds[0].hiText+" or less", "%s is %s, more than %s", f.key, text, f.bounds[0].hiText)
	case below == above || math.Abs(n) > 1<<53:
		return complain(fmt.Sprintf("write %.0f", n), "%s is an integer: %q is not written as one", f.key, text)
	}
	return complain(fmt.Sprintf("write %.0f or %.0f", below, above), "%s is an integer: %q is not a whole number", f.key, text)
}

// integers says which integers may be written.
func (f *field) integers() string { return f.integersFrom(math.Inf(-1)) }

// nonzero says which integers may be written for a word that means on, if 0 is off.
func (f *field) nonzero() string {
	if zeroIsOff.MatchString(f.doc) || strings.Contains(f.doc, " 0: none") {
		return f.integersFrom(1)
	}
	return f.integers()
}

// integersFrom says which integers from a least one on may be written.
func (f *field) integersFrom(least float64) string {
	if len(f.bounds) != 1 {
		return "write a number such as 5"
	}
	b := f.bounds[0]
	if least > b.lo {
		b.lo, b.loText = least, strconv.FormatFloat(least, 'f', -1, 64)
	}
	if b.hi-b.lo > 4 {
		return "write a whole number from " + b.loText + " to " + b.hiText
	}
	var all []string
	for n := b.lo; n <= b.hi; n++ {
		all = append(all, strconv.FormatFloat(n, 'f', -1, 64))
	}
	return "write " + enumeration(all, "or")
}

// listOf returns how a value written in place of a list may be written as one. The elements
// are put in brackets if they are texts and the value is one, or several with commas between
// them.
func (f *field) listOf(n *yaml.Node) string {
	one, sample := f, f.sample()
	if f.obj != nil {
		one = f.obj.shorthand
	}
	if one != nil && f.obj != nil {
		sample = f.key + ": [" + quoted(one.example) + "]"
	}
	if one == nil || one.form.style != styleText || f.fixed > 0 || n.Kind != yaml.ScalarNode || strings.Contains(n.Value, "$") {
		return sample
	}
	if meant, _ := suggestEndpoint(n.Value); meant != "" && one.typ == reflect.TypeFor[Address]() {
		return f.key + ": [" + quoted(meant) + "]"
	}
	words := strings.FieldsFunc(n.Value, func(r rune) bool { return r == ',' || r == ' ' })
	for i, word := range words {
		if c := one.form.set(nil, one, reflect.New(one.typ).Elem(), word); c != nil {
			return sample
		}
		if words[i] = quoted(word); strings.ContainsAny(word, `"\`) {
			return sample
		}
	}
	if len(words) == 0 {
		return sample
	}
	return f.key + ": [" + strings.Join(words, ", ") + "]"
}

// flowFix returns the fix for text that cannot stand inside of [ ] or { }, or outside of them.
// It is "" for any other text.
func flowFix(message string, at place) string {
	line := at.src.line(at.line)
	offset := at.src.offset(line, at.line, max(at.col, 1))
	before, rest := line[:offset], line[offset:]
	if strings.HasSuffix(before, "$") && strings.HasPrefix(rest, "{") {
		return fmt.Sprintf("write it in quotes: %q", variableAt(before, rest))
	}
	switch bracket := rest[:min(len(rest), 1)]; {
	case strings.Contains(message, "node content") && rest == "" && strings.Contains(message, "flow"):
		return "close the open bracket, with ] or }"
	case bracket == "":
	case strings.Contains(message, "node content") && bracket == ",":
		return "write a value before the comma, or leave the comma out"
	case strings.ContainsAny(bracket, "]}") && (strings.Contains(message, "node content") || strings.Contains(message, "expected key")):
		return "leave the " + bracket + " out"
	}
	return ""
}

// variableWord matches a word of YAML with variables in it.
var variableWord = regexp.MustCompile(`^(\$\{[^}]*\}?|[^ ,\[\]{}"'])+`)

// variableAt returns the word around ${. The line is before and rest together.
func variableAt(before, rest string) string {
	start := strings.LastIndexAny(before, " ,[]{}\"'") + 1
	return variableWord.FindString(before[start:] + rest)
}
