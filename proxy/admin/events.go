package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/admission"
)

// An event is the data of one event while it is made, in the form of eventData.
type event struct {
	At        int64                                 `json:"at"`
	Rows      map[string]map[string]json.RawMessage `json:"rows"`
	Gone      map[string][]string                   `json:"gone,omitempty"`
	Endpoints map[string]*endpointRow               `json:"endpoints,omitempty"`
	Left      []int                                 `json:"endpoints_gone,omitempty"`
	Names     []string                              `json:"number_names,omitempty"`
	Numbers   numbers                               `json:"numbers,omitempty"`
}

// An eventData is the data of an event of GET /v1/events. The event "state" has everything. The event "changes" has the
// rows and numbers that have changed since the event before.
type eventData struct {
	At   int64     `json:"at"`   // time of the status, in milliseconds since the epoch
	Rows eventRows `json:"rows"` // each row replaces the earlier row with its name
	// Gone has the names of removed rows, by the member of Rows.
	Gone map[string][]string `json:"gone,omitempty"`
	// Endpoints are by number. Each row replaces the earlier row with its number. An endpoint keeps its number until
	// the next event "state".
	Endpoints map[string]endpointRow `json:"endpoints,omitempty"`
	Left      []int                  `json:"endpoints_gone,omitempty"` // numbers of removed endpoints
	// Names are the names of the numbers of an endpoint, such as connects.made. Only in the event "state". limited_ms is the
	// sum of limited_seconds, and waited_ms the sum of its endpoint and endpoint_network, both in milliseconds.
	Names []string `json:"number_names,omitempty"`
	// Numbers has, for each endpoint that has changed, its own number, and then a number for each name in number_names.
	Numbers []int64 `json:"numbers,omitempty"`
}

