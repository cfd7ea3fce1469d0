package admin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

// An openapi is the part of the document that tests look at.
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

// documented reads the document in docs/openapi.json.
func documented(t *testing.T) (d openapi) {
	t.Helper()
	text, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from the code: go test ./proxy/admin -run OpenAPI -update (%v)", path, err)
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
	if err := json.Unmarshal(admin.Document(), &d); err != nil {
		t.Fatal(err)
	}
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

// TestTimesAreDocumented: the document has the bounds of each time, and how long an answer may take.
func TestTimesAreDocumented(t *testing.T) {
	d := documented(t)
	of := func(path, method, name string) string {
		for _, p := range d.Paths[path][method].Parameters {
			if p.Name == name {
				return p.Schema.Description
			}
		}
		return ""
	}
	for text, bound := range map[string]string{
		of("/v1/deny/add", "post", "for"):               fmt.Sprintf("from %v to %.0fh", admin.LeastDenial, admin.MaxDenial.Hours()),
		of("/v1/why", "get", "for"):                     "up to 1m, or 0s",
		of("/v1/sessions/end", "post", "grace"):         "up to 24h. Left out: 30s",
		of("/v1/sessions/end", "post", "over"):          "up to 24h",
		d.Paths["/v1/sessions/end"]["post"].Description: "after " + admin.EndWait.String(),
		d.Paths["/v1/deny/add"]["post"].Description:     "after " + admin.EndWait.String(),
	} {
		if !strings.Contains(text, bound) {
			t.Errorf("%q does not have %q", text, bound)
		}
	}
	for _, p := range d.Paths["/v1/sessions"]["get"].Parameters {
		if p.Name == "bytes" && (p.Schema.Pattern == "" || !regexp.MustCompile(p.Schema.Pattern).MatchString("64KiB")) {
			t.Errorf("bytes is %q", p.Schema.Pattern)
		}
	}
	r := newRig(t, "")
	for target, want := range map[string]int{"for=1s": http.StatusOK, "for=8784h": http.StatusOK, "for=8784h1s": http.StatusBadRequest, "for=999ms": http.StatusBadRequest} {
		if code, _ := r.send(wire{http.MethodPost, "/v1/deny/add?source=10.0.0.7&" + target, marked, ""}); code != want {
			t.Errorf("%s gets %d", target, code)
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
