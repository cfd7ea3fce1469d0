package metrics

import (
	"maps"
	"slices"
	"strconv"

	"github.com/penstock/penstock/proxy/admin"
)

// An objectFamily is a family of the series of listeners, upstreams or endpoints.
type objectFamily[T any] struct {
	Family
	write func(e *encoder, of *T)
}

const (
	byDirection = "direction is client_to_endpoint or endpoint_to_client, engine is splice (the bytes were not in the memory of the process), copy, or lane (as packets, of sessions that have left user space)."
	byClose     = "reason is closed, reset, error, idle, half_close, lifetime, first_byte, canceled, operator or other; by is client, endpoint, timeout, penstock, operator or unknown. Reasons that did not occur are left out."
	connects    = "Time from the choice of an endpoint until there is a connection to it, the look-up of its name and a TLS handshake included; connections that failed are not counted."
	limited     = "Time of the sessions that have ended, of 100 ms or more, by the cause that limited it: verdict is client, client_network, endpoint, endpoint_network, proxy, limit, idle or unknown (docs/verdict.md)."
	lasted      = "Time from the beginning of a session to its end; sessions that run are not counted."
)

// listenerFamilies are those with the label listener, beside the ones of the status's fields.
var listenerFamilies = []objectFamily[Listener]{
	{gauge("penstock_listener_state", "1 for the present state: serving, paused (at a limit) or draining.", "listener", "state"), func(e *encoder, l *Listener) {
		for _, state := range []admin.State{admin.Serving, admin.Paused, admin.Draining} {
			e.bool(e.cached("state", string(state)), l.State == state)
		}
	}},
	{counter("penstock_listener_refused_total", "Clients that were refused. reason is the first cause, upstream if no endpoint took the client.", "listener", "reason"), func(e *encoder, l *Listener) { e.list("reason", l.Refused) }},
	{counter("penstock_listener_limited_seconds_total", limited, "listener", "verdict"), func(e *encoder, l *Listener) { e.limited(&l.Seconds) }},
	{counter("penstock_listener_bytes_total", "Bytes of its sessions, of those that run, too; "+byDirection, "listener", "direction", "engine"), func(e *encoder, l *Listener) { e.bytes(&l.Bytes) }},
	{counter("penstock_listener_closes_total", "Sessions that have ended; "+byClose, "listener", "reason", "by"), func(e *encoder, l *Listener) { e.closes(&l.Tally) }},
	{histogram("penstock_listener_connect_seconds", connects+" Those to original destinations (transparent) are not counted.", "listener"), func(e *encoder, l *Listener) { e.histogram(&connectLabels, &l.Tally.Connects) }},
	{histogram("penstock_listener_session_seconds", lasted, "listener"), func(e *encoder, l *Listener) { e.histogram(&sessionLabels, &l.Tally.Sessions) }},
	{gauge("penstock_listener_accept_queue", "Connections that the kernel has established and that wait for accept. Left out where the kernel does not report it.", "listener", "address"), func(e *encoder, l *Listener) {
		l.queues(func(q *admin.Queue) {
			if q.Known {
				e.int(label("address", q.Address), q.Length)
			}
		})
	}},
	{gauge("penstock_listener_accept_queue_limit", "Length of the accept queue from which on it overflows.", "listener", "address"), func(e *encoder, l *Listener) {
		l.queues(func(q *admin.Queue) {
			if q.Known {
				e.int(label("address", q.Address), q.Most)
			}
		})
	}},
	{counter("penstock_listener_accept_queue_overflows_total", "Overflows of the accept queue, after which clients have to try again. Left out where the kernel does not count them.", "listener", "address"), func(e *encoder, l *Listener) {
		l.queues(func(q *admin.Queue) {
			if q.DroppedKnown {
				e.int(label("address", q.Address), q.Dropped)
			}
		})
	}},
	{gauge("penstock_listener_certificate_not_after_seconds", "End of the validity of a certificate that is shown to clients, as a time since the epoch.", "listener", "path"), func(e *encoder, l *Listener) { e.certificates(l.Certificates) }},
	{counter("penstock_listener_tls_handshakes_total", "TLS handshakes with clients that were completed. resumed is true for those with a ticket.", "listener", "resumed"), func(e *encoder, l *Listener) { e.handshakes(l.Handshakes) }},
	{counter("penstock_listener_tls_handshake_failures_total", "TLS handshakes with clients that failed. Causes that did not occur are left out.", "listener", "cause"), func(e *encoder, l *Listener) { e.handshakeFailures(l.Handshakes) }},
	{counter("penstock_listener_keyed_sessions_total", "Sessions that have begun, by the property of their clients that metrics_by names: by is the property, value one of metrics_by.values, other for another one, unknown if the client has none.", "listener", "by", "value"), func(e *encoder, l *Listener) {
		for i := range l.Keyed {
			e.int(l.keyLabels(i), l.Keyed[i].Sessions)
		}
	}},
	{counter("penstock_listener_keyed_bytes_total", "Bytes of these sessions, of those that run, too; "+byDirection, "listener", "by", "value", "direction", "engine"), func(e *encoder, l *Listener) {
		for i := range l.Keyed {
			e.bytesOf(l.keyLabels(i), &l.Keyed[i].Bytes)
		}
	}},
	{counter("penstock_filter_answers_total", "Clients about whom a filter was asked, by answer: allow, deny, route, next, more (first bytes) or overload (docs/filters.md).", "listener", "filter", "answer"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			f := &l.Filters[i]
			for _, answer := range sorted(f.Answers) {
				e.int(e.cached("filter", f.Name)+e.cached("answer", answer), f.Answers[answer])
			}
		}
	}},
	{counter("penstock_filter_failures_total", "Clients about whom a filter has not answered, by reason: trap, timeout, memory, stack, exit, start or answer.", "listener", "filter", "reason"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			f := &l.Filters[i]
			for _, reason := range sorted(f.Failures) {
				e.int(e.cached("filter", f.Name)+e.cached("reason", reason), f.Failures[reason])
			}
		}
	}},
	{gauge("penstock_filter_waiting", "Clients that wait to be asked about.", "listener", "filter"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			e.int(e.cached("filter", l.Filters[i].Name), int64(l.Filters[i].Waiting))
		}
	}},
	{histogram("penstock_filter_duration_seconds", "Duration of a filter's calls about a client.", "listener", "filter"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			e.filterTimes(&l.Filters[i])
		}
	}},
	{counter("penstock_listener_cancels_total", "Endpoints to which these were to be sent: result is sent or failed.", "listener", "result"), func(e *encoder, l *Listener) {
		if c := l.Cancels; c != nil {
			e.int(e.cached("result", "sent"), c.Sent)
			e.int(e.cached("result", "failed"), c.Failed)
		}
	}},
	{counter("penstock_mirror_bytes_total", "Bytes of mirrors, of those that run counted about every second. to is teed (taken by the mirror's endpoint, and never in the memory of the process), copied (likewise, by a copy), undelivered (not taken), or answered (by the endpoint, and thrown away).", "listener", "to"), func(e *encoder, l *Listener) {
		if m := l.Mirrors; m != nil {
			e.int(e.cached("to", "teed"), m.Teed)
			e.int(e.cached("to", "copied"), m.Copied)
			e.int(e.cached("to", "undelivered"), m.Undelivered)
			e.int(e.cached("to", "answered"), m.Answered)
		}
	}},
	{counter("penstock_mirror_compared_total", "Answers of mirrors that were compared with those of clients. result is equal, different, masked (not compared) or unsettled (equal as far as they came). Like the next two it is left out where no answers are compared, and is reset with the report (docs/mirror.md).", "listener", "result"), func(e *encoder, l *Listener) {
		l.comparisons(func(k *admin.Comparison) {
			e.int(e.cached("result", "equal"), k.Equal)
			e.int(e.cached("result", "different"), k.Different)
			e.int(e.cached("result", "masked"), k.Masked)
			e.int(e.cached("result", "unsettled"), k.Unsettled)
		})
	}},
	{counter("penstock_mirror_timed_total", "Answers that both sides have ended. shadow is slower, faster or alike (within a microsecond): the mirror's endpoint, beside the client's.", "listener", "shadow"), func(e *encoder, l *Listener) {
		l.comparisons(func(k *admin.Comparison) {
			e.int(e.cached("shadow", "slower"), k.Lag.Slower)
			e.int(e.cached("shadow", "faster"), k.Lag.Faster)
			e.int(e.cached("shadow", "alike"), k.Lag.Alike)
		})
	}},
	{counter("penstock_mirror_compare_stopped_total", "Sessions of which not all answers were compared. Reasons (docs/mirror.md) that did not occur are left out.", "listener", "reason"), func(e *encoder, l *Listener) {
		l.comparisons(func(k *admin.Comparison) {
			for _, reason := range sorted(k.Stopped) {
				e.int(e.cached("reason", reason), k.Stopped[reason])
			}
		})
	}},
	{counter("penstock_rewrite_reset_total", "Sessions that were reset, because the bytes to be rewritten could not be. Reasons are encrypted, by TLS, SSH or GSSAPI, and unframed, not of the protocol of rewrite.framing; with a module also trap, timeout, memory, stack, exit, start, answer, buffer, overload, and denied, by the module itself (docs/rewrite.md).", "listener", "reason"), func(e *encoder, l *Listener) {
		if r := l.Rewrites; r != nil {
			e.int(e.cached("reason", "encrypted"), r.Encrypted)
			e.int(e.cached("reason", "unframed"), r.Unframed)
			for _, reason := range sorted(r.Reset) {
				e.int(e.cached("reason", reason), r.Reset[reason])
			}
		}
	}},
	{counter("penstock_rewrite_module_calls_total", "Calls of modules, each about a chunk of a session's bytes.", "listener"), func(e *encoder, l *Listener) {
		if r := l.Rewrites; r != nil && len(r.Modules) > 0 {
			e.int("", r.Calls)
		}
	}},
	{counter("penstock_rewrite_module_seconds_total", "Time of these calls.", "listener"), func(e *encoder, l *Listener) {
		if r := l.Rewrites; r != nil && len(r.Modules) > 0 {
			e.name("", "")
			e.buf = strconv.AppendFloat(e.buf, float64(r.TimeUs)/1e6, 'f', -1, 64)
			e.end()
		}
	}},
}

