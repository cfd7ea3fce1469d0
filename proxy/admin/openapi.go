package admin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/rollback"
)

// A document is an OpenAPI 3.1 document, with the parts that are needed here.
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

// An operation describes one kind of request.
type operation struct {
	ID          string                      `json:"operationId"`
	Summary     string                      `json:"summary"`
	Description string                      `json:"description"`
	Parameters  []documentParameter         `json:"parameters,omitempty"`
	Responses   map[string]documentResponse `json:"responses"`
	Security    *[]map[string][]string      `json:"security,omitempty"` // replaces the document's security if it is not nil
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

func (s *Server) openapi(context.Context, *arguments) (any, error) { return s.document(), nil }

func makeDocument() *document {
	d := &document{
		OpenAPI: "3.1.0",
		Info: documentInfo{
			Title: "Penstock", Version: "1",
			Description: "The admin API of a running process. A request has its parameters in its query and no body. A request with any error in it has no effect. Answers may get more members: a client ignores members that it does not know.",
		},
		Servers:  []documentServer{{"/", "The address of admin.bind. Over a unix socket the client's user decides what the client may do, not a token."}},
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

// codes are the error codes that a request may have.
func (q *request) codes() []int {
	codes := append([]int{http.StatusBadRequest, http.StatusForbidden}, descriptions[q.path].codes...)
	if q.role != anybody { // no room for the request, or the process is starting
		codes = append(codes, http.StatusServiceUnavailable)
	}
	if q.role != anybody {
		codes = append(codes, http.StatusUnauthorized)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// parameters describes the parameters of all forms. A parameter that is in all forms is required.
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
		p := cmp.Or(about.params[name], parameters[name].schema)
		list = append(list, documentParameter{Name: name, In: "query", Description: p.Description, Required: names[name] == len(q.forms), Schema: p})
	}
	return list
}

func failed(text string) documentResponse {
	return documentResponse{text, map[string]documentMedia{"application/json": {&jsonschema.Schema{Ref: "#/components/schemas/Error"}}}}
}

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

// typeSchemas replace the schemas of jsonschema for some types. An interface holds a struct: without a type its schema
// would be written as true, which generators of clients reject.
var typeSchemas = map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[any](): {Type: "object"}}

// schemaOf returns the schema of a type. It allows more members, which a later version may have.
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

// adapt removes additionalProperties: false from a schema and all schemas in it, and allows no null: nil lists become
// empty, and nil pointers are left out.
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

// A description is what the OpenAPI document says about a request besides its row in requests.
type description struct {
	summary string
	answer  any                           // a value of its type; nil if it is not described
	name    string                        // name of the schema, or "" for the type's name
	media   string                        // media type of an answer that is not JSON, or of the document; answer is then the type of its parts
	codes   []int                         // error codes, besides those of all requests
	note    string                        // more text after the summary
	params  map[string]*jsonschema.Schema // replaces schemas of parameters
}

// descriptions describe all requests, by path.
var descriptions = map[string]*description{
	"/v1/status":          {summary: "The status of the process, its listeners, upstreams and endpoints, with the present problems first.", answer: Status{}},
	"/v1/sessions":        {summary: "The connected clients. Parameters select some of them.", answer: Sessions{}, codes: []int{http.StatusNotFound}},
	"/v1/why":             {summary: "What slows sessions down, measured for a time. An unknown name is an error.", answer: Why{}, codes: []int{http.StatusNotFound}},
	"/v1/generations":     {summary: "The generations of the configuration.", answer: rollback.Status{}, name: "Generations"},
	"/v1/openapi.json":    {summary: "This document.", media: "application/json"},
	"/metrics":            {summary: "The metrics, in OpenMetrics or in Prometheus's text.", media: "text/plain", codes: []int{http.StatusNotFound}},
	"/livez":              {summary: "Whether the process is alive. The request needs no role.", media: "text/plain", codes: []int{http.StatusServiceUnavailable}},
	"/readyz":             {summary: "Whether the process is ready for clients. A process that drains, or is about to drain, is not ready. The request needs no role.", media: "text/plain", codes: []int{http.StatusServiceUnavailable}},
	"/v1/profile":         {summary: "A CPU profile of the process, in the format of pprof.", media: "application/octet-stream"},
	"/v1/process":         {summary: "What limits the process: kernel features, limits, quotas, and fallbacks since its start.", answer: doctor.Report{}, name: "Process", codes: []int{http.StatusNotFound}},
	"/v1/plan":            {summary: "The changes that a reload would make. The request changes nothing.", answer: Plan{}, codes: []int{http.StatusUnprocessableEntity}},
	"/v1/reload":          {summary: "Reads the configuration again and brings it into force.", answer: Reloaded{}, codes: []int{http.StatusConflict, http.StatusUnprocessableEntity}},
	"/v1/confirm":         {summary: "Confirms the pending reload.", answer: Outcome{}, codes: []int{http.StatusConflict}},
	"/v1/rollback":        {summary: "Returns to the previous generation.", answer: RolledBack{}, codes: []int{http.StatusConflict}},
	"/v1/process/drain":   {summary: "The process drains and ends, as after SIGTERM.", answer: empty{}},
	"/v1/listener/drain":  {summary: "A listener accepts no more clients, until it is ready again or a reload changes its bind. Its sessions continue until a time, and are reset then.", answer: ListenerDrained{}, codes: []int{http.StatusNotFound}},
	"/v1/split/set":       {summary: "Sets the percentages of a split.", answer: Changed{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/drain":  {summary: "An endpoint gets no more clients. Its sessions continue for drain_timeout. Then the remaining sessions are reset. Its health checks continue.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/ready":  {summary: "An endpoint gets clients again, after drain, maint or remove.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/weight": {summary: "Sets the weight of an endpoint.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/listener/ready":  {summary: "A drained listener accepts clients again.", answer: Changed{}, codes: []int{http.StatusNotFound}},

	"/v1/endpoint/add":    {summary: "Adds an endpoint, or undoes its removal.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/remove": {summary: "Removes an endpoint. An endpoint from the file or from discovery stays removed until its line there changes.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/maint":  {summary: "An endpoint gets no more clients and no health checks. Its sessions continue.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/sessions/end":    {summary: "Ends sessions: gently, at once, or over a time.", answer: Ended{}, codes: []int{http.StatusNotFound, http.StatusConflict}, note: fmt.Sprintf("The answer comes when the last session has ended, but after %v at the latest. Then done is false, and the other sessions end before the time in until.", EndWait)},
	"/v1/sessions/keep":   {summary: "Stops the requests in progress that end sessions.", answer: Stopped{}},
	"/v1/sources":         {summary: "The sources with the most connections, arrivals, refusals or bytes.", answer: Sources{}},
	"/v1/mirrors":         {summary: "The mirrors of listeners, with reports where answers are compared.", answer: MirrorReports{}, codes: []int{http.StatusNotFound}},
	"/v1/mirrors/reset":   {summary: "The mirrors as /v1/mirrors answers them. Sets the counts of the reports to 0: the mirrors that ended, their bytes, and the comparisons.", answer: MirrorReports{}, codes: []int{http.StatusNotFound}},
	"/v1/lane/on":         {summary: "Sessions of listeners with lane leave user space again.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}},
	"/v1/lane/off":        {summary: "No further session leaves user space, until on or a restart. Sessions in the lane stay there.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}},
	"/v1/lane/return":     {summary: "Sessions that have left user space come back, and continue there. A session that cannot come back, or belongs to an earlier process, is reset on both sides.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}, note: "The answer comes when all sessions have come back or are reset."},
	"/v1/lane/flush":      {summary: "Sessions that have left user space are reset on both sides.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}},
	"/v1/denied":          {summary: "The sources that are denied by hand.", answer: Denied{}},
	"/v1/deny/add": {summary: "Denies a source for a time, at a listener or at all listeners. end=true also ends its sessions.", answer: NewDenial{}, codes: []int{http.StatusNotFound}, note: fmt.Sprintf("With end the answer comes when the sessions have ended, but after %v at the latest.", EndWait), params: map[string]*jsonschema.Schema{
		"for": pattern(fmt.Sprintf("How long the source is denied: from %v to %.0fh, which is 366 days.", LeastDenial, MaxDenial.Hours()), timePattern),
	}},
	"/v1/deny/remove": {summary: "Ends the denial of a source.", answer: empty{}, codes: []int{http.StatusNotFound}},
	"/v1/leave":       {summary: "A draining process leaves its address to a successor.", answer: empty{}, codes: []int{http.StatusConflict}},

	"/v1/events": {summary: "The status as a stream of server-sent events: first all of it, then once a second the rows that have changed.", answer: eventData{}, name: "Event", media: "text/event-stream"},
	"/":          {summary: "The web page, for a browser.", media: "text/html", codes: []int{http.StatusNotFound}},
	pageFiles:    {summary: "The files of the page, at the paths that it refers to.", media: "text/plain", codes: []int{http.StatusNotFound}},
}

// timePattern matches times such as 2m or 1h30m.
const timePattern = `^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns))+$`

func nonEmpty(text string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1), Description: text}
}

func pattern(text, p string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: p, Description: text}
}

func truth(text string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "boolean", Description: text}
}

func among(text string, words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: text}
	for _, word := range words {
		s.Enum = append(s.Enum, word)
	}
	return s
}

// whole is the schema of a whole number. most is 0 if only the type limits it.
func whole(text string, least, most float64) *jsonschema.Schema {
	if most == 0 {
		most = 1<<31 - 1
	}
	return &jsonschema.Schema{Type: "integer", Minimum: &least, Maximum: &most, Description: text}
}

// membersFile has the comments on the types of answers and on their fields. TestMembersAreDescribed makes it from the
// source.
//
//go:embed members.json
var membersFile []byte

// members has the comments by type, such as admin.Status, or by field, such as admin.Status.State, and the words of
// string types.
type members struct {
	Docs  map[string]string   `json:"docs"`
	Words map[string][]string `json:"words"`
}

func readMembers() (m members, err error) {
	return m, json.Unmarshal(membersFile, &m)
}

// Comments returns a function that returns the meaning of a field of an answer, for readers of JSON.
func Comments() func(of reflect.Type, field string) string {
	m, _ := readMembers() // the test of the document reads it too
	return func(of reflect.Type, field string) string { return m.Docs[typeKey(of)+"."+field] }
}

// fieldWords are the words that a field may have, if its type has more words, or is string.
var fieldWords = map[string][]string{
	"admin.Status.State":          {string(Serving), string(Draining)},
	"admin.Listener.State":        {string(Serving), string(Paused), string(Draining)},
	"admin.Endpoint.State":        {string(Up), string(Down), string(Standby), string(Ejected), string(Draining), string(Maint), string(Removed)},
	"admin.Endpoint.Breaker":      {"open", "half-open"},
	"admin.Upstream.Breaker":      {"closed", "open", "half-open"},
	"admin.Session.State":         sessionStates,
	"admin.Session.Verdict":       verdicts,
	"admin.SessionWhy.Verdict":    verdicts,
	"admin.Why.Verdict":           verdicts,
	"admin.endpointFacts.State":   {string(Up), string(Down), string(Standby), string(Ejected), string(Draining), string(Maint), string(Removed)},
	"admin.endpointFacts.Breaker": {"open", "half-open"},
	"admin.endpointFacts.Level":   {"ok", "warning", "off", "down"},
	"admin.Discovery.Kind":        {"dns", "file"},
}

// verdicts are the sessionVerdicts that an answer may have.
var verdicts = slices.DeleteFunc(slices.Clone(sessionVerdicts), func(v string) bool { return v == AnyVerdict })

// describe adds the comments and words of a type to its schema.
func (m *members) describe(s *jsonschema.Schema, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		m.describe(s, t.Elem())
		return
	case reflect.Slice, reflect.Array:
		m.describe(s.Items, t.Elem())
		return
	case reflect.Map:
		m.describe(s.AdditionalProperties, t.Elem())
		return
	}
	key := typeKey(t)
	if s.Description == "" {
		s.Description = m.Docs[key]
	}
	if words := m.Words[key]; s.Enum == nil && words != nil {
		s.Enum = among("", words).Enum
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		s.Format = "date-time"
	case t.Kind() == reflect.Struct:
		m.describeFields(s, t)
	}
}

func (m *members) describeFields(s *jsonschema.Schema, t reflect.Type) {
	for _, f := range reflect.VisibleFields(t) {
		p := s.Properties[jsonName(f)]
		if f.Anonymous || !f.IsExported() || p == nil {
			continue
		}
		of := t
		for _, i := range f.Index[:len(f.Index)-1] {
			if of = of.Field(i).Type; of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
		}
		key := typeKey(of) + "." + f.Name
		p.Description = m.Docs[key]
		if words := fieldWords[key]; words != nil {
			p.Enum = among("", words).Enum
		}
		m.describe(p, f.Type)
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// typeKey is the key of a type in members.
func typeKey(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }
