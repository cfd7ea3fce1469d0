package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/internal/file"
	"go.yaml.in/yaml/v4"
)

// variablePattern matches text with a ${VARIABLE}, which may stand for anything.
const variablePattern = `\$\{[A-Za-z_][A-Za-z0-9_]*\}`

// Schema returns the JSON Schema (draft 2020-12) of a file. It knows keys, types and the
// bounds of numbers. It accepts errors that only the whole configuration shows. Editors use it
// for completion and checks.
func Schema() *jsonschema.Schema {
	s := root().schema()
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "Configuration of penstock run"
	s.PatternProperties = map[string]*jsonschema.Schema{"^x-": {Description: "Not looked at: a place for anchors."}}
	return s
}

// SchemaJSON returns Schema in JSON, with keys in the order of the reference.
func SchemaJSON() []byte {
	raw, err := json.Marshal(Schema())
	if err != nil {
		panic("config: " + err.Error()) // it is built from our own structs
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		panic("config: " + err.Error())
	}
	out.WriteByte('\n')
	return out.Bytes()
}

func (o *object) schema() *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           make(map[string]*jsonschema.Schema),
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, f := range o.fields {
		p := f.schema()
		p.Description = f.doc
		if f.unit != "" {
			p.Description += " Unit: " + f.unit + "."
		}
		s.Properties[f.key] = p
		s.PropertyOrder = append(s.PropertyOrder, f.key)
		if f.required {
			s.Required = append(s.Required, f.key)
		}
	}
	return s
}

func (f *field) schema() *jsonschema.Schema {
	one := f.elementSchema(0)
	if !f.list {
		if f.on {
			return anyOf(one, &jsonschema.Schema{Enum: []any{Off, false}})
		}
		if f.form != nil && f.hasDflt {
			one.Default = f.defaultJSON()
		}
		return one
	}
	s := &jsonschema.Schema{Type: "array", Items: one}
	if f.fixed > 0 {
		s.Items = nil
		for i := range f.fixed {
			s.PrefixItems = append(s.PrefixItems, f.elementSchema(i))
		}
		s.MinItems, s.MaxItems = &f.fixed, &f.fixed
	}
	if f.hasDflt {
		s.Default = f.defaultJSON()
	}
	switch {
	case f.single && f.off:
		return anyOf(&jsonschema.Schema{Enum: []any{Off}}, f.elementSchema(0), s)
	case f.single:
		return anyOf(f.elementSchema(0), s)
	}
	return s
}

// elementSchema returns the schema of a value, or of an element of a list.
func (f *field) elementSchema(i int) *jsonschema.Schema {
	if f.obj != nil {
		s := f.obj.schema()
		if f.obj.shorthand != nil {
			return anyOf(f.obj.shorthand.elementSchema(0), s)
		}
		return s
	}
	variable := &jsonschema.Schema{Type: "string", Pattern: variablePattern}
	number := &jsonschema.Schema{Type: "integer"}
	if len(f.bounds) > 0 {
		b := f.bounds[min(i, len(f.bounds)-1)]
		number.Minimum, number.Maximum = &b.lo, &b.hi
	}
	switch f.form.style {
	case styleWordOrInteger:
		least := 0.0
		number.Minimum, number.Maximum = &least, &f.form.most
		return anyOf(number, &jsonschema.Schema{Type: "string", Pattern: f.form.pattern}, variable)
	case styleInteger:
		return anyOf(number, variable)
	case styleNumber:
		number.Type = "number"
		return anyOf(number, variable)
	case styleBoolean:
		return anyOf(&jsonschema.Schema{Type: "boolean"}, variable)
	case styleDuration:
		s := anyOf(&jsonschema.Schema{Type: "string", Pattern: f.form.pattern}, variable)
		if len(f.bounds) == 0 || f.bounds[0].lo == 0 {
			zero := any(0)
			s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Const: &zero})
		}
		return s
	case styleSize:
		return anyOf(number, &jsonschema.Schema{Type: "string", Pattern: f.form.pattern}, variable)
	}
	if len(f.enum) > 0 {
		words := &jsonschema.Schema{Type: "string"}
		for _, word := range f.enum {
			words.Enum = append(words.Enum, word)
		}
		return anyOf(words, variable)
	}
	s := &jsonschema.Schema{Type: "string"}
	if f.example != "" {
		s.Examples = []any{f.example}
	}
	return s
}

func anyOf(schemas ...*jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: schemas}
}

func (f *field) defaultJSON() json.RawMessage {
	var words []string
	if f.list {
		words = strings.Fields(f.dflt)
	} else {
		words = []string{f.dflt}
	}
	for i, word := range words {
		switch f.form.style {
		case styleInteger, styleNumber, styleBoolean:
		case styleSize:
			if _, err := strconv.Atoi(word); err != nil {
				words[i] = strconv.Quote(word)
			}
		default:
			words[i] = strconv.Quote(word)
		}
	}
	if f.list {
		return json.RawMessage("[" + strings.Join(words, ", ") + "]")
	}
	return json.RawMessage(words[0])
}

// Reference returns a table of every key in Markdown: type, range, unit, default and
// description.
func Reference() string {
	var b strings.Builder
	root().reference(&b, "", map[*object]string{})
	return strings.TrimSuffix(b.String(), "\n")
}

// reference writes the table of an object, and the tables of the objects in it that are not written at another place.
func (o *object) reference(b *strings.Builder, path string, places map[*object]string) {
	heading := "`" + path + "`"
	if path == "" {
		heading = "The whole file"
	}
	fmt.Fprintf(b, "### %s\n\n| key | type | default | |\n|---|---|---|---|\n", heading)
	var own []*field
	for _, f := range o.fields {
		doc := cell(f.doc)
		if place := places[f.obj]; place != "" {
			doc += fmt.Sprintf(" Keys: [%s](#%s).", place, anchor(place))
		} else if f.obj != nil {
			places[f.obj] = f.at(path)
			own = append(own, f)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.key, f.typeText(), f.defaultText(), doc)
	}
	b.WriteString("\n")
	for _, f := range own {
		f.obj.reference(b, f.at(path), places)
	}
}

func (f *field) at(path string) string {
	if path != "" {
		path += "."
	}
	path += f.key
	if f.list {
		path += "[]"
	}
	return path
}

func anchor(path string) string { return strings.NewReplacer(".", "", "[", "", "]", "").Replace(path) }

// typeText returns the type of a key, its range and its unit.
func (f *field) typeText() string {
	name := "section"
	switch {
	case f.obj != nil && f.on:
		name = "section, `off`"
	case f.obj != nil && f.obj.shorthand != nil:
		name = "section, " + f.obj.shorthand.form.name
	case f.obj != nil:
	case len(f.enum) > 0:
		name = "`" + strings.Join(f.enum, "`, `") + "`"
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
	for _, b := range f.bounds {
		name += " `" + b.loText + ".." + b.hiText + "`"
	}
	if f.unit != "" {
		name += ", " + f.unit
	}
	return name
}

// defaultText returns the default, or an example if there is none.
func (f *field) defaultText() string {
	dflt := ""
	switch {
	case f.required:
		dflt = "required"
	case f.on:
		dflt = "on"
	case f.optional:
		dflt = "absent"
	case f.list && f.dflt != "":
		dflt = "`[" + strings.Join(strings.Fields(f.dflt), ", ") + "]`"
	case f.dflt != "":
		dflt = "`" + f.dflt + "`"
	}
	switch {
	case f.example == "" || f.dflt != "" && !f.required:
		return dflt
	case dflt == "":
		return "e.g. `" + cell(f.example) + "`"
	}
	return dflt + ", e.g. `" + cell(f.example) + "`"
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\r", `\r`, "\n", `\n`).Replace(text)
}

// resolved is the schema, ready to be used.
var resolved = sync.OnceValues(func() (*jsonschema.Resolved, error) { return Schema().Resolve(nil) })

// Validate checks one file, without its included files, against [Schema]. [Load] finds more
// errors, with their positions.
func Validate(path string) []Problem {
	whole := place{src: &source{name: path}}
	data, err := file.Read(path, maxFile)
	if err != nil {
		return []Problem{*whole.problem(mend(err, maxFile), "cannot be read: %v", pathless(err))}
	}
	if _, problem := newSource(path, data).parse(); problem != nil {
		return []Problem{*problem}
	}
	if err := validate(data); err != nil {
		return []Problem{*whole.problem("", "%s", printable(err.Error()))}
	}
	return nil
}

func validate(data []byte) error {
	var instance any
	if err := yaml.Load(data, &instance); err != nil {
		return err
	}
	schema, err := resolved()
	if err != nil {
		return err
	}
	return schema.Validate(instance)
}
