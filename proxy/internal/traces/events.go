package traces

import (
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// An event is one point in the course of a session.
type event struct {
	at   int64 // time of the record's clock
	name string
	// The other fields are exported unless they are empty or 0. took is how long the step has taken so far.
	took                  time.Duration
	endpoint, cause, side string
	before                int64
}

// maxEvents is how many events a session has at most.
const maxEvents = 12 + 2*record.MaxFailures

// events returns the events, in the order of time.
func (s *span) events() (out []*tracepb.Span_Event) {
	var room [maxEvents]event
	list := s.course(room[:0])
	slices.SortStableFunc(list, func(a, b event) int { return int(min(max(a.at-b.at, -1), 1)) })
	for i := range list {
		v := &list[i]
		e := &tracepb.Span_Event{TimeUnixNano: s.unix(v.at), Name: v.name}
		a := (*attributes)(&e.Attributes)
		if v.took > 0 {
			a.number("penstock.duration", v.took.Seconds())
		}
		a.text("penstock.endpoint", v.endpoint)
		a.text("penstock.side", v.side)
		a.text("error.type", v.cause)
		if v.before > 0 {
			a.integer("penstock.queue.before", v.before)
		}
		out = append(out, e)
	}
	return out
}

// course adds the events of a session to a list. It cuts their times to whole microseconds: a [record.Kept] has
// some of the times only in microseconds, and the events of one turn of a loop must stay in order.
func (s *span) course(list []event) []event {
	r := &s.record
	add := func(v event) {
		if v.at != 0 {
			v.at = r.Accepted + int64(since(r.Accepted, v.at).Truncate(time.Microsecond))
			list = append(list, v)
		}
	}
	add(event{at: r.Begun, name: "begin", took: since(r.Accepted, r.Begun)})
	add(event{at: r.Header, name: "proxy_header", took: since(r.Begun, r.Header)})
	add(event{at: r.Preread, name: "preread", took: since(r.Begun, r.Preread)})
	add(event{at: r.Routed, name: "route"})
	if r.Queued > 0 || r.Waits > 0 {
		add(event{at: s.dequeued(), name: "queue", took: r.Queued, before: int64(r.Before)})
	}
	for i := range min(int(r.NumFailures), len(r.Failures)) {
		f := &r.Failures[i]
		add(event{at: f.Began, name: "connect", endpoint: f.Endpoint})
		add(event{at: f.Ended, name: "connect_failed", endpoint: f.Endpoint, took: since(f.Began, f.Ended), cause: f.Cause.String()})
	}
	s.reached(add)
	add(event{at: r.ClientFirst, name: "first_byte", side: "client", took: since(r.Accepted, r.ClientFirst)})
	add(event{at: r.EndpointFirst, name: "first_byte", side: "endpoint", took: since(max(r.Joined, r.ClientFirst), r.EndpointFirst)})
	add(event{at: r.HalfClosed, name: "half_close", side: sideName(r.Result.First)})
	add(event{at: r.Ended, name: "end", took: since(r.Joined, r.Ended)})
	return list
}

// reached adds the events of the last attempt. If that attempt has failed, its events are in the list already.
func (s *span) reached(add func(event)) {
	r := &s.record
	n := int(r.NumFailures)
	if r.Joined == 0 && n > 0 && (n > len(r.Failures) || r.Failures[n-1].Ended >= r.Connecting) {
		return
	}
	add(event{at: r.Picked, name: "pick", endpoint: r.Endpoint})
	add(event{at: r.Connecting, name: "connect", endpoint: r.Endpoint})
	add(event{at: r.Joined, name: "joined", endpoint: r.Endpoint, took: since(r.Connecting, r.Joined)})
}

// dequeued returns when a client had finished waiting in queues: when its last endpoint was picked, or at the
// client's end.
func (s *span) dequeued() int64 {
	if r := &s.record; r.Picked != 0 {
		return r.Picked
	}
	return s.record.Ended
}

func since(from, to int64) time.Duration {
	if from == 0 || to == 0 {
		return 0
	}
	return time.Duration(max(to-from, 0))
}

func sideName(side relay.Side) string {
	switch side {
	case relay.SideA:
		return "client"
	case relay.SideB:
		return "endpoint"
	}
	return ""
}
