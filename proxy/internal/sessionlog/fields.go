package sessionlog

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
)

// A field is a property of a line.
type field struct {
	name string
	// append appends the value, or nothing if there is no value or it is unknown. The value needs no escapes, unless
	// the field has the function of.
	append func(b []byte, e *Event, c *context) []byte
	number bool // the value is a JSON number, true or false
	// of returns a text that may need escapes. It is nil for other fields.
	of func(e *Event) string
}

// A context holds what a line needs besides its event.
type context struct {
	host, pid string
	wall      func(clock int64) time.Time
	value     [512]byte // of a field, while a template is written

	second     int64 // Unix time of secondText
	secondText []byte
}

const secondLayout = "2006-01-02T15:04:05"

// appendTime appends a time of the loops' clock as date and time in UTC, with microseconds. The text for a second is
// made once and reused.
func (c *context) appendTime(b []byte, clock int64) []byte {
	at := c.wall(clock).UTC()
	if at.Unix() != c.second || len(c.secondText) == 0 {
		c.second = at.Unix()
		c.secondText = at.AppendFormat(c.secondText[:0], secondLayout)
	}
	micros := at.Nanosecond() / 1000
	b = append(append(b, c.secondText...), ".000000Z"...)
	for i := len(b) - 2; micros > 0; i-- {
		b[i] = byte('0' + micros%10)
		micros /= 10
	}
	return b
}

// fields are all fields, in the order of a JSON line.
var fields = []field{
	written("time", func(b []byte, e *Event, c *context) []byte { return c.appendTime(b, e.now) }),
	written("event", func(b []byte, e *Event, _ *context) []byte { return append(b, e.Kind.String()...) }),
	written("id", func(b []byte, e *Event, _ *context) []byte { return hex.AppendEncode(b, e.ID[:]) }),
	text("listener", func(e *Event) string { return e.Listener }),
	text("upstream", func(e *Event) string { return e.Upstream }),
	text("endpoint", func(e *Event) string { return e.Endpoint }),
	text("endpoint_address", func(e *Event) string { return e.EndpointName() }),
	text("client", func(e *Event) string { return e.Client.String() }),
	address("source", func(e *Event) netip.AddrPort { return e.Source }),
	address("destination", func(e *Event) netip.AddrPort { return e.Destination }),
	address("local", func(e *Event) netip.AddrPort { return e.Local }),
	text("sni", func(e *Event) string { return e.ServerName }),
	text("user", func(e *Event) string { return e.User }),
	text("database", func(e *Event) string { return e.Database }),
	text("protocol", func(e *Event) string { return e.Protocol }),
	text("host", func(e *Event) string { return e.Host }),
	text("path", func(e *Event) string { return e.Path }),
	text("alpn", func(e *Event) string { return e.Protocols }),
	text("tags", func(e *Event) string { return e.Tags }),
	{name: "tls", number: true, append: func(b []byte, e *Event, _ *context) []byte { return strconv.AppendBool(b, e.TLS) }},
	text("outcome", func(e *Event) string { return e.Outcome.String() }),
	text("reason", (*Event).reason),
	text("state", (*Event).state),
	text("culprit", func(e *Event) string { return sideName(e.Result.Culprit) }),
	text("ended_first", func(e *Event) string { return sideName(e.Result.First) }),
	text("error", func(e *Event) string { return e.error }),
	text("verdict", func(e *Event) string { return e.Verdict }),
	text("engine", (*Event).engine),
	where(field{name: "adopted", number: true, append: func(b []byte, _ *Event, _ *context) []byte { return append(b, "true"...) }}, func(e *Event) bool { return e.Adopted }),
	count("bytes_to_endpoint", func(e *Event) int64 { return e.Result.AToB.Bytes() }),
	count("bytes_to_client", func(e *Event) int64 { return e.Result.BToA.Bytes() }),
	count("spliced_to_endpoint", func(e *Event) int64 { return e.Result.AToB.Spliced }),
	count("spliced_to_client", func(e *Event) int64 { return e.Result.BToA.Spliced }),
	count("lane_to_endpoint", func(e *Event) int64 { return e.Result.AToB.Carried }),
	count("lane_to_client", func(e *Event) int64 { return e.Result.BToA.Carried }),
	count("lost", func(e *Event) int64 { return e.Result.AToB.Lost + e.Result.BToA.Lost }),
	span("duration_us", func(e *Event) (time.Duration, bool) { return e.Since(e.now), true }),
	span("accept_wait_us", func(e *Event) (time.Duration, bool) { return between(e.Accepted, e.Begun) }),
	span("header_us", func(e *Event) (time.Duration, bool) { return between(e.Begun, e.Header) }),
	span("preread_us", func(e *Event) (time.Duration, bool) { return between(max(e.Begun, e.Header), e.Preread) }),
	begun(span("queue_us", func(e *Event) (time.Duration, bool) { return e.Queued, true })),
	begun(span("pause_us", func(e *Event) (time.Duration, bool) { return e.Paused, true })),
	span("lookup_us", func(e *Event) (time.Duration, bool) {
		over := e.Connecting
		if f := e.lastFailure(); f.Cause == record.CauseResolve && f.Ended >= e.Picked { // there was no connect
			over = f.Ended
		}
		d, known := between(e.Picked, over)
		return d, known && d > 0
	}),
	span("connect_us", func(e *Event) (time.Duration, bool) { return between(e.Connecting, e.Joined) }),
	span("client_first_us", func(e *Event) (time.Duration, bool) { return between(e.Joined, e.ClientFirst) }),
	span("endpoint_first_us", func(e *Event) (time.Duration, bool) { return between(e.Joined, e.EndpointFirst) }),
	span("half_close_us", func(e *Event) (time.Duration, bool) { return between(e.Joined, e.HalfClosed) }),
	begun(count("retries", func(e *Event) int64 { return int64(e.Retries) })),
	begun(count("failed_attempts", func(e *Event) int64 { return int64(e.NumFailures) })),
	text("attempt_cause", func(e *Event) string {
		if e.NumFailures == 0 {
			return ""
		}
		return e.lastFailure().Cause.String()
	}),
	begun(count("queues", func(e *Event) int64 { return int64(e.Waits) })),
	begun(count("queue_before", func(e *Event) int64 { return int64(e.Before) })),
	span("client_rtt_us", func(e *Event) (time.Duration, bool) { return e.ClientLeg.RTT, e.ClientLeg.Known && e.ClientLeg.RTT > 0 }),
	span("client_min_rtt_us", func(e *Event) (time.Duration, bool) {
		return e.ClientLeg.MinRTT, e.ClientLeg.Known && e.ClientLeg.MinRTT > 0
	}),
	span("endpoint_rtt_us", func(e *Event) (time.Duration, bool) {
		return e.EndpointLeg.RTT, e.EndpointLeg.Known && e.EndpointLeg.RTT > 0
	}),
	span("endpoint_min_rtt_us", func(e *Event) (time.Duration, bool) {
		return e.EndpointLeg.MinRTT, e.EndpointLeg.Known && e.EndpointLeg.MinRTT > 0
	}),
	count("active", func(e *Event) int64 { return e.Counts.Process }),
	where(count("active_listener", func(e *Event) int64 { return e.Counts.Listener }), func(e *Event) bool { return !e.Adopted || e.Counts.Listener > 0 }),
	where(count("active_upstream", func(e *Event) int64 { return e.Counts.Upstream }), func(e *Event) bool { return !e.Adopted || e.Counts.Upstream > 0 }),
	where(count("active_endpoint", func(e *Event) int64 { return e.Counts.Endpoint }), func(e *Event) bool { return !e.Adopted || e.Counts.Endpoint > 0 }),
	count("loop", func(e *Event) int64 { return int64(e.Loop) }),
}