// comparisons calls see with the sum of the listener's comparisons, if it has some.
func (l *Listener) comparisons(see func(k *admin.Comparison)) {
	if l.Mirrors == nil || len(l.Mirrors.Comparisons) == 0 {
		return
	}
	sum := admin.Comparison{Stopped: make(map[string]int64)}
	for i := range l.Mirrors.Comparisons {
		k := &l.Mirrors.Comparisons[i]
		sum.Equal, sum.Different, sum.Masked, sum.Unsettled = sum.Equal+k.Equal, sum.Different+k.Different, sum.Masked+k.Masked, sum.Unsettled+k.Unsettled
		sum.Lag.Slower, sum.Lag.Faster, sum.Lag.Alike = sum.Lag.Slower+k.Lag.Slower, sum.Lag.Faster+k.Lag.Faster, sum.Lag.Alike+k.Lag.Alike
		for reason, n := range k.Stopped {
			sum.Stopped[reason] += n
		}
	}
	see(&sum)
}

// keyLabels returns the labels of an element of Keyed.
func (l *Listener) keyLabels(i int) string {
	return label("by", l.KeyedBy) + label("value", l.Keyed[i].Value)
}

// queues calls see for each queue, once for each address.
func (l *Listener) queues(see func(q *admin.Queue)) {
	for i := range l.Queues {
		at := l.Queues[i].Address
		if !slices.ContainsFunc(l.Queues[:i], func(q admin.Queue) bool { return q.Address == at }) {
			see(&l.Queues[i])
		}
	}
}

// sorted returns the keys of a map in order.
func sorted(m map[string]int64) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}
