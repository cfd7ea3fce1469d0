package metrics

import (
	"maps"
	"slices"

	"github.com/penstock/penstock/proxy/admin"
)

// An objectFamily is a family of the series of listeners, upstreams or endpoints.
type objectFamily[T any] struct {
	Family
	write func(e *encoder, of *T)
}

const (
	byDirection = "direction is client_to_endpoint or endpoint_to_client, engine is splice (the bytes were not in the memory of the process) or copy."
	byClose     = "reason is closed, reset, error, idle, half_close, lifetime, first_byte, canceled or other; by is client, endpoint, timeout, penstock or unknown. Reasons that did not occur are left out."
	connects    = "Time from the choice of an endpoint until there is a connection to it, the look-up of its name and a TLS handshake included; connections that failed are not counted."
	limited     = "Time of the sessions that have ended, of 100 ms or more, by the cause that limited it: verdict is client, client_network, endpoint, endpoint_network, proxy, limit, idle or unknown (docs/verdict.md)."
	lasted      = "Time from the beginning of a session to its end; sessions that run are not counted."
)

// listenerFamilies are those with the label listener.
var listenerFamilies = []objectFamily[Listener]{
	{counter("penstock_listener_accepted_total", "Clients that were accepted.", "listener"), func(e *encoder, l *Listener) { e.int("", l.Accepted) }},
	{gauge("penstock_listener_connections", "Clients that are served now.", "listener"), func(e *encoder, l *Listener) { e.int("", l.Active) }},
	{gauge("penstock_listener_connections_limit", "Limit of concurrent clients. Left out: there is none.", "listener"), func(e *encoder, l *Listener) {
		if l.Most > 0 {
			e.int("", l.Most)
		}
	}},
	{gauge("penstock_listener_state", "1 for the present state: serving, paused (at a limit) or draining.", "listener", "state"), func(e *encoder, l *Listener) {
		for _, state := range []admin.State{admin.Serving, admin.Paused, admin.Draining} {
			e.bool(e.cached("state", string(state)), l.State == state)
		}
	}},
	{counter("penstock_listener_refused_total", "Clients that were refused. reason is the first cause, upstream if no endpoint took the client.", "listener", "reason"), func(e *encoder, l *Listener) { e.list("reason", l.Refused) }},
	{counter("penstock_listener_pauses_total", "Pauses of accepting at a limit: connections, per_second, or process per_second. Limits that were not reached are left out.", "listener", "limit"), func(e *encoder, l *Listener) { e.list("limit", l.Pauses) }},
	{counter("penstock_listener_limited_seconds_total", limited, "listener", "verdict"), func(e *encoder, l *Listener) { e.limited(&l.Limited) }},
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
