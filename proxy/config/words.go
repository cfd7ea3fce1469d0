package config

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// kindOf names the kind of a node as in speech.
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
	case name == "IP" || strings.ContainsRune("aeiou", rune(name[0])) && name != "URL path":
		return "an " + name
	}
	return "a " + name
}

// sample returns an example of how to write a field.
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
