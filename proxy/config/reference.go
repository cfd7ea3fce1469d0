package config

import (
	"fmt"
	"strings"
)

// Reference returns a table of every key in Markdown: type, unit, range, default and
// description.
func Reference() string {
	var b strings.Builder
	root().reference(&b, "", "Keys of a file, and of the files that it includes.")
	return strings.TrimSuffix(b.String(), "\n")
}

// reference writes the section of an object and of the objects in it.
func (o *object) reference(b *strings.Builder, path, doc string) {
	heading := "`" + path + "`"
	if path == "" {
		heading = "The whole"
	}
	fmt.Fprintf(b, "### %s\n\n%s\n\n", heading, doc)
	b.WriteString("| key | type | range | default | |\n|---|---|---|---|---|\n")
	for _, f := range o.fields {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.key, f.typeText(), f.rangeText(), f.defaultText(), cell(f.doc))
	}
	b.WriteString("\n")
	for _, f := range o.fields {
		if f.obj == nil {
			continue
		}
		inner := f.key
		if f.list {
			inner += "[]"
		}
		if path != "" {
			inner = path + "." + inner
		}
		f.obj.reference(b, inner, f.doc)
	}
}

func (f *field) typeText() string {
	name := "section"
	switch {
	case f.obj != nil && f.on:
		name = "section, `off`"
	case f.obj != nil && f.obj.shorthand != nil:
		name = "section, " + f.obj.shorthand.form.name
	case f.obj != nil:
	case len(f.enum) > 0:
		name = "word"
	default:
		name = f.form.name
	}
	switch {
	case f.single && f.off:
		name += ", list of it, or `off`"
	case f.single:
		name += ", or list of it"
	case f.list:
		name = "list of " + name
	}
	if f.unit != "" {
		name += ", " + f.unit
	}
	return name
}

func (f *field) rangeText() string {
	var parts []string
	for _, b := range f.bounds {
		parts = append(parts, "`"+b.loText+"` to `"+b.hiText+"`")
	}
	for _, word := range f.enum {
		parts = append(parts, "`"+word+"`")
	}
	return strings.Join(parts, ", ")
}

// defaultText returns the default. It adds an example if there is one.
func (f *field) defaultText() string {
	dflt := ""
	switch {
	case f.required:
		dflt = "required"
	case f.on:
		dflt = "on"
	case f.optional:
		dflt = "absent"
	case f.obj != nil && !f.list:
		dflt = "as below"
	case f.list:
		dflt = "`[" + strings.Join(strings.Fields(f.dflt), ", ") + "]`"
	case f.dflt == "":
		dflt = "empty"
	default:
		dflt = "`" + f.dflt + "`"
	}
	if f.example != "" {
		dflt += ", e.g. `" + cell(f.example) + "`"
	}
	return dflt
}

// cell escapes text for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\r", `\r`, "\n", `\n`).Replace(text)
}
