package admin

import (
	_ "embed"
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// membersFile is the comments on the types of answers and on their fields, made from the source by
// TestMembersAreDescribed.
//
//go:embed members.json
var membersFile []byte

// members are the comments by type, such as admin.Status, or by field, such as admin.Status.State, and the words
// that a type of text has.
type members struct {
	Docs  map[string]string   `json:"docs"`
	Words map[string][]string `json:"words"`
}

func readMembers() (m members, err error) {
	return m, json.Unmarshal(membersFile, &m)
}

// Comments returns a function that returns the meaning of a field of an answer, for readers of JSON.
func Comments() func(of reflect.Type, field string) string {
	m, _ := readMembers() // the test of the document reads it as well
	return func(of reflect.Type, field string) string { return m.Docs[typeKey(of)+"."+field] }
}

// fieldWords are the words of fields: of those whose type has others, too, or is string.
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

// describe adds the comments and the words of a type to its schema.
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

// jsonName is the name of a field in JSON.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// typeKey is the key of a type in members.
func typeKey(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }
