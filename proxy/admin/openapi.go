package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A document is an OpenAPI 3.1 document, as far as one is needed here.
type document struct {
	OpenAPI    string                           `json:"openapi"`
	Info       documentInfo                     `json:"info"`
	Servers    []documentServer                 `json:"servers"`
	Security   []map[string][]string            `json:"security"`
	Paths      map[string]map[string]*operation `json:"paths"`
	Components documentComponents               `json:"components"`
}

type documentInfo struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

type documentServer struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

type documentComponents struct {
	Schemas  map[string]*jsonschema.Schema `json:"schemas"`
	Security map[string]map[string]string  `json:"securitySchemes"`
}

// An operation is one row of requests.
type operation struct {
	ID          string                      `json:"operationId"`
	Summary     string                      `json:"summary"`
	Description string                      `json:"description"`
	Parameters  []documentParameter         `json:"parameters,omitempty"`
	Responses   map[string]documentResponse `json:"responses"`
	Security    *[]map[string][]string      `json:"security,omitempty"` // not nil: in place of that of the document
}

type documentParameter struct {
	Name        string             `json:"name"`
	In          string             `json:"in"`
	Description string             `json:"description"`
	Required    bool               `json:"required,omitempty"`
	Schema      *jsonschema.Schema `json:"schema"`
}

type documentResponse struct {
	Description string                   `json:"description"`
	Content     map[string]documentMedia `json:"content,omitempty"`
}

type documentMedia struct {
	Schema *jsonschema.Schema `json:"schema"`
}

// openapi handles GET /v1/openapi.json.
func (s *Server) openapi(context.Context, *arguments) (any, error) { return s.document(), nil }

// makeDocument makes the document of the API of requests, and of the types of their answers.
func makeDocument() *document {
	d := &document{
		OpenAPI: "3.1.0",
		Info: documentInfo{
			Title: "Penstock", Version: "1",
			Description: "The admin API of a running process. A request has its parameters in its query and no body. One with any error in it has no effect. Answers may get more members: a client ignores those that it does not know.",
		},
		Servers:  []documentServer{{"/", "The address of admin.bind. Over a unix socket the user of the client decides what it may do, and no token."}},
		Security: []map[string][]string{{}, {"token": {}}, {"certificate": {}}},
		Paths:    make(map[string]map[string]*operation),
		Components: documentComponents{
			Schemas: map[string]*jsonschema.Schema{"Error": schemaOf(failure{})},
			Security: map[string]map[string]string{
				"token":       {"type": "http", "scheme": "bearer", "description": "The token of admin.read_token or admin.change_token."},
				"certificate": {"type": "mutualTLS", "description": "A certificate of admin.tls.client_ca."},
			},
		},
	}
	for i := range requests {
		q := &requests[i]
		if d.Paths[q.path] == nil {
			d.Paths[q.path] = make(map[string]*operation)
		}
		d.Paths[q.path][strings.ToLower(q.method)] = q.operation(d.Components.Schemas)
	}
	return d
}

// operation describes a request. It adds the schema of its answer to schemas.
func (q *request) operation(schemas map[string]*jsonschema.Schema) *operation {
	about := descriptions[q.path]
	o := &operation{
		ID:          cmp.Or(strings.Trim(strings.NewReplacer("/v1/", "", "/", "_", ".json", "").Replace(q.path), "_"), "root"),
		Summary:     about.summary,
		Description: strings.TrimSpace(fmt.Sprintf("Role: %s. Write %s. %s", q.role, q.shape(), about.note)),
		Parameters:  q.parameters(about),
		Responses:   map[string]documentResponse{"200": {"Done.", about.content(schemas)}, "default": failed("Another error.")},
	}
	if q.role == anybody {
		o.Security = &[]map[string][]string{{}}
	}
	for _, code := range q.codes() {
		o.Responses[strconv.Itoa(code)] = failed(http.StatusText(code) + ".")
	}
	return o
}

// codes are the codes of errors that a request may have.
func (q *request) codes() []int {
	codes := append([]int{http.StatusBadRequest, http.StatusForbidden}, descriptions[q.path].codes...)
	if q.role != anybody { // there is no place for it, or the process starts
		codes = append(codes, http.StatusServiceUnavailable)
	}
	if q.role != anybody {
		codes = append(codes, http.StatusUnauthorized)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// parameters describes the parameters of all forms. One that all forms have is required.
func (q *request) parameters(about *description) (list []documentParameter) {
	if q.method == http.MethodPost {
		list = append(list, documentParameter{
			Name: Header, In: "header", Required: true, Schema: among("", []string{"1"}),
			Description: "No page in a browser can set it.",
		})
	}
	names := make(map[string]int)
	for _, form := range q.forms {
		for _, name := range form {
			names[name]++
		}
	}
	for _, name := range q.optional {
		names[name] = 0
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p := cmp.Or(about.params[name], parameterSchemas[name])
		list = append(list, documentParameter{Name: name, In: "query", Description: p.Description, Required: names[name] == len(q.forms), Schema: p})
	}
	return list
}

func failed(text string) documentResponse {
	return documentResponse{text, map[string]documentMedia{"application/json": {&jsonschema.Schema{Ref: "#/components/schemas/Error"}}}}
}

// content describes an answer, by the name of its type.
func (a *description) content(schemas map[string]*jsonschema.Schema) map[string]documentMedia {
	var ref string
	if t := reflect.TypeOf(a.answer); t != nil {
		name := cmp.Or(a.name, strings.ToUpper(t.Name()[:1])+t.Name()[1:])
		schemas[name] = schemaOf(a.answer)
		ref = "#/components/schemas/" + name
	}
	switch a.media {
	case "":
		return map[string]documentMedia{"application/json": {&jsonschema.Schema{Ref: ref}}}
	case "application/json":
		return map[string]documentMedia{a.media: {&jsonschema.Schema{Type: "object"}}}
	case "text/event-stream":
		return map[string]documentMedia{a.media: {&jsonschema.Schema{Type: "string", Description: "Events with an id, the event state or changes, and data: a line of JSON of " + ref + "."}}}
	}
	return map[string]documentMedia{a.media: {&jsonschema.Schema{Type: "string"}}}
}

// typeSchemas are those of types that have another one than jsonschema gives them. An interface holds a struct:
// without a type its schema would be written as true, which generators of clients do not take.
var typeSchemas = map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[any](): {Type: "object"}}

// schemaOf is the schema of a type. It allows further members, which a later version may have.
func schemaOf(v any) *jsonschema.Schema {
	s, err := jsonschema.ForType(reflect.TypeOf(v), &jsonschema.ForOptions{TypeSchemas: typeSchemas})
	m, errOfMembers := readMembers()
	if err := cmp.Or(err, errOfMembers); err != nil {
		return &jsonschema.Schema{Description: err.Error()} // the test of the document fails
	}
	adapt(s)
	dropOwnRows(s, reflect.TypeOf(v))
	m.describe(s, reflect.TypeOf(v))
	return s
}

// adapt removes additionalProperties: false from a schema and all within it, and has nothing be null: lists are filled, and
// pointers that are nil are left out.
func adapt(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	if a := s.AdditionalProperties; a != nil && a.Not != nil {
		s.AdditionalProperties = nil
	}
	adapt(s.Items)
	adapt(s.AdditionalProperties)
	for _, p := range s.Properties {
		adapt(p)
	}
}
