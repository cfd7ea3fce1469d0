package admin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

type openapi struct {
	Paths map[string]map[string]struct {
		Description string
		Parameters  []struct {
			Name, In string
			Required bool
			Schema   *jsonschema.Schema
		}
		Responses map[string]any
	}
}

func documented(t *testing.T) (d openapi) {
	t.Helper()
	text, err := os.ReadFile("../../docs/openapi.json")
	must(t, err)
	must(t, json.Unmarshal(text, &d))
	return d
}

// TestOpenAPI: docs/openapi.json is the document that the server answers, and describes each request.
func TestOpenAPI(t *testing.T) {
	if list := admin.Undescribed(); len(list) > 0 {
		t.Errorf("without a description, a request or a schema: %q", list)
	}
	const path = "../../docs/openapi.json"
	want := admin.Document()
	if *update {
		must(t, os.WriteFile(path, want, 0o644))
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from the code: .ci/run generate (%v)", path, err)
	}
	d := documented(t)
	if got, want := slices.Sorted(maps.Keys(d.Paths)), slices.Sorted(slices.Values(admin.Paths())); !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
}

// TestGeneratorsTakeTheDocument: the document has no schema that is true or false, and no const: generators of
// clients refuse them, or leave the requests with them out.
func TestGeneratorsTakeTheDocument(t *testing.T) {
	var d any
	must(t, json.Unmarshal(admin.Document(), &d))
	schemas := 0
	var look func(path string, v any)
	look = func(path string, v any) {
		if list, ok := v.([]any); ok {
			for i, one := range list {
				look(fmt.Sprintf("%s[%d]", path, i), one)
			}
		}
		of, _ := v.(map[string]any)
		for key, one := range of {
			switch key {
			case "schema", "items", "additionalProperties":
				schemas++
				if _, ok := one.(map[string]any); !ok {
					t.Errorf("%s.%s is %v", path, key, one)
				}
			case "properties":
				for name, property := range one.(map[string]any) {
					schemas++
					if _, ok := property.(map[string]any); !ok {
						t.Errorf("%s.properties.%s is %v", path, name, property)
					}
				}
			case "const":
				t.Errorf("%s has const %v", path, one)
			}
			look(path+"."+key, one)
		}
	}
	look("", d)
	if schemas < 400 {
		t.Errorf("only %d schemas were seen", schemas)
	}
}

// TestParametersAsDocumented: valid requests have the parameters of the document; each one that it has not is
// refused, and so is a request without one that it requires.
func TestParametersAsDocumented(t *testing.T) {
	r := newRig(t, "")
	used := make(map[string]bool)
	for path, methods := range documented(t).Paths {
		for method, o := range methods {
			known := make(map[string]bool)
			for _, p := range o.Parameters {
				known[p.Name] = true
			}
			for _, name := range []string{"x", "listener", "undo", "confirm", "config", "weight", "seconds", "page"} {
				if known[name] {
					continue
				}
				r.settle(t)
				if code, changes := r.send(wire{strings.ToUpper(method), path + "?" + name + "=1", marked, ""}); code != http.StatusBadRequest || changes {
					t.Errorf("%s %s with %s gets %d, changes %v", method, path, name, code, changes)
				}
			}
			for _, p := range o.Parameters {
				if p.In != "query" || !p.Required {
					continue
				}
				if code, changes := r.send(wire{strings.ToUpper(method), path, marked, ""}); code != http.StatusBadRequest || changes {
					t.Errorf("%s %s without %s gets %d, changes %v", method, path, p.Name, code, changes)
				}
			}
		}
	}
	for _, target := range goods {
		path, query, _ := strings.Cut(target, "?")
		for _, p := range documented(t).Paths[path]["post"].Parameters {
			used[path+" "+p.Name] = p.In == "query"
			if p.Required && p.In == "query" && !strings.Contains(query, p.Name+"=") {
				t.Errorf("%s has no %s", target, p.Name)
			}
		}
		for pair := range strings.SplitSeq(query, "&") {
			if name, _, ok := strings.Cut(pair, "="); ok && !used[path+" "+name] {
				t.Errorf("%s: %s is not in the document", target, name)
			}
		}
	}
}

// elsewhere are the codes that other tests have: of a loop that does not respond, and of the ends
// of sessions. Each request may find no place (503), as TestLesserRight has it.
var elsewhere = map[string]bool{"GET /livez 503": true, "POST /v1/sessions/end 409": true, "POST /v1/deny/add 409": true}