// eventRows are rows by name.
type eventRows struct {
	Process   map[string]processRow  `json:"process,omitempty"`   // one row, with the name ""
	Problems  map[string][]Problem   `json:"problems,omitempty"`  // one row, with the name "" and all problems
	Listeners map[string]Listener    `json:"listeners,omitempty"` // one row for each listener
	Upstreams map[string]upstreamRow `json:"upstreams,omitempty"` // one row for each upstream
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

// ownRows hides a member of an embedded type. The member has rows of its own.
type ownRows []struct{}

// dropOwnRows removes the hidden members from the schema of a type with ownRows.
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

// chunk is how many bytes of an event are written at once. A client has writeTime to read each chunk.
const chunk = 64 << 10

// events handles GET /v1/events. It sends the event "state" with everything, and then every second the event "changes"
// with the changed rows. docs/api.md describes them.
func (s *Server) events(context.Context, *arguments) (any, error) {
	return http.HandlerFunc(s.stream), nil
}

// stream writes events until the client disconnects, does not read, or may no longer read, or until the server leaves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	from, err := s.feed.join()
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer s.feed.leave(from)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	out := eventWriter{http.NewResponseController(w), w, admission.Of(r)}
	for {
		select {
		case event := <-from.events:
			if from := callerOf(r); from.permit(reads) != nil || out.write(event) != nil {
				return
			}
		case <-from.lost:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// An eventWriter writes events. The server waits for the client only while an event is written.
type eventWriter struct {
	*http.ResponseController
	http.ResponseWriter
	conn *admission.Conn // nil in tests
}

func (w eventWriter) write(event []byte) error {
	for len(event) > 0 {
		n := min(chunk, len(event))
		if err := w.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
			return err
		}
		if _, err := w.ResponseWriter.Write(event[:n]); err != nil {
			return err
		}
		if err := w.ResponseController.Flush(); err != nil {
			return err
		}
		w.conn.Resume()
		event = event[n:]
	}
	return nil
}

// A feed looks at the status every feedTime, or less often if a look takes long: it spends at most a tenth of the time
// on looks, but looks at least once in slowestFeed.
const (
	feedTime    = time.Second
	slowestFeed = 5 * time.Second
)

// streamRoom is how many events may wait for a stream's client. A stream that falls further behind is closed.
const streamRoom = 4

// errLeft is the error of a stream that begins after the server has left.
var errLeft = fmt.Errorf("the process has left its address: %w", admission.ErrBusy)

// A feed looks at the status while there are streams, and sends them the changes.
type feed struct {
	look func() Status

	mu      sync.Mutex
	left    bool // for good
	streams map[*stream]bool
	scene   *scene        // nil without streams
	stop    chan struct{} // closed when the last stream ends; nil without streams
	looking sync.WaitGroup
}

// A stream receives the events of a feed.
type stream struct {
	events chan []byte   // never closed
	lost   chan struct{} // closed when no more events come
	begun  bool          // it has got the whole state
}

func newFeed(look func() Status) *feed {
	return &feed{look: look, streams: make(map[*stream]bool)}
}

func (f *feed) join() (*stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left {
		return nil, errLeft
	}
	s := &stream{events: make(chan []byte, streamRoom), lost: make(chan struct{})}
	f.streams[s] = true
	if f.stop == nil {
		f.stop, f.scene = make(chan struct{}), newScene()
		stop := f.stop
		f.looking.Go(func() { f.run(stop) })
	} else if f.scene.id > 0 {
		s.begun = true
		s.events <- f.scene.whole()
	}
	return s, nil
}

func (f *feed) leave(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(s)
}

// remove removes a stream. The caller holds mu.
func (f *feed) remove(s *stream) {
	if !f.streams[s] {
		return
	}
	delete(f.streams, s)
	close(s.lost)
	if len(f.streams) == 0 {
		close(f.stop)
		f.stop, f.scene = nil, nil
	}
}

// end ends all streams for good. It does not wait for a look in progress.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = true
	for s := range f.streams {
		f.remove(s)
	}
}

// run looks at the status until stop is closed.
func (f *feed) run(stop chan struct{}) {
	for {
		began := time.Now()
		st := f.look()
		f.spread(&st, began, stop)
		rest := min(max(10*time.Since(began), feedTime), slowestFeed) - time.Since(began)
		select {
		case <-time.After(rest):
		case <-stop:
			return
		}
	}
}

// spread sends the changes to all streams, and the whole state to new ones.
func (f *feed) spread(st *Status, at time.Time, stop chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop != stop {
		return
	}
	changes := f.scene.update(st, at)
	for s := range f.streams {
		event := changes
		if !s.begun {
			s.begun, event = true, f.scene.whole()
		}
		select {
		case s.events <- event:
		default:
			f.remove(s)
		}
	}
}

// Kinds of rows of a scene, besides endpoints. There is one row for the process, and one for its problems.
const (
	processRows  = "process"
	problemRows  = "problems"
	listenerRows = "listeners"
	upstreamRows = "upstreams"
)

// A scene is a status as rows of JSON. Streams get the rows that have changed.
type scene struct {
	id       int64
	at       time.Time
	rows     map[string]map[string]json.RawMessage // by kind and name
	order    map[string]*placed                    // endpoints by key
	last     int                                   // number that was given out last
	turn     int                                   // index of the endpoint to look at next
	complete []byte                                // event with the whole state, or nil if it is not made yet
}

// A placed is an endpoint with its number in a scene.
type placed struct {
	number int
	id     int64 // id of the last status with the endpoint
	endpointRow
	values []int64 // by NumberNames
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
		e := &event{At: s.at.UnixMilli(), Rows: s.rows, Endpoints: make(map[string]*endpointRow, len(s.order)), Names: NumberNames}
		for _, key := range slices.Sorted(maps.Keys(s.order)) {
			p := s.order[key]
			e.Endpoints[strconv.Itoa(p.number)] = &p.endpointRow
			e.Numbers = e.Numbers.add(p)
		}
		s.complete = s.encode("state", e)
	}
	return s.complete
}

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

// rowsOf returns all rows of a status, except for endpoints.
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

