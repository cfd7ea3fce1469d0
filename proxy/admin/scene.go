package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/proxy/display"
)

// Kinds of rows of a scene, beside endpoints. There is one row of the process, and one of its problems.
const (
	processRows  = "process"
	problemRows  = "problems"
	listenerRows = "listeners"
	upstreamRows = "upstreams"
)

// A scene is a status as rows of JSON, of which a stream sends those that have changed.
type scene struct {
	id       int64
	at       time.Time
	rows     map[string]map[string]json.RawMessage // by kind and name
	order    map[string]*placed                    // endpoints by key
	last     int                                   // number of an endpoint that was given out
	turn     int                                   // place of the endpoint whose numbers are looked at next
	complete []byte                                // event with the whole state; nil: not made yet
}

// A placed is an endpoint with its number in a scene.
type placed struct {
	number int
	id     int64 // of the last status with it
	endpointRow
	endpointNumbers
}

func newScene() *scene {
	return &scene{rows: make(map[string]map[string]json.RawMessage), order: make(map[string]*placed)}
}

// update takes a newer status and returns the event with the changes.
func (s *scene) update(st *Status, at time.Time) []byte {
	s.id, s.at, s.complete = s.id+1, at, nil
	e := &event{At: at.UnixMilli(), Rows: make(map[string]map[string]json.RawMessage), Gone: make(map[string][]string), Endpoints: make(map[string]*endpointRow)}
	s.updateEndpoints(st, e)
	rows := rowsOf(st)
	for kind, now := range rows {
		before := s.rows[kind]
		for name, row := range now {
			if !bytes.Equal(before[name], row) {
				if e.Rows[kind] == nil {
					e.Rows[kind] = make(map[string]json.RawMessage)
				}
				e.Rows[kind][name] = row
			}
		}
		for name := range before {
			if now[name] == nil {
				e.Gone[kind] = append(e.Gone[kind], name)
			}
		}
	}
	s.rows = rows
	return s.encode("changes", e)
}

// whole returns the event with the whole state.
func (s *scene) whole() []byte {
	if s.complete == nil {
		e := &event{At: s.at.UnixMilli(), Rows: s.rows, Endpoints: make(map[string]*endpointRow, len(s.order))}
		for _, key := range slices.Sorted(maps.Keys(s.order)) {
			p := s.order[key]
			e.Endpoints[strconv.Itoa(p.number)] = &p.endpointRow
			e.Numbers = e.Numbers.add(p)
		}
		s.complete = s.encode("state", e)
	}
	return s.complete
}

// encode writes an event of a stream. JSON without indentation has no line end.
func (s *scene) encode(name string, e *event) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\nid: %d\ndata: ", name, s.id)
	j := json.NewEncoder(display.NewWriter(&out))
	j.SetEscapeHTML(false)
	if err := j.Encode(e); err != nil { // it has no value that JSON lacks
		return nil
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// rowsOf returns all rows of a status but those of endpoints.
func rowsOf(st *Status) map[string]map[string]json.RawMessage {
	process := *st
	process.Problems, process.Listeners, process.Upstreams = nil, nil, nil
	rows := map[string]map[string]json.RawMessage{
		processRows:  {"": row(processRow{Status: &process})},
		problemRows:  {"": row(st.Problems)},
		listenerRows: make(map[string]json.RawMessage, len(st.Listeners)),
		upstreamRows: make(map[string]json.RawMessage, len(st.Upstreams)),
	}
	for i := range st.Listeners {
		rows[listenerRows][st.Listeners[i].Name] = row(&st.Listeners[i])
	}
	for i := range st.Upstreams {
		u := &st.Upstreams[i]
		rows[upstreamRows][u.Name] = row(upstreamRow{Upstream: u})
	}
	return rows
}

func row(v any) json.RawMessage {
	var out bytes.Buffer
	j := json.NewEncoder(&out)
	j.SetEscapeHTML(false)
	_ = j.Encode(filled(v)) // it has no value that JSON lacks
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