// Fields returns the names of all fields.
func Fields() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// written returns a field with a value that needs no escapes.
func written(name string, appendTo func(b []byte, e *Event, c *context) []byte) field {
	return field{name: name, append: appendTo}
}

func text(name string, of func(e *Event) string) field {
	return field{name: name, of: of, append: func(b []byte, e *Event, _ *context) []byte { return append(b, of(e)...) }}
}

func count(name string, of func(e *Event) int64) field {
	return field{name: name, number: true, append: func(b []byte, e *Event, _ *context) []byte { return strconv.AppendInt(b, of(e), 10) }}
}

func span(name string, of func(e *Event) (d time.Duration, known bool)) field {
	return field{name: name, number: true, append: func(b []byte, e *Event, _ *context) []byte {
		d, known := of(e)
		if !known {
			return b
		}
		return strconv.AppendInt(b, d.Microseconds(), 10)
	}}
}

// address returns a field with an address. Its zone is an interface name, which may hold any byte except a slash.
func address(name string, of func(e *Event) netip.AddrPort) field {
	return text(name, func(e *Event) string {
		if at := of(e); at.IsValid() {
			return at.String()
		}
		return ""
	})
}

// where makes f a field that only some events have.
func where(f field, known func(e *Event) bool) field {
	value := f.append
	f.append = func(b []byte, e *Event, c *context) []byte {
		if !known(e) {
			return b
		}
		return value(b, e, c)
	}
	return f
}

// begun makes f a field that an adopted session has only if its history is known.
func begun(f field) field { return where(f, func(e *Event) bool { return !e.Adopted || e.Begun != 0 }) }

// between returns the time between two stages, or false if the session did not reach both.
func between(from, to int64) (time.Duration, bool) {
	if from == 0 || to == 0 {
		return 0, false
	}
	return time.Duration(to - from), true
}

func sideName(s relay.Side) string {
	switch s {
	case relay.SideA:
		return "client"
	case relay.SideB:
		return "endpoint"
	}
	return ""
}

// reason returns in one word why the session ended, or why the client was refused.
func (e *Event) reason() string {
	switch {
	case e.Kind != End:
		return ""
	case e.Outcome == record.Joined:
		return e.Reason()
	case e.Outcome == record.Refused:
		return e.Why
	}
	return ""
}

// engine returns how the bytes were moved. It is lane if the session has left user space, even if some bytes were moved
// before.
func (e *Event) engine() string {
	spliced := e.Result.AToB.Spliced + e.Result.BToA.Spliced
	copied := e.Result.AToB.Copied + e.Result.BToA.Copied
	switch {
	case e.Adopted || e.Result.AToB.Carried+e.Result.BToA.Carried > 0:
		return "lane"
	case spliced > 0 && copied > 0:
		return "both"
	case spliced > 0:
		return "splice"
	case copied > 0:
		return "copy"
	}
	return ""
}
