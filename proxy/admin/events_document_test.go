package admin_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/admin"
)

// schemas are those of docs/openapi.json.
func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	var d struct {
		Components struct {
			Schemas map[string]*jsonschema.Schema
		}
	}
	text, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			t.Fatal(err)
		}
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
