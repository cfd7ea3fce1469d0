package admin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/admin"
)

// TestMembersAreDescribed: members.json has the comments on the types of answers and on their fields, as the source
// has them, and each field has one.
func TestMembersAreDescribed(t *testing.T) {
	s := &memberSource{docs: make(map[string]string), words: make(map[string][]string), read: make(map[string]bool), found: make(map[string]string), used: make(map[string][]string)}
	for _, answer := range admin.EachAnswer() {
		s.add(t, reflect.TypeOf(answer))
	}
	got, err := os.ReadFile("members.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := marshal(map[string]any{"docs": s.found, "words": s.used})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		err = os.WriteFile("members.json", want, 0o644)
	} else if string(got) != string(want) {
		t.Errorf("members.json differs from the source: go test ./proxy/admin -run MembersAreDescribed -update, then the same with OpenAPI")
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(s.lacks) > 0 {
		t.Errorf("without a comment: %q", s.lacks)
	}
}

// TestDocumentHasMembers: each member in the document has a description, states have their words, and times their
// format.
func TestDocumentHasMembers(t *testing.T) {
	var d struct {
		Components struct {
			Schemas map[string]*jsonschema.Schema
		}
	}
	if err := json.Unmarshal(admin.Document(), &d); err != nil {
		t.Fatal(err)
	}
	words, times := make(map[string]string), 0
	var look func(at string, s *jsonschema.Schema)
	look = func(at string, s *jsonschema.Schema) {
		if s == nil {
			return
		}
		if s.Enum != nil {
			words[at] = fmt.Sprint(s.Enum)
		}
		if s.Format == "date-time" {
			times++
		}
		look(at, s.Items)
		look(at, s.AdditionalProperties)
		for name, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", at, name)
			}
			look(at+"."+name, p)
		}
	}
	for name, s := range d.Components.Schemas {
		look(name, s)
	}
	for at, want := range map[string]string{
		"Status.state": "[serving draining]", "Status.listeners.state": "[serving paused draining]", "Status.upstreams.endpoints.state": "[up down standby ejected draining maint removed]",
		"Status.problems.severity": "[outage warning]", "Plan.changes.fate": "[keep drain reset]", "Generations.history.state": "[current pending previous replaced rolled back]",
		"Process.checks.state": "[ok degraded missing unknown unused]", "Why.verdict": "[client client_network endpoint endpoint_network proxy limit idle unknown]",
	} {
		if words[at] != want {
			t.Errorf("%s has the words %q, want %q", at, words[at], want)
		}
	}
	if times < 25 {
		t.Errorf("%d times", times)
	}
}

func marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return text.Bytes(), err
}

// A memberSource is the comments of types, by the directory's last name, the type and the field.
type memberSource struct {
	docs  map[string]string
	words map[string][]string // constants of a type of text
	read  map[string]bool     // packages
	found map[string]string   // docs of the types that are used
	used  map[string][]string // words, likewise
	lacks []string            // fields without a comment, of a type without one
}

// add finds the comments on a type, its fields and theirs.
func (s *memberSource) add(t *testing.T, of reflect.Type) {
	t.Helper()
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		s.add(t, of.Elem())
		return
	}
	key := path.Base(of.PkgPath()) + "." + of.Name()
	within, ours := strings.CutPrefix(of.PkgPath(), "github.com/penstock/penstock/")
	if _, done := s.found[key]; done || !ours {
		return
	}
	s.parse(t, "../../"+within)
	s.found[key] = s.docs[key]
	if words := s.words[key]; words != nil {
		s.used[key] = words
	}
	if of.Kind() != reflect.Struct {
		return
	}
	for f := range of.Fields() {
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		if doc := s.docs[key+"."+f.Name]; doc != "" {
			s.found[key+"."+f.Name] = doc
		} else if !f.Anonymous && (f.Type.Kind() != reflect.Struct || f.Type.Name() == "Time") {
			s.lacks = append(s.lacks, key+"."+f.Name)
		}
		s.add(t, f.Type)
	}
}

// parse reads the comments of a package.
func (s *memberSource) parse(t *testing.T, dir string) {
	t.Helper()
	if s.read[dir] {
		return
	}
	s.read[dir] = true
	names, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(names) == 0 {
		t.Fatal(dir, err)
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, spec := range g.Specs {
					s.take(path.Base(dir), g.Doc.Text(), spec)
				}
			}
		}
	}
}

// take takes the comments of a type, or a constant of a type.
func (s *memberSource) take(pkg, doc string, spec ast.Spec) {
	if v, ok := spec.(*ast.ValueSpec); ok {
		of, named := v.Type.(*ast.Ident)
		if len(v.Values) != 1 || !named {
			return
		}
		if value, ok := v.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
			word, _ := strconv.Unquote(value.Value)
			s.words[pkg+"."+of.Name] = append(s.words[pkg+"."+of.Name], word)
		}
		return
	}
	of, ok := spec.(*ast.TypeSpec)
	if !ok {
		return
	}
	key := pkg + "." + of.Name.Name
	fields, ok := of.Type.(*ast.StructType)
	if !ok {
		s.docs[key] = inJSON(doc+of.Doc.Text(), nil, false)
		return
	}
	names := make(map[string]string) // in JSON
	for _, f := range fields.Fields.List {
		for _, name := range f.Names {
			names[name.Name] = jsonName(f)
		}
	}
	others := maps.Clone(names)
	delete(others, of.Name.Name)
	s.docs[key] = inJSON(doc+of.Doc.Text(), others, false)
	for _, f := range fields.Fields.List {
		for _, name := range f.Names {
			omitted := f.Tag != nil && strings.Contains(f.Tag.Value, ",omit")
			s.docs[key+"."+name.Name] = inJSON(f.Doc.Text()+"\n"+f.Comment.Text(), names, omitted)
		}
	}
	s.share(key, names)
}

// share gives fields without a comment that of a field beside them, which names them.
func (s *memberSource) share(key string, names map[string]string) {
	for lacks := range names {
		if s.docs[key+"."+lacks] != "" {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(names)) {
			if doc := s.docs[key+"."+other]; strings.Contains(doc, "`"+names[lacks]+"`") {
				s.docs[key+"."+lacks] = doc
				break
			}
		}
	}
}

// jsonName is the name of a field in JSON; "" if it has none.
func jsonName(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	tag, _ := strconv.Unquote(f.Tag.Value)
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return name
}

var (
	docLink   = regexp.MustCompile(`\[([A-Za-z.]+)\]`)
	upperWord = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)
	absent    = regexp.MustCompile(`(^|[.;,] )(nil|"")( and left out)?:`)
)

// inJSON is a comment for readers of JSON: fields have their names there, and one that is nil is left out.
func inJSON(text string, names map[string]string, omitted bool) string {
	text = strings.Join(strings.Fields(text), " ")
	text = docLink.ReplaceAllString(text, "$1")
	if omitted {
		text = absent.ReplaceAllString(text, "${1}left out:")
	}
	text = upperWord.ReplaceAllStringFunc(text, func(word string) string {
		if name := names[word]; name != "" && name != "-" && (word != strings.ToUpper(word) || strings.HasPrefix(text, word)) {
			return "`" + name + "`"
		}
		return word
	})
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[size:], ".") + "."
}
