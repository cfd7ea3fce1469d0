package tally

import (
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
)

// The structs of this file are embedded where their events are counted, and in the status. So a counter is named once: its json tag
// is its name in the status, its metric tag the end of its name in the metrics, its column tag the heading of its column on the
// page (see admin.Column), and its comment the meaning in the API and on the pages. Whoever counts adds to a field by
// atomic.AddInt64, unless the struct belongs to one goroutine; [Load] reads all.

// EndpointCounts counts the events of an endpoint, ever.
type EndpointCounts struct {
	// Connections made to the endpoint for clients.
	Total int64 `json:"total" metric:"sessions_total" column:"ever,wide"`
	// Failed connections, and sessions that ended before the endpoint's first byte.
	Failures int64 `json:"failures" metric:"failures_total" column:"failures,nonzero"`
	// Changes of the health check's verdict.
	Transitions int64 `json:"transitions,omitempty" metric:"health_transitions_total"`
	// Times that outlier_detection ejected it.
	Ejections int64 `json:"ejections,omitempty" metric:"ejections_total"`
}

// HandshakeCounts counts TLS handshakes. Only Active can fall.
type HandshakeCounts struct {
	Active    int64 `json:"active"`    // handshakes under way, or waiting for their turn
	Completed int64 `json:"completed"` // completed handshakes
	Resumed   int64 `json:"resumed"`   // completed handshakes with a session ticket
}

// LoopCounts counts the clients and the turns of an event loop.
type LoopCounts struct {
	// Clients that an event loop serves now.
	Active int64 `json:"active" metric:"connections"`
	// Clients that an event loop has served.
	Accepted int64 `json:"accepted" metric:"accepted_total"`
	// Clients that an event loop has handed over to others.
	HandedOver int64 `json:"handed_over" metric:"handed_over_total"`
	LagP99Us   int64 `json:"lag_p99_us"` // 99 % of the turns took at most this long, in microseconds
	LagMaxUs   int64 `json:"lag_max_us"` // longest turn, in microseconds
	// Long turns, of 1,024 microseconds and more.
	LongTurns int64 `json:"long_turns" metric:"long_turns_total"`

	TimerLateP99Us int64 `json:"timer_late_p99_us"` // 99 % of the timers fired at most this late, in microseconds
	TimerLateMaxUs int64 `json:"timer_late_max_us"` // how late the latest timer fired, in microseconds
}

// MirrorCounts counts the mirrors of a listener's sessions.
type MirrorCounts struct {
	// Mirrors running now.
	Running int64 `json:"running" metric:"connections"`
	// Teed and Copied are the bytes that the mirrors' endpoints have taken. Teed bytes never entered the process,
	// Copied bytes did. Undelivered are the bytes that the endpoints did not take. Answered are the bytes of their
	// answers, which were discarded. The bytes of running mirrors are counted about every second.
	Teed        int64 `json:"teed"`
	Copied      int64 `json:"copied"`
	Undelivered int64 `json:"undelivered"`
	Answered    int64 `json:"answered"`
	// Complete mirrors without a byte of answer from the endpoint.
	Unanswered int64 `json:"unanswered,omitempty" metric:"unanswered_total"`
	// Complete mirrors since the last one with a byte of answer.
	Silent int64 `json:"silent,omitempty" metric:"silent"`
}

// UpstreamCounts counts the events of an upstream's clients, ever. A counter with a sum tag is also added up over all upstreams, by
// that name, as a counter of the process that a reload's rollback-if may name.
type UpstreamCounts struct {
	// Attempts at another endpoint after a failed one.
	Retries int64 `json:"retries" metric:"retries_total" sum:"retries" column:"retries,nonzero,wide"`
	// Clients that had to wait for room.
	Queued int64 `json:"queued,omitempty" metric:"queued_total" sum:"queued"`
	// Clients that had to wait for a usable endpoint.
	Held int64 `json:"held,omitempty" metric:"held_total" sum:"held"`
	// Connections made despite an endpoint's state, or beyond the allowed retries.
	LastResort int64 `json:"last_resort,omitempty" metric:"last_resort_total" sum:"last_resort"`
	// Connections of last resort that served their clients (docs/health.md).
	LastResortAnswered int64 `json:"last_resort_answered,omitempty" metric:"last_resort_answered_total"`
	// Clients that went to the fallback.
	Fallbacks int64 `json:"fallbacks,omitempty" metric:"fallbacks_total" sum:"fallbacks"`
	// Sessions without the balance_on property, hashed by source.
	Unkeyed int64 `json:"unkeyed,omitempty" metric:"unkeyed_total"`
	// Failed connections, and sessions that ended before the endpoint's first byte.
	Failures int64 `json:"failures,omitempty" metric:"failures_total" sum:"failures"`
}

// Load returns the counts until now. Others may count meanwhile.
func Load[T any](c *T) (now T) {
	from, to := reflect.ValueOf(c).Elem(), reflect.ValueOf(&now).Elem()
	for i := range from.NumField() {
		to.Field(i).SetInt(atomic.LoadInt64(from.Field(i).Addr().Interface().(*int64)))
	}
	return now
}

// Add adds other counts, multiplied by sign. Nobody counts meanwhile.
func Add[T any](c, other *T, sign int64) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem()
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + sign*from.Field(i).Int())
	}
}

// Fill sets each counter of a status, which is a pointer to a struct, to the field of its name in the statistics of the library.
func Fill(status any, statistics ...any) {
	to := reflect.ValueOf(status).Elem()
	for i := range to.NumField() {
		if to.Field(i).Kind() != reflect.Int64 {
			continue
		}
		name := to.Type().Field(i).Name
		at := slices.IndexFunc(statistics, func(s any) bool { return reflect.ValueOf(s).Elem().FieldByName(name).IsValid() })
		to.Field(i).SetInt(reflect.ValueOf(statistics[at]).Elem().FieldByName(name).Int())
	}
}

// AddSums adds each counter with a sum tag to the map, under the name in the tag.
func (c *UpstreamCounts) AddSums(to map[string]int64) {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("sum"); name != "" {
			to[name] += v.Field(i).Int()
		}
	}
}

// SumNames returns the names of the counters that are added up.
func SumNames() []string {
	sums := make(map[string]int64)
	new(UpstreamCounts).AddSums(sums)
	return slices.Collect(maps.Keys(sums))
}
