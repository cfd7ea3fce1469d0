package tally

import (
	"reflect"
	"sync/atomic"
)

// UpstreamCounts counts the events of an upstream's clients, ever. A counter is named here alone: its json tag is its name in the
// status, its metric tag the end of its name in the metrics, and its comment the meaning in the API and on the pages. A counter with a column
// tag has a column on the status page (admin.Column). A counter with a sum tag
// is also added up over all upstreams, by that name, as a counter of the process that a reload's rollback-if may name.
//
// Whoever counts adds to a field by atomic.AddInt64; [UpstreamCounts.Load] reads all.
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

// Load returns the counts until now. They may be counted in meanwhile.
func (c *UpstreamCounts) Load() (now UpstreamCounts) {
	from, to := reflect.ValueOf(c).Elem(), reflect.ValueOf(&now).Elem()
	for i := range from.NumField() {
		to.Field(i).SetInt(atomic.LoadInt64(from.Field(i).Addr().Interface().(*int64)))
	}
	return now
}

// Add adds other counts, sign times. Neither is counted in meanwhile.
func (c *UpstreamCounts) Add(other *UpstreamCounts, sign int64) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem()
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + sign*from.Field(i).Int())
	}
}

// AddSums adds the counters with a sum tag to counters by their names.
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
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	return names
}
