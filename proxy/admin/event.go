package admin

import (
	"encoding/json"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
)

// An event is the data of one event as it is made, in the form of eventData.
type event struct {
	At        int64                                 `json:"at"`
	Rows      map[string]map[string]json.RawMessage `json:"rows"`
	Gone      map[string][]string                   `json:"gone,omitempty"`
	Endpoints map[string]*endpointRow               `json:"endpoints,omitempty"`
	Left      []int                                 `json:"endpoints_gone,omitempty"`
	Numbers   numbers                               `json:"numbers,omitempty"`
}

// An eventData is the data of an event of GET /v1/events. The event "state" has everything, and the event "changes"
// the rows and the numbers that have changed since the one before.
type eventData struct {
	At   int64     `json:"at"`   // when the status was looked at, in milliseconds since the epoch
	Rows eventRows `json:"rows"` // each in place of the one before of its name
	// Gone are the names of rows that are gone, by the member of Rows.
	Gone map[string][]string `json:"gone,omitempty"`
	// Endpoints are by number: a row in place of the one before. An endpoint keeps its number as long as the event
	// "state" is not sent again.
	Endpoints map[string]endpointRow `json:"endpoints,omitempty"`
	Left      []int                  `json:"endpoints_gone,omitempty"` // numbers of endpoints that are gone
	// Numbers are fourteen for each endpoint whose numbers have changed: its own, then active, total, failures,
	// connects.made, connects.sum_us, bytes from clients spliced and copied, bytes to clients spliced and copied,
	// answers.made, answers.sum_us, and of limited_seconds, in milliseconds, the sum, and the sum of endpoint and endpoint_network.
	Numbers []int64 `json:"numbers,omitempty"`
}

// eventRows are rows by name.
type eventRows struct {
	Process   map[string]processRow  `json:"process,omitempty"`   // one, with the name ""
	Problems  map[string][]Problem   `json:"problems,omitempty"`  // one, with the name "": all problems
	Listeners map[string]Listener    `json:"listeners,omitempty"` // by name
	Upstreams map[string]upstreamRow `json:"upstreams,omitempty"` // by name
}

// A processRow is a Status without the lists that have rows of their own.
type processRow struct {
	*Status
	Problems  ownRows `json:"problems,omitempty"`  // in rows of their own
	Listeners ownRows `json:"listeners,omitempty"` // in rows of their own
	Upstreams ownRows `json:"upstreams,omitempty"` // in rows of their own
}

// An upstreamRow is an Upstream without its endpoints.
type upstreamRow struct {
	*Upstream
	Endpoints ownRows `json:"endpoints,omitempty"` // in rows of their own
}

// ownRows are never there: the member that they hide is in rows of its own.
type ownRows []struct{}

// dropOwnRows removes the members that are never there from the schema of a type with ownRows.
func dropOwnRows(s *jsonschema.Schema, t reflect.Type) {
	for f := range t.Fields() {
		switch name := jsonName(f); {
		case f.Type == reflect.TypeFor[ownRows]():
			delete(s.Properties, name)
		case f.Type.Kind() == reflect.Struct && s.Properties[name] != nil:
			dropOwnRows(s.Properties[name], f.Type)
		case f.Type.Kind() == reflect.Map && s.Properties[name] != nil && f.Type.Elem().Kind() == reflect.Struct:
			dropOwnRows(s.Properties[name].AdditionalProperties, f.Type.Elem())
		}
	}
}