// TestErrorsAsDocumented: each error has one of the codes that the document has for its request, and each of
// those codes occurs.
func TestErrorsAsDocumented(t *testing.T) {
	seen := make(map[string]bool)
	ask := func(h http.Handler, method, target, host, token string) {
		q := httptest.NewRequestWithContext(t.Context(), method, target, nil)
		q.Host = host
		q.Header.Set(admin.Header, "1")
		if host == "evil.example" {
			q.Header.Set("Origin", "http://another.example") // probes may have any host
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		if w.Code >= http.StatusBadRequest {
			seen[fmt.Sprintf("%s %s %d", method, q.URL.Path, w.Code)] = true
		}
	}
	want := make(map[string]bool)
	r := newRig(t, "")
	for path, methods := range documented(t).Paths {
		for method, o := range methods {
			method = strings.ToUpper(method)
			for code := range o.Responses {
				if key := method + " " + path + " " + code; code != "200" && code != "default" && !elsewhere[key] {
					want[key] = true
				}
			}
			ask(r.Handler(), method, path+"?x=1", "localhost", "")
			ask(r.Remote(readToken, changeToken), method, path, "localhost", "")
			ask(r.Remote(readToken, changeToken), method, path, "evil.example", changeToken)
			ask(r.Remote(readToken, changeToken), method, path+"?x=1", "localhost", readToken)
		}
	}
	post := func(targets ...string) {
		for _, target := range targets {
			ask(r.Handler(), http.MethodPost, target, "localhost", "")
		}
	}
	fail := func(err error) {
		r.reloader.mu.Lock()
		r.reloader.bad = err
		r.reloader.mu.Unlock()
		post("/v1/reload", "/v1/plan")
	}
	for _, path := range []string{"/metrics", "/v1/process", "/", "/page/", "/v1/why?for=0s&listener=wob", "/v1/sessions?listener=wob", "/v1/mirrors?listener=wob"} {
		ask(r.Handler(), http.MethodGet, path, "localhost", "")
	}
	post("/v1/confirm", "/v1/rollback", "/v1/leave", "/v1/listener/drain?listener=wob", "/v1/split/set?listener=wob&route=0&percent=a:100",
		"/v1/endpoint/drain?upstream=x&endpoint=a", "/v1/endpoint/ready?upstream=x&endpoint=a", "/v1/endpoint/weight?upstream=x&endpoint=a&weight=1",
		"/v1/endpoint/add?upstream=x&address=127.0.0.1:80", "/v1/endpoint/remove?upstream=x&endpoint=a", "/v1/endpoint/maint?upstream=x&endpoint=a", "/v1/listener/ready?listener=wob",
		"/v1/deny/add?source=10.0.0.7&for=1h&listener=wob", "/v1/deny/remove?source=10.0.0.7&listener=wob", "/v1/sessions/end?listener=wob", "/v1/mirrors/reset?listener=wob")
	for _, err := range []error{admin.ErrNotFound, admin.ErrLeft} {
		r.balancer.mu.Lock()
		r.balancer.laneIs = err
		r.balancer.mu.Unlock()
		post("/v1/lane/on", "/v1/lane/off", "/v1/lane/return", "/v1/lane/flush")
	}
	r.balancer.drain(true)
	ask(r.Handler(), http.MethodGet, "/readyz", "localhost", "")
	r.balancer.drain(false)
	r.pend(t)
	post("/v1/reload")
	fail(&admin.ConfigError{Path: "p"})
	fail(rollback.ErrClosed)
	r.reloader.Close()
	post("/v1/confirm", "/v1/rollback")
	for key := range seen {
		if !want[key] {
			t.Errorf("%s is not in the document", key)
		}
	}
	for key := range want {
		if !seen[key] && (!strings.HasSuffix(key, " 503") || key == "GET /readyz 503") {
			t.Errorf("%s is in the document and does not occur", key)
		}
	}
}

// TestMembersAreDescribed: members.json has the comments on the types of answers and on their fields, as the source
// has them, and each field has one.
func TestMembersAreDescribed(t *testing.T) {
	s := &memberSource{docs: make(map[string]string), words: make(map[string][]string), read: make(map[string]bool), found: make(map[string]string), used: make(map[string][]string)}
	for _, answer := range admin.EachAnswer() {
		s.add(t, reflect.TypeOf(answer))
	}
	got, err := os.ReadFile("members.json")
	must(t, err)
	want, err := marshal(map[string]any{"docs": s.found, "words": s.used})
	must(t, err)
	if *update {
		err = os.WriteFile("members.json", want, 0o644)
	} else if string(got) != string(want) {
		t.Errorf("members.json differs from the source: .ci/run generate")
	}
	must(t, err)
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
	must(t, json.Unmarshal(admin.Document(), &d))
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
		"Status.problems.severity": "[outage warning]", "Plan.changes.fate": "[keep drain reset depends]", "Generations.history.state": "[current pending previous replaced rolled back]",
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
		must(t, err)
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

// TestListsAreNeverNull: no answer has a null, neither an empty one nor one whose pointers and lists have an element
// each, and the answers themselves are left as they are.
func TestListsAreNeverNull(t *testing.T) {
	lists := 0
	for _, answer := range admin.EachAnswer() {
		for _, full := range []bool{false, true} {
			v := reflect.New(reflect.TypeOf(answer)).Elem()
			before := reflect.New(v.Type()).Elem()
			if full {
				populate(v)
				populate(before)
			}
			text := admin.Encode(v.Interface())
			if bytes.Contains(text, []byte("null")) {
				t.Errorf("%T: %s", answer, text)
			}
			if !reflect.DeepEqual(v.Interface(), before.Interface()) {
				t.Errorf("%T has changed", answer)
			}
			lists += strings.Count(string(text), "[]")
		}
	}
	if lists < 20 {
		t.Errorf("there were only %d empty lists", lists)
	}
}

// populate sets pointers and interfaces, and each list of structs to one element, whose other lists are nil.
func populate(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		v.Set(reflect.ValueOf(struct {
			Found []string `json:"found"`
		}{}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		populate(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				populate(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			populate(v.Index(0))
		}
	}
}

func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	var d struct {
		Components struct {
			Schemas map[string]*jsonschema.Schema
		}
	}
	text, err := os.ReadFile("../../docs/openapi.json")
	must(t, err)
	must(t, json.Unmarshal(text, &d))
	return d.Components.Schemas
}

// closeObjects has each object of a schema allow no other members than those it names.
func closeObjects(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	closeObjects(s.Items)
	closeObjects(s.AdditionalProperties)
	for _, p := range s.Properties {
		closeObjects(p)
	}
	if s.Properties != nil && s.AdditionalProperties == nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
}

// TestEventsAsDocumented: the data of events is as docs/openapi.json has it, with no member that it has not.
func TestEventsAsDocumented(t *testing.T) {
	s := schemas(t)["Event"]
	closeObjects(s)
	event, err := s.Resolve(nil)
	must(t, err)
	events := admin.NewEvents()
	looked := time.Now()
	first := admin.Status{State: admin.Serving, Problems: []admin.Problem{{Severity: "outage", Kind: "x", Text: "y"}}, Upstreams: []admin.Upstream{
		{Name: "a", Endpoints: []admin.Endpoint{{Name: "1", State: admin.Up, Weight: 1, Breaker: "open", BreakerWhy: "x", BreakerUntil: looked, ByHand: []string{"weight 1"}}, {Name: "2", State: admin.Draining}}},
	}, Listeners: []admin.Listener{{Name: "l", State: admin.Paused, Queues: []admin.Queue{{}}}}}
	second := admin.Status{State: admin.Draining, DrainEnds: looked, Upstreams: []admin.Upstream{
		{Name: "a", Outage: new(admin.UpstreamOutage), Endpoints: []admin.Endpoint{{Name: "1", State: admin.Ejected, Until: looked, Active: 5}}}, {Name: "b"},
	}}
	for _, st := range []*admin.Status{new(first), new(second), new(second)} {
		if st.State == admin.Draining {
			st.Connections.Accepted++
		}
		_, text, _ := strings.Cut(string(events(st, looked)), "data: ")
		if strings.Contains(text, "null") || strings.Contains(text, `"upstreams":[`) {
			t.Errorf("%s", text)
		}
		var data any
		must(t, json.Unmarshal([]byte(text), &data))
		if err := event.Validate(data); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
}

// TestEventRows: the rows of events have each member of the status but its lists.
func TestEventRows(t *testing.T) {
	all := schemas(t)
	rows, status := all["Event"].Properties["rows"].Properties, all["Status"].Properties
	for kind, lists := range map[string][]string{"process": {"listeners", "problems", "upstreams"}, "listeners": nil, "upstreams": {"endpoints"}} {
		of := status
		if kind != "process" {
			of = status[kind].Items.Properties
		}
		var lacks []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if rows[kind].AdditionalProperties.Properties[name] == nil {
				lacks = append(lacks, name)
			}
		}
		if !slices.Equal(lacks, lists) {
			t.Errorf("rows of %s lack %q, want %q", kind, lacks, lists)
		}
	}
}