// maxNumbers limits the endpoints with numbers in an event. If more have changed, they take turns. Changed states and
// texts are always in the next event.
const maxNumbers = 1000

// An endpointRow is the part of an [Endpoint] that seldom changes.
type endpointRow struct {
	endpointFacts
	// ByHand has the changes by hand to the endpoint, such as weight 5, or added.
	ByHand []string `json:"by_hand,omitempty"`
}

// endpointFacts are the comparable facts of an endpointRow.
type endpointFacts struct {
	Upstream string `json:"upstream"`         // upstream of the endpoint
	Name     string `json:"name"`             // name in the file, or the address
	Address  string `json:"address"`          // host:port, or unix:/path
	Zone     string `json:"zone,omitempty"`   // zone of the endpoint; left out if unknown
	Weight   int    `json:"weight"`           // share of the clients, relative to the other weights; 0: no clients
	Backup   bool   `json:"backup,omitempty"` // gets clients only if no other endpoint can
	Max      int64  `json:"most,omitempty"`   // limit of sessions; left out without a limit
	State    State  `json:"state"`            // up, down, standby, ejected, draining, maint or removed
	// Until is when an ejection or the breaker's open state ends, or when draining sessions are reset. Left out
	// otherwise.
	Until   time.Time `json:"until,omitzero"`
	Breaker string    `json:"breaker,omitempty"` // open or half-open; left out if the breaker is closed, or there is none
	Opened  int64     `json:"opened,omitempty"`  // how often the breaker has opened
	// BreakerWhy is why the breaker is not closed, and BreakerUntil when its open state ends.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`
	// Level is ok, warning (it may get clients, but something is wrong), off (it is taken out by hand or by a reload,
	// or it is a standby) or down.
	Level string `json:"level"`
	// Why says in words why the level is not ok.
	Why string `json:"why,omitempty"`
}

var endpointColumns = Columns[Endpoint]()

// NumberNames are the names of the numbers of an [Endpoint] that change with its clients, as events have them.
var NumberNames = func() (names []string) {
	for i := range endpointColumns {
		names = append(names, strings.Join(endpointColumns[i].Path, "."))
	}
	return append(names, "connects.made", "connects.sum_us", "bytes.client_to_endpoint.spliced", "bytes.client_to_endpoint.copied", "bytes.client_to_endpoint.lane",
		"bytes.endpoint_to_client.spliced", "bytes.endpoint_to_client.copied", "bytes.endpoint_to_client.lane", "answers.made", "answers.sum_us", "limited_ms", "waited_ms")
}()

// equal reports whether nothing has changed.
func (r *endpointRow) equal(o *endpointRow) bool {
	return r.endpointFacts == o.endpointFacts && slices.Equal(r.ByHand, o.ByHand)
}

func rowOf(upstream string, e *Endpoint) endpointRow {
	r := endpointRow{ByHand: e.ByHand, endpointFacts: endpointFacts{
		Upstream: upstream, Name: e.Name, Address: e.Address, Zone: e.Zone, Weight: e.Weight, Backup: e.Backup, Max: e.Max,
		State: e.State, Until: e.Until, Breaker: e.Breaker, Opened: e.Opened, BreakerWhy: e.BreakerWhy, BreakerUntil: e.BreakerUntil,
		Level: "ok",
	}}
	if e.State == Down || e.State == Standby {
		r.Until = time.Time{} // its sessions end then, and not this state
	}
	switch {
	case e.State == Down, e.State == Ejected:
		r.Level, r.Why = "down", e.cause(e.Why)
	case e.State == Up && e.Breaker == "open":
		r.Level, r.Why, r.Until = "down", e.cause(e.BreakerWhy), e.BreakerUntil
	case e.State != Up, e.Weight == 0:
		r.Level, r.Why = "off", e.Why
	default:
		r.Why = e.Reason()
		r.watched(e)
	}
	return r
}

// cause returns the reason, or else the last failure.
func (e *Endpoint) cause(why string) string {
	if why == "" && e.LastFailure != nil {
		return e.LastFailure.Cause
	}
	return why
}

