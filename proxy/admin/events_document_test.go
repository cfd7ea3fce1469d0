package admin_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
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

// TestEventNumbersAsDocumented: an endpoint has as many numbers as docs/api.md and docs/openapi.json say, and as the examples
// on the page have.
func TestEventNumbersAsDocumented(t *testing.T) {
	var one struct{ Numbers []int64 }
	read := func(text string) int {
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return len(one.Numbers)
	}
	_, text, _ := strings.Cut(string(admin.NewEvents()(&admin.Status{Upstreams: []admin.Upstream{{Name: "u", Endpoints: []admin.Endpoint{{Name: "e"}}}}}, time.Now())), "data: ")
	width := read(text)
	word := map[int]string{10: "ten", 14: "fourteen"}[width]
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| `numbers` | " + word + " numbers for each endpoint", "`numbers` are taken " + word + " at a time"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("an endpoint has %d numbers, and docs/api.md has no %q", width, want)
		}
	}
	examples := regexp.MustCompile(`"numbers":\[[-0-9,]*\]`).FindAllString(string(page), -1)
	for _, example := range examples {
		if n := read("{" + example + "}"); n%width != 0 {
			t.Errorf("%d numbers in an example, not %d for each endpoint: %s", n, width, example)
		}
	}
	if len(examples) < 2 {
		t.Errorf("%d examples", len(examples))
	}
	if said := schemas(t)["Event"].Properties["numbers"].Description; !strings.Contains(said, word+" for each endpoint") {
		t.Errorf("an endpoint has %d numbers, and openapi.json has %q", width, said)
	}
}

// TestEventsLackAsDocumented: events have each member of the status but those of endpoints that docs/api.md lists.
func TestEventsLackAsDocumented(t *testing.T) {
	all := schemas(t)
	rows, status := all["Event"].Properties["rows"].Properties, all["Status"].Properties
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var lacks []string
	for name := range status["upstreams"].Items.Properties["endpoints"].Items.Properties {
		has := all["Event"].Properties["endpoints"].AdditionalProperties.Properties[name] != nil
		if !has && !slices.Contains([]string{"active", "total", "failures", "connects", "bytes"}, name) { // these are in numbers
			lacks = append(lacks, name)
		}
	}
	_, listed, _ := strings.Cut(string(page), "An event has no ")
	listed, _, _ = strings.Cut(listed, " of an endpoint")
	var names []string
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(listed, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	if slices.Sort(lacks); !slices.Equal(names, lacks) {
		t.Errorf("docs/api.md has %q, and events lack %q", names, lacks)
	}
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
