package metrics

import "github.com/penstock/penstock/proxy/admin"

// breakerStates are the states of a circuit breaker.
var breakerStates = []string{"closed", "open", "half-open"}

// endpointStates are the states of an endpoint.
var endpointStates = []admin.State{admin.Up, admin.Down, admin.Standby, admin.Ejected, admin.Draining, admin.Maint}

// upstreamFamilies are those with the label upstream.
var upstreamFamilies = []objectFamily[Upstream]{
	{counter("penstock_upstream_refused_total", "Clients that got no endpoint, by reason.", "upstream", "reason"), func(e *encoder, u *Upstream) { e.list("reason", u.Refused) }},
	{gauge("penstock_upstream_endpoints", "Endpoints by state. One whose circuit breaker is open counts by its other state.", "upstream", "state"), func(e *encoder, u *Upstream) {
		for _, state := range endpointStates {
			e.int(e.cached("state", string(state)), u.States[state])
		}
	}},
	{gauge("penstock_upstream_breaker_state", "1 for the present state of its circuit breaker: closed, open or half-open. Left out: there is none.", "upstream", "state"), func(e *encoder, u *Upstream) {
		if u.Breaker == "" {
			return
		}
		for _, state := range breakerStates {
			e.bool(e.cached("state", state), u.Breaker == state)
		}
	}},
	{counter("penstock_upstream_breaker_opened_total", "Times that its circuit breaker has opened.", "upstream"), func(e *encoder, u *Upstream) {
		if u.Breaker != "" {
			e.int("", u.Opened)
		}
	}},
	{gauge("penstock_upstream_breaker_load", "Connections that count for a limit of circuit_breaker: connections, or pending for those being made. Left out: no such limit.", "upstream", "limit"), func(e *encoder, u *Upstream) {
		u.limits(e, u.Connections, u.Connecting)
	}},
	{gauge("penstock_upstream_breaker_limit", "The limit.", "upstream", "limit"), func(e *encoder, u *Upstream) { u.limits(e, u.Most, u.MostConnecting) }},
	{counter("penstock_upstream_limited_seconds_total", limited, "upstream", "verdict"), func(e *encoder, u *Upstream) { e.limited(&u.Seconds) }},
	{counter("penstock_upstream_bytes_total", "Bytes of sessions with its endpoints, of those that run, too; "+byDirection, "upstream", "direction", "engine"), func(e *encoder, u *Upstream) { e.bytes(&u.Bytes) }},
	{counter("penstock_upstream_closes_total", "Sessions that have ended; "+byClose, "upstream", "reason", "by"), func(e *encoder, u *Upstream) { e.closes(&u.Tally) }},
	{histogram("penstock_upstream_connect_seconds", connects, "upstream"), func(e *encoder, u *Upstream) { e.histogram(&connectLabels, &u.Tally.Connects) }},
	{histogram("penstock_upstream_session_seconds", lasted, "upstream"), func(e *encoder, u *Upstream) { e.histogram(&sessionLabels, &u.Tally.Sessions) }},
	{gauge("penstock_upstream_discovery_confirmed_timestamp_seconds", "Time of the last good answer of discovery (kind is dns or file), since the epoch: its age is time() minus this. Left out: there was none.", "upstream", "kind"), func(e *encoder, u *Upstream) {
		if d := u.Discovery; d != nil {
			e.timestamp(label("kind", d.Kind), d.Confirmed)
		}
	}},
	{gauge("penstock_upstream_discovery_failures", "Failed look-ups since the last good answer.", "upstream", "kind"), func(e *encoder, u *Upstream) {
		if d := u.Discovery; d != nil {
			e.int(label("kind", d.Kind), int64(d.Failures))
		}
	}},
	{gauge("penstock_upstream_discovery_stale", "1 while the endpoints are older than their source allows.", "upstream", "kind"), func(e *encoder, u *Upstream) {
		if d := u.Discovery; d != nil {
			e.bool(label("kind", d.Kind), d.Stale)
		}
	}},
	{gauge("penstock_upstream_certificate_not_after_seconds", "End of the validity of a certificate that is shown to endpoints, as a time since the epoch.", "upstream", "path"), func(e *encoder, u *Upstream) { e.certificates(u.Certificates) }},
	{counter("penstock_upstream_tls_handshakes_total", "TLS handshakes with endpoints that were completed. resumed is true for those with a ticket.", "upstream", "resumed"), func(e *encoder, u *Upstream) { e.handshakes(u.Handshakes) }},
	{counter("penstock_upstream_tls_handshake_failures_total", "TLS handshakes with endpoints that failed. Causes that did not occur are left out.", "upstream", "cause"), func(e *encoder, u *Upstream) { e.handshakeFailures(u.Handshakes) }},
}

// limits writes a value for each limit of the circuit breaker that there is.
func (u *Upstream) limits(e *encoder, connections, pending int64) {
	if u.Most > 0 {
		e.int(`,limit="connections"`, connections)
	}
	if u.MostConnecting > 0 {
		e.int(`,limit="pending"`, pending)
	}
}

// endpointFamilies are those with the labels upstream and endpoint. The three last ones are left out for
// all endpoints but the first ones, see [Limits].
var endpointFamilies = []objectFamily[Endpoint]{
	{gauge("penstock_endpoint_up", "1 if the endpoint gets clients; 0 if it is down, a standby, ejected, draining or in maintenance, or its circuit breaker is not closed.", "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.bool("", p.up()) }},
	{gauge("penstock_endpoint_state", "1 for the present state alone: up, down (its check fails), standby (its check has the answer of a healthy standby), ejected (by outlier_detection), draining or maint (in maintenance).", "upstream", "endpoint", "state"), func(e *encoder, p *Endpoint) { e.int(e.cached("state", string(p.State)), 1) }},
	{counter("penstock_endpoint_limited_seconds_total", limited, "upstream", "endpoint", "verdict"), func(e *encoder, p *Endpoint) { e.limited(&p.Seconds) }},
	{counter("penstock_endpoint_bytes_total", "Bytes of its sessions, of those that run, too; "+byDirection, "upstream", "endpoint", "direction", "engine"), func(e *encoder, p *Endpoint) { e.bytes(&p.Bytes) }},
	{counter("penstock_endpoint_closes_total", "Sessions that have ended; "+byClose, "upstream", "endpoint", "reason", "by"), func(e *encoder, p *Endpoint) { e.closes(&p.Tally) }},
	{histogram("penstock_endpoint_connect_seconds", connects, "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.histogram(&connectLabels, &p.Tally.Connects) }},
	{histogram("penstock_endpoint_answer_seconds", "Time to the endpoint's first byte in a session: since the client's last byte if it had asked, and since the connect otherwise. Sessions without an answer are not counted.", "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.answers(p) }},
	{histogram("penstock_endpoint_session_seconds", lasted, "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.histogram(&sessionLabels, &p.Tally.Sessions) }},
}