// watched sets the level of an endpoint that may get clients.
func (r *endpointRow) watched(e *Endpoint) {
	switch {
	case r.Why != "":
	case e.Failing != nil:
		r.Why = "its sessions end without an answer"
	case e.Silence != nil:
		r.Why = "answers no client: " + e.Silence.Proof
	case e.Connecting != nil:
		r.Why = "clients wait for a connection to it"
	default:
		return
	}
	r.Level = "warning"
}

// AppendNumbers appends the numbers of an endpoint to n, in the order of [NumberNames].
func AppendNumbers(n []int64, e *Endpoint) []int64 {
	for i := range endpointColumns {
		n = append(n, endpointColumns[i].Of(e))
	}
	in, out, answers := &e.Bytes.ClientToEndpoint, &e.Bytes.EndpointToClient, cmp.Or(e.Answers, &Answers{})
	lost, all := e.Waited()
	return append(n, e.Connects.Made, e.Connects.SumUs, in.Spliced, in.Copied, in.Lane, out.Spliced, out.Copied, out.Lane,
		answers.Made, answers.SumUs, all.Milliseconds(), lost.Milliseconds())
}

// numbers is a JSON array of whole numbers, without its brackets.
type numbers []byte

func (n numbers) add(p *placed) numbers {
	if len(n) > 0 {
		n = append(n, ',')
	}
	n = strconv.AppendInt(n, int64(p.number), 10)
	for _, v := range p.values {
		n = append(n, ',')
		n = strconv.AppendInt(n, v, 10)
	}
	return n
}

func (n numbers) MarshalJSON() ([]byte, error) {
	return append(append([]byte("["), n...), ']'), nil
}

func (s *scene) updateEndpoints(st *Status, e *event) {
	var list []*placed
	var now []*Endpoint
	for i := range st.Upstreams {
		u := &st.Upstreams[i]
		for j := range u.Endpoints {
			p, added := s.place(u.Name, &u.Endpoints[j])
			if row := rowOf(u.Name, &u.Endpoints[j]); added || !row.equal(&p.endpointRow) {
				p.endpointRow = row
				e.Endpoints[strconv.Itoa(p.number)] = &p.endpointRow
			}
			if added {
				p.values = AppendNumbers(nil, &u.Endpoints[j])
				e.Numbers = e.Numbers.add(p)
			}
			list, now = append(list, p), append(now, &u.Endpoints[j])
		}
	}
	s.updateNumbers(list, now, e)
	for key, p := range s.order {
		if p.id != s.id {
			e.Left = append(e.Left, p.number)
			delete(s.order, key)
		}
	}
}

func (s *scene) updateNumbers(list []*placed, now []*Endpoint, e *event) {
	if s.turn >= len(list) {
		s.turn = 0
	}
	first, changed := s.turn, 0
	n := make([]int64, 0, len(NumberNames))
	for k := range list {
		i := (first + k) % len(list)
		if n = AppendNumbers(n[:0], now[i]); slices.Equal(n, list[i].values) {
			continue
		}
		copy(list[i].values, n)
		e.Numbers = e.Numbers.add(list[i])
		if changed++; changed == maxNumbers {
			s.turn = (i + 1) % len(list)
			return
		}
	}
}

// place returns an endpoint of the scene, and whether it is new. An endpoint that drains after its removal may have the
// name and the address of another one, so endpoints with equal keys are counted.
func (s *scene) place(upstream string, e *Endpoint) (p *placed, added bool) {
	for n := 0; ; n++ {
		key := upstream + "\x00" + e.Name + "\x00" + e.Address + "\x00" + strconv.Itoa(n)
		switch p = s.order[key]; {
		case p == nil:
			s.last++
			p = &placed{number: s.last, id: s.id}
			s.order[key] = p
			return p, true
		case p.id != s.id:
			p.id = s.id
			return p, false
		}
	}
}
