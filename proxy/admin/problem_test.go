package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
)

// TestProblems: each condition of a status is a problem of its kind, and the effect of an
// operator's request is none.
func TestProblems(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.Local)
	up := Endpoint{Name: "a", State: Up, Weight: 1}
	down := Endpoint{Name: "d", State: Down, Weight: 1, Why: "connection refused"}
	ejected := Endpoint{Name: "e", State: Ejected, Weight: 1, Why: "5 failures in a row", Until: now.Add(time.Minute)}
	silent := Endpoint{Name: "s", State: Up, Weight: 1, Silence: &Silence{Since: now.Add(-21740 * time.Millisecond), Clients: 404, Usual: "; it used to answer 99.2 % within 33ms", Proof: "it does not close a connection that Penstock has closed"}}
	to := func(name string) Listener {
		return Listener{Name: "web", State: Serving, Routes: []Route{{To: map[string]float64{name: 100}}}}
	}
	out := &UpstreamOutage{Since: now.Add(-time.Minute), Refused: 200}
	shop := func(change func(*Upstream)) Status {
		u := Upstream{Name: "shop", Endpoints: []Endpoint{up}}
		change(&u)
		return Status{State: Serving, Listeners: []Listener{to("shop")}, Upstreams: []Upstream{u}}
	}
	web := func(change func(*Listener)) Status {
		l := to("shop")
		change(&l)
		return Status{State: Serving, Listeners: []Listener{l}}
	}
	cert := func(from, ends time.Duration) []Certificate {
		return []Certificate{{Path: "c.pem", From: now.Add(from), Ends: now.Add(ends)}}
	}
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		of   Status
		want []string
	}{
		"nothing": {shop(func(*Upstream) {}), nil},
		"a standby beside a primary": {shop(func(u *Upstream) {
			u.Endpoints = append(u.Endpoints, Endpoint{Name: "s", State: Standby, Weight: 1, Why: "status 503 instead of 200"})
		}), nil},
		"a name does not resolve": {
			shop(func(u *Upstream) {
				u.Endpoints = append(u.Endpoints, Endpoint{Name: "n", Address: "n.test:1", State: Up, Weight: 1, Unresolved: "no such host"})
			}),
			[]string{"warning endpoint_unresolved endpoint shop/n: the name in n.test:1 does not resolve: no such host"},
		},
		"a reload waits": {
			Status{State: Serving, Pending: &rollback.Waiting{Generation: 3, Until: now.Add(time.Minute)}},
			[]string{"warning unconfirmed_reload generation 3 will be rolled back at 10:01:00, unless you run penstock confirm"},
		},
		"a rollback fails": {
			Status{State: Serving, Pending: &rollback.Waiting{Generation: 3, Until: now, Failed: "rollback to generation 2: no file"}},
			[]string{"warning unconfirmed_reload generation 3 was not confirmed, and cannot be rolled back: rollback to generation 2: no file. Penstock tries again every few seconds: remove the cause, or keep the generation (penstock confirm)"},
		},
		"a reload was refused": {
			Status{State: Serving, ReloadRefused: &RefusedReload{At: now, By: "SIGHUP", Error: "no room"}},
			[]string{"warning reload_refused the reload at 10:00:00, by SIGHUP, was refused, and nothing was changed: no room"},
		},
		"a reload was refused, and the next one will be": {
			Status{State: Serving, ReloadRefused: &RefusedReload{At: now, By: "SIGHUP", Error: "p.yaml has 2 problems"}, FileProblem: "p.yaml has 2 problems"},
			[]string{"warning reload_refused the reload at 10:00:00, by SIGHUP, was refused, and nothing was changed; the next start or reload will fail, too: p.yaml has 2 problems"},
		},
		"a reload was refused for another reason": {
			Status{State: Serving, ReloadRefused: &RefusedReload{At: now, By: "SIGHUP", Error: "no room"}, FileProblem: "p.yaml has 2 problems"},
			[]string{
				"warning reload_refused the reload at 10:00:00, by SIGHUP, was refused, and nothing was changed: no room",
				"warning file_unusable the next start or reload will fail: p.yaml has 2 problems",
			},
		},
		"the file cannot be used": {
			Status{State: Serving, FileProblem: "p.yaml has 2 problems"},
			[]string{"warning file_unusable the next start or reload will fail: p.yaml has 2 problems"},
		},
		"lines of the session log are lost": {
			Status{State: Serving, Summary: Summary{SessionLog: &SessionLog{DroppedLastMinute: 12, Error: "no space left on device"}}},
			[]string{"warning session_log the session log: 12 lines were lost within the last minute; it cannot be written: no space left on device"},
		},
		"lines of the session log wait": {
			Status{State: Serving, Summary: Summary{SessionLog: &SessionLog{Lines: 5, Error: "no space left on device"}}},
			[]string{"warning session_log the session log: no space left on device (a line that cannot be written waits, and is dropped if too many wait)"},
		},
		"the session log is stuck": {
			Status{State: Serving, Summary: Summary{SessionLog: &SessionLog{StuckSince: now}}},
			[]string{"warning session_log the session log: no line was taken since 10:00:00 (a line that cannot be written waits, and is dropped if too many wait)"},
		},
		"the session log is stuck, and lines are lost": {
			Status{State: Serving, Summary: Summary{SessionLog: &SessionLog{DroppedLastMinute: 1, Error: "no process reads the FIFO", StuckSince: now}}},
			[]string{"warning session_log the session log: 1 line was lost within the last minute; it cannot be written: no process reads the FIFO, no line was taken since 10:00:00"},
		},
		"lines of the session log were lost before": {
			Status{State: Serving, Summary: Summary{SessionLog: &SessionLog{Lines: 5, Dropped: map[string]int64{"destination": 3, "rate": 7}}}}, nil,
		},
		"drain": {
			Status{State: Draining, Summary: Summary{Connections: Connections{Active: 1}}},
			[]string{"warning draining the process drains: it no longer accepts clients, 1 client is left"},
		},
		"drain with lane.leave": {
			Status{State: Draining, Summary: Summary{Connections: Connections{Active: 5}, Lane: &Lane{Active: 2, GoOn: 13}}},
			[]string{"warning draining the process drains: it no longer accepts clients, 5 clients are left; 13 sessions go on in the lane after its end"},
		},
		"another process has the lane": {
			Status{State: Serving, Summary: Summary{Lane: &Lane{State: LaneBusy, Wanted: true, Why: "lane: device lo: another lane is attached, by process 12"}}},
			[]string{"warning lane_busy sessions stay in user space: lane: device lo: another lane is attached, by process 12: once that process has ended, this one opens the lane, and takes over sessions that go on in it. If no process has it, remove its pins"},
		},
		"there is no lane": {
			Status{State: Serving, Summary: Summary{Lane: &Lane{State: LaneUnavailable, Wanted: true, Why: "CAP_BPF"}}},
			[]string{"warning lane_unavailable sessions stay in user space, because there is no lane (CAP_BPF): repair what penstock doctor and penstock check report, and reload"},
		},
		"pins are missing": {
			Status{State: Serving, Summary: Summary{Lane: &Lane{State: LaneOn, Wanted: true, PinsProblem: "2 of 5 files are missing"}}},
			[]string{"warning lane_pins sessions in the lane end if the process dies: files of lane.pins are missing or damaged (2 of 5 files are missing). Remove the remaining files in that directory: the process makes all files again within seconds. If the directory is gone, restart the process"},
		},
		"there is no lane, and none is wanted": {Status{State: Serving, Summary: Summary{Lane: &Lane{State: LaneUnavailable, Why: "CAP_BPF"}}}, nil},
		"the lane is off by hand, or opening":  {Status{State: Serving, Summary: Summary{Lane: &Lane{State: LaneOff, Wanted: true}}}, nil},
		"limits of the process": {
			Status{State: Serving, Summary: Summary{Connections: Connections{Active: 496, Most: 496}}, TLSSessions: TLSSessions{Active: 7, Most: 7}},
			[]string{
				"warning connections_limit the process is at its limit of connections (496 of 496): further clients wait",
				"warning tls_limit the process is at its limit of TLS sessions (7 of 7): further TLS clients are refused",
			},
		},
		"accepting fails": {
			Status{State: Serving, AcceptPausesLastMinute: 12},
			[]string{"warning local_faults accepting failed 12 times within the last minute (mostly for lack of descriptors or memory): further clients wait. penstock doctor --process says what to raise"},
		},
		"below them": {Status{State: Serving, Summary: Summary{Connections: Connections{Active: 495, Most: 496}}, TLSSessions: TLSSessions{Active: 6, Most: 7}}, nil},
		"limit of a listener": {
			web(func(l *Listener) { l.State, l.PausedAt = Paused, "connections" }),
			[]string{"warning listener_limit listener web is at its limit (connections): further clients wait"},
		},
		"a listener drained by hand": {
			web(func(l *Listener) { l.State, l.DrainedByHand = Draining, true }),
			[]string{"warning listener_drained listener web is drained by hand: it accepts no clients until penstock listener ready web, or a reload that changes its bind"},
		},
		"a listener that refuses every client": {
			web(func(l *Listener) { l.RefusesAll = "deny has every source" }),
			[]string{"warning listener_refuses listener web refuses every client: deny has every source"},
		},
		"a filter that does not answer": {
			web(func(l *Listener) {
				l.Filters = []Filter{{Name: "names", Failures: map[string]int64{"trap": 2, "timeout": 70}, FailedLastMinute: 68}, {Name: "rate", Failures: map[string]int64{"trap": 1}}}
			}),
			[]string{"warning filter_failed listener web: the filter names gave no answer about 68 clients within the last minute (since the start: timeout 70, trap 2), and on_error decided about these clients: read its errors in the log. Then write another module or leave the filter out, and reload"},
		},
		"a denial by hand that refuses all clients": {
			web(func(l *Listener) {
				l.DeniedByHand = &ListenerDenials{Count: 1, Clients: 17330, Refused: 17330, Latest: Denial{Source: "127.0.0.0/24", Until: now.Add(time.Hour), By: "uid=0"}}
			}),
			[]string{"warning listener_denied listener web refuses 17330 of its last 17330 clients: 127.0.0.0/24 is denied by hand, until 11:00:00, by uid=0: penstock deny remove 127.0.0.0/24 ends the denial"},
		},
		"one of several, nearly all": {
			web(func(l *Listener) {
				l.DeniedByHand = &ListenerDenials{Count: 3, Clients: 10, Refused: 9, Latest: Denial{Source: "unix", Listener: "web", Until: now.Add(time.Hour)}}
			}),
			[]string{"warning listener_denied listener web refuses 9 of its last 10 clients: unix is denied by hand, the latest of 3 sources, until 11:00:00, by -: penstock deny remove unix --listener web ends the denial"},
		},
		"of all, before a client comes": {
			web(func(l *Listener) {
				l.DeniedByHand = &ListenerDenials{Count: 1, All: true, Latest: Denial{Source: "all", Until: now.Add(time.Hour), By: "uid=0"}}
			}),
			[]string{"warning listener_denied listener web refuses every client: all clients are denied by hand, until 11:00:00, by uid=0: penstock deny remove all ends the denial"},
		},
		"of all, besides another": {
			web(func(l *Listener) {
				l.DeniedByHand = &ListenerDenials{Count: 2, All: true, Latest: Denial{Source: "all", Until: now.Add(time.Hour), By: "uid=0"}}
			}),
			[]string{"warning listener_denied listener web refuses every client: all clients are denied by hand (2 denials are in force), until 11:00:00, by uid=0: penstock deny remove all ends the denial"},
		},
		"of some":                      {web(func(l *Listener) { l.DeniedByHand = &ListenerDenials{Count: 1, Clients: 10, Refused: 8} }), nil},
		"of nobody":                    {web(func(l *Listener) { l.DeniedByHand = &ListenerDenials{Count: 1} }), nil},
		"one of a process that drains": {web(func(l *Listener) { l.State = Draining }), nil},
		"a lost path": {
			web(func(l *Listener) { l.Queues = []Queue{{Address: "unix:/run/web.sock", Gone: true}} }),
			[]string{"outage socket_gone listener web: no client finds unix:/run/web.sock, because its path was removed or leads to another file: penstock reload binds it again"},
		},
		"an accept queue": {
			web(func(l *Listener) { l.Queues = []Queue{{Address: ":80", Known: true, Length: 129, Most: 128}} }),
			[]string{"warning accept_queue listener web: the accept queue of :80 is full (129 clients wait, the limit is 128)"},
		},
		"one with room": {web(func(l *Listener) {
			l.Queues = []Queue{{Address: ":80", Known: true, Length: 128, Most: 128, Dropped: 5}}
		}), nil},
		"one that had none": {web(func(l *Listener) {
			l.Queues = []Queue{{Address: ":80", Known: true, Most: 128, Dropped: 5, DroppedLastMinute: 1}}
		}), []string{"warning accept_queue listener web: the accept queue of :80 overflowed 1 time within the last minute (0 clients wait now, the limit is 128)"}},
		"a certificate that expires": {web(func(l *Listener) { l.Certificates = cert(-80*day, 10*day) }), []string{"warning certificate_expires listener web: the certificate in c.pem expires at 2026-01-12 10:00:00"}},
		"one that does not yet":      {web(func(l *Listener) { l.Certificates = cert(-75*day, 15*day) }), nil},
		"one that is short-lived":    {web(func(l *Listener) { l.Certificates = cert(-3*day, 3*day) }), nil},
		"one that is, at its end":    {web(func(l *Listener) { l.Certificates = cert(-5*day, day) }), []string{"warning certificate_expires listener web: the certificate in c.pem expires at 2026-01-03 10:00:00"}},
		"one that was not taken": {web(func(l *Listener) {
			l.Certificates = cert(-day, 80*day)
			l.Certificates[0].Refused = "c.pem: no certificate"
		}), []string{"warning certificate_refused listener web: the new certificate in c.pem cannot be used, and the former certificate stays in use: c.pem: no certificate"}},
		"authorities that were not taken": {
			web(func(l *Listener) { l.AuthoritiesRefused = "ca.pem contains no certificate" }),
			[]string{"warning certificate_refused listener web: the new authorities cannot be used, and the former authorities stay in use: ca.pem contains no certificate"},
		},
		"those for endpoints": {
			shop(func(u *Upstream) { u.AuthoritiesRefused = "ca.pem is not a regular file" }),
			[]string{"warning certificate_refused upstream shop: the new authorities cannot be used, and the former authorities stay in use: ca.pem is not a regular file"},
		},
		"a certificate that was good": {web(func(l *Listener) { l.Certificates = cert(-day, 0) }), []string{"outage certificate_expired listener web: the certificate in c.pem expired at 10:00:00: write a valid certificate to the file (no reload is needed)"}},
		"a certificate of the future": {web(func(l *Listener) { l.Certificates = cert(time.Second, day) }), []string{"outage certificate_not_yet_valid listener web: the certificate in c.pem is not valid before 10:00:01: replace it with a certificate that is valid now (no reload is needed), or correct this host's clock"}},
		"one for endpoints":           {shop(func(u *Upstream) { u.Certificates = cert(-2*day, -day) }), []string{"outage certificate_expired upstream shop: the certificate in c.pem expired at 2026-01-01 10:00:00: write a valid certificate to the file (no reload is needed)"}},
		"an endpoint that answers no client": {
			shop(func(u *Upstream) { u.Endpoints = []Endpoint{silent} }),
			[]string{
				"outage none_served upstream shop: no usable endpoint has served a client since 09:59:38; each has served none of its last clients, 404 together",
				"warning endpoint_unanswered endpoint shop/s answers no client: 404 clients waited, the first for 21.7s; it used to answer 99.2 % within 33ms; it does not close a connection that Penstock has closed",
			},
		},
		"one behind an open breaker, with a fallback": {
			shop(func(u *Upstream) { u.Endpoints, u.Breaker, u.Fallback = []Endpoint{silent}, "open", "web" }),
			[]string{
				"warning none_served upstream shop: no usable endpoint has served a client since 09:59:38; each has served none of its last clients, 404 together",
				"warning breaker upstream shop: breaker open",
				"warning endpoint_unanswered endpoint shop/s answers no client: 404 clients waited, the first for 21.7s; it used to answer 99.2 % within 33ms; it does not close a connection that Penstock has closed",
			},
		},
		"one behind an open breaker": {
			shop(func(u *Upstream) { u.Endpoints, u.Breaker = []Endpoint{silent}, "open" }),
			[]string{
				"outage none_served upstream shop: no usable endpoint has served a client since 09:59:38; each has served none of its last clients, 404 together",
				"warning breaker upstream shop: breaker open",
				"warning endpoint_unanswered endpoint shop/s answers no client: 404 clients waited, the first for 21.7s; it used to answer 99.2 % within 33ms; it does not close a connection that Penstock has closed",
			},
		},
		"one that is drained": {
			shop(func(u *Upstream) { e := silent; e.State = Draining; u.Endpoints = []Endpoint{e} }), nil,
		},
		"one that is ejected for that": {
			shop(func(u *Upstream) { e := ejected; e.Silence = silent.Silence; u.Endpoints = []Endpoint{e} }),
			[]string{"warning endpoint_ejected endpoint shop/e is ejected until 10:01:00: 5 failures in a row"},
		},
		"no usable endpoint": {
			shop(func(u *Upstream) { u.Outage, u.Endpoints, u.LastMinute.Refused = out, []Endpoint{down, ejected}, 9 }),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 09:59:00: d is down: connection refused; e is ejected until 10:01:00: 5 failures in a row. 200 clients were refused"},
		},
		"no discovered endpoint": {
			shop(func(u *Upstream) {
				u.Outage, u.Endpoints, u.Discovery = out, nil, &Discovery{Kind: "dns", From: "A db.example", Denied: "NXDOMAIN"}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 09:59:00: dns A db.example has none (NXDOMAIN). 200 clients were refused"},
		},
		"none but removed ones": {
			shop(func(u *Upstream) {
				u.Outage, u.Discovery = &UpstreamOutage{Since: now}, &Discovery{Kind: "file", From: "eps.yaml", Endpoints: 2}
				u.Endpoints = []Endpoint{{Name: "former", State: Removed}, {Name: "a", State: Removed, ByHand: []string{"removed"}}, {Name: "b", State: Removed, ByHand: []string{"removed"}}}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: both are removed by hand"},
		},
		"none but a drained and a removed one": {
			shop(func(u *Upstream) {
				u.Outage, u.Endpoints = &UpstreamOutage{Since: now}, []Endpoint{{Name: "a", State: Draining, Weight: 1}, {Name: "b", State: Removed, ByHand: []string{"removed"}}}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: a is drained; b is removed by hand"},
		},
		"removed by hand, and gone from discovery": {
			shop(func(u *Upstream) {
				u.Outage, u.Discovery = &UpstreamOutage{Since: now}, &Discovery{Kind: "file", From: "eps.yaml", Confirmed: now}
				u.Endpoints = []Endpoint{{Name: "a", State: Removed, ByHand: []string{"removed"}}}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: file eps.yaml has none"},
		},
		"no discovered endpoint yet": {
			shop(func(u *Upstream) {
				u.Outage, u.Endpoints, u.Discovery = &UpstreamOutage{Since: now}, []Endpoint{{Name: "former", State: Removed}}, &Discovery{Kind: "dns", From: "A db.example"}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: dns A db.example has not answered yet"},
		},
		"no discovered endpoint, because DNS fails": {
			shop(func(u *Upstream) {
				u.Outage, u.Endpoints, u.Discovery = &UpstreamOutage{Since: now}, nil, &Discovery{Kind: "dns", From: "A db.example", Error: "discovery: dns: A db.example.: SERVFAIL"}
			}),
			[]string{
				"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: dns A db.example has none: A db.example.: SERVFAIL",
				"warning discovery upstream shop: the last discovery from dns A db.example failed: A db.example.: SERVFAIL",
			},
		},
		"no discovered endpoint that can be used": {
			shop(func(u *Upstream) {
				u.Outage, u.Endpoints, u.Discovery = out, nil, &Discovery{Kind: "file", From: "eps.yaml", Endpoints: 1, LeftOut: 1, LeftOutCause: "it leads back"}
			}),
			[]string{
				"outage no_usable_endpoint upstream shop has no usable endpoint since 09:59:00: file eps.yaml has none that can be used. 200 clients were refused",
				"warning left_out upstream shop: 1 endpoint that discovery found cannot be used: it leads back",
			},
		},
		"none that can be connected to": {
			shop(func(u *Upstream) {
				u.Outage, u.LastMinute.Refused = out, 200
				over := Endpoint{Name: "o", State: Up, Weight: 1, LastFailure: &Failure{Cause: "timed out", Over: true}}
				u.Endpoints = []Endpoint{
					{Name: "f", State: Up, Weight: 1, LastFailure: &Failure{Cause: "timed out"}},
					over,
					{Name: "b", State: Up, Weight: 1, Breaker: "half-open", BreakerWhy: "it was open for 1m", LastFailure: &Failure{Cause: "timed out"}},
					{Name: "e", State: Ejected, Weight: 1, Why: "5 failures, the last: timed out", LastFailure: &Failure{Cause: "timed out"}},
					{Name: "d", State: Draining, LastFailure: &Failure{Cause: "timed out"}},
					{Name: "s", State: Standby, Weight: 1, Why: "standby answer", Since: now.Add(-time.Hour), LastFailure: &Failure{Cause: "timed out", Time: now}},
					{Name: "n", State: Down, Weight: 1, Why: "status 503", Since: now, LastFailure: &Failure{Cause: "timed out", Time: now.Add(-time.Second)}},
				}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 09:59:00: f: timed out; b: breaker half-open: it was open for 1m (last failure: timed out); e is ejected: 5 failures, the last: timed out; d is drained; s is standby: standby answer; n is down: status 503. 200 clients were refused"},
		},
		"none that is usable, but they serve": {shop(func(u *Upstream) {
			u.Outage, u.Endpoints, u.LastMinute = &UpstreamOutage{Since: now.Add(-time.Minute), Served: true}, []Endpoint{down}, LastMinute{LastResort: 7, LastResortAnswered: 5}
		}), []string{"warning no_usable_endpoint upstream shop has no usable endpoint since 09:59:00: d is down: connection refused. In the last minute 7 clients were sent to an unusable endpoint as a last resort, and 5 were served"}},
		"none that is usable, and they answer nobody": {shop(func(u *Upstream) {
			u.Outage, u.Endpoints, u.LastMinute = &UpstreamOutage{Since: now}, []Endpoint{down}, LastMinute{LastResort: 7}
		}), []string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: d is down: connection refused. In the last minute, also before this outage, 7 clients were sent to an unusable endpoint as a last resort, and none was served"}},
		"none that is usable, and they serve again": {shop(func(u *Upstream) {
			u.Outage, u.Endpoints, u.LastMinute = &UpstreamOutage{Since: now, Served: true}, []Endpoint{down}, LastMinute{LastResort: 1, LastResortAnswered: 1, Held: 9, Refused: 9}
		}), []string{"warning no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: d is down: connection refused. In the last minute, also before this outage, 1 client was sent to an unusable endpoint as a last resort, and was served"}},
		"none that is usable, and they have served": {shop(func(u *Upstream) {
			u.Outage, u.Endpoints, u.LastMinute = &UpstreamOutage{Since: now}, []Endpoint{down}, LastMinute{LastResort: 1, LastResortAnswered: 1, Held: 1}
		}), []string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: d is down: connection refused. In the last minute, also before this outage, 1 client was sent to an unusable endpoint as a last resort, and was served"}},
		"at the limit of the breaker": {
			shop(func(u *Upstream) { u.Most, u.Connections, u.Pending = 5, 5, 386 }),
			[]string{"warning upstream_limit upstream shop is at its limit of connections (circuit_breaker.connections, 5 of 5), 386 clients wait"},
		},
		"at the limit of connects": {
			shop(func(u *Upstream) { u.MostConnecting, u.Connecting, u.Pending = 3, 3, 80 }),
			[]string{"warning upstream_limit upstream shop is at its limit of connections being made (circuit_breaker.pending, 3 of 3), 80 clients wait"},
		},
		"at that limit, and none waits": {shop(func(u *Upstream) { u.Most, u.Connections = 5, 5 }), nil},
		"clients are held":              {shop(func(u *Upstream) { u.LastMinute.Held = 1 }), []string{"warning held upstream shop had no usable endpoint: 1 client waited within the last minute"}},
		"each cause once": {
			shop(func(u *Upstream) {
				u.Outage, u.Endpoints = &UpstreamOutage{Since: now}, nil
				for _, name := range []string{"a", "b", "c"} {
					u.Endpoints = append(u.Endpoints, Endpoint{Name: name, State: Down, Weight: 1, Why: "connection refused", LastFailure: &Failure{Cause: "connect failed: connection refused"}})
				}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: all 3 are down: connection refused"},
		},
		"each cause once, where there are two": {
			shop(func(u *Upstream) {
				u.Outage, u.Endpoints = &UpstreamOutage{Since: now}, []Endpoint{down, ejected, down}
			}),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 10:00:00: d, d are down: connection refused; e is ejected until 10:01:00: 5 failures in a row"},
		},
		"no endpoint": {
			shop(func(u *Upstream) { u.Outage, u.Endpoints = &UpstreamOutage{Since: now.Add(-day)}, nil }),
			[]string{"outage no_usable_endpoint upstream shop has no usable endpoint since 2026-01-01 10:00:00: there are none"},
		},
		"all are full": {shop(func(u *Upstream) {
			u.Outage, u.Pending = &UpstreamOutage{Since: now, Full: true}, 1
			u.Endpoints = []Endpoint{{Name: "a", State: Up, Weight: 1, Active: 2, Max: 2}, {Name: "b", State: Draining, Weight: 1}, {Name: "c", State: Up}}
		}), []string{"warning upstream_full upstream shop: every usable endpoint is at its limit since 10:00:00: a is full (2 of 2); b is drained; c: weight 0. 1 client waits"}},
		"some are not usable": {shop(func(u *Upstream) {
			u.Endpoints = []Endpoint{up, down, ejected, {Name: "b", State: Up, Weight: 1, Breaker: "open", BreakerWhy: "9 of 9 failed"}, {Name: "f", State: Up, Weight: 1, Active: 1, Max: 1}, {Name: "w", State: Down}, {Name: "x", State: Draining, Weight: 1}, {Name: "y", State: Removed, Weight: 1}}
		}), []string{
			"warning endpoint_down endpoint shop/d is down: connection refused", "warning endpoint_ejected endpoint shop/e is ejected until 10:01:00: 5 failures in a row",
			"warning endpoint_breaker endpoint shop/b: breaker open: 9 of 9 failed", "warning endpoint_full endpoint shop/f is full (1 of 1)",
		}},
		"a breaker": {
			shop(func(u *Upstream) {
				u.Breaker, u.BreakerWhy, u.BreakerUntil = "open", "9 of 9 failed", now.Add(time.Minute)
			}),
			[]string{"warning breaker upstream shop: breaker open until 10:01:00: 9 of 9 failed"},
		},
		"one that is half-open": {shop(func(u *Upstream) { u.Breaker = "half-open" }), []string{"warning breaker upstream shop: breaker half-open"}},
		"one that is closed":    {shop(func(u *Upstream) { u.Breaker = "closed" }), nil},
		"an endpoint that fails its clients": {
			shop(func(u *Upstream) {
				e := up
				e.Failing, e.LastFailure = &Failing{Clients: 7, Since: now.Add(-time.Minute)}, &Failure{Cause: "ended before its first byte"}
				u.Endpoints = []Endpoint{e, silent, down}
				u.Endpoints[1].Failing, u.Endpoints[2].Failing = e.Failing, e.Failing
			}),
			[]string{
				"outage none_served upstream shop: no usable endpoint has served a client since 09:59:38; each has served none of its last clients, 411 together",
				"warning endpoint_failing endpoint shop/a has served none of its last 7 clients since 09:59:00: ended before its first byte",
				"warning endpoint_unanswered endpoint shop/s answers no client: 404 clients waited, the first for 21.7s; it used to answer 99.2 % within 33ms; it does not close a connection that Penstock has closed",
				"warning endpoint_down endpoint shop/d is down: connection refused",
			},
		},
		"all endpoints that take clients have failed few": {
			shop(func(u *Upstream) {
				e := up
				e.Failing = &Failing{Clients: 19, Since: now.Add(-time.Minute)}
				u.Endpoints = []Endpoint{e}
			}),
			[]string{"warning endpoint_failing endpoint shop/a has served none of its last 19 clients since 09:59:00"},
		},
		"one of them serves": {
			shop(func(u *Upstream) {
				e := up
				e.Failing = &Failing{Clients: 99, Since: now.Add(-time.Minute)}
				u.Endpoints = []Endpoint{e, up}
			}),
			[]string{"warning endpoint_failing endpoint shop/a has served none of its last 99 clients since 09:59:00"},
		},
		"an endpoint that cannot be connected to": {
			shop(func(u *Upstream) {
				for _, last := range []Failure{
					{Cause: "connect failed: connection refused", Time: now, Connecting: true},
					{Cause: "connect failed: connection refused", Time: now, Connecting: true, Over: true},
					{Cause: "ended before its first byte", Time: now},
					{Cause: "connect failed: nobody has asked since", Time: now.Add(-2 * time.Minute), Connecting: true},
				} {
					e := up
					e.LastFailure = &last
					u.Endpoints = append(u.Endpoints, e)
				}
			}),
			[]string{"warning endpoint_unreachable endpoint shop/a: connections to it fail: connection refused"},
		},
		"clients that wait for a connection": {
			shop(func(u *Upstream) {
				e := up
				e.Connecting = &Connecting{Clients: 3, Since: now}
				e.LastFailure = &Failure{Cause: "connect failed: connection timed out", Time: now, Connecting: true}
				u.Endpoints = append(u.Endpoints, e)
			}),
			[]string{"warning endpoint_connecting endpoint shop/a: 3 clients have waited for a connection for more than a second, since 10:00:00"},
		},
		"clients of upstreams that were removed": {
			Status{State: Serving, RemovedWaiting: map[string]int64{"b": 1, "a": 30}},
			[]string{"warning removed_upstream upstream a, which was removed: 30 clients wait for it", "warning removed_upstream upstream b, which was removed: 1 client waits for it"},
		},
		"panic": {shop(func(u *Upstream) { u.Panic = true }), []string{"warning panic upstream shop: too few endpoints are healthy, so all endpoints are used (panic_below)"}},
		"refusals": {shop(func(u *Upstream) {
			u.LastMinute.Refused, u.LastMinute.RefusedBy = 3, map[string]int64{"queue_timeout": 1, "full": 2}
		}), []string{"warning refused upstream shop has refused 3 clients within the last minute (full 2, queue_timeout 1)"}},
		"refusals of single clients": {shop(func(u *Upstream) {
			u.LastMinute.Refused, u.LastMinute.RefusedBy = 3, map[string]int64{"declined": 3}
		}), nil},
		"refusals of some clients too": {shop(func(u *Upstream) {
			u.LastMinute.Refused, u.LastMinute.RefusedBy = 3, map[string]int64{"declined": 2, "full": 1}
		}), []string{"warning refused upstream shop has refused 1 client within the last minute (full 1)"}},
		"local faults": {
			shop(func(u *Upstream) {
				u.LastMinute.LocalFaults, u.LocalFaults = 2, map[string]int64{"no buffer space available": 3, "cannot assign requested address": 1}
			}),
			[]string{"warning local_faults upstream shop: 2 connections failed within the last minute because this machine lacks a resource (cannot assign requested address, no buffer space available)"},
		},
		"congestion": {
			shop(func(u *Upstream) {
				u.Congestion = &Congestion{Configured: "bbr", Used: "cubic", Error: "operation not permitted"}
			}),
			[]string{"warning congestion upstream shop: socket.congestion is bbr, but cubic is used: operation not permitted"},
		},
		"congestion of clients": {
			web(func(l *Listener) { l.Congestion = &Congestion{Configured: "bbr", Error: "bad file descriptor"} }),
			[]string{"warning congestion listener web: socket.congestion is bbr, but an unknown one is used: bad file descriptor"},
		},
		"congestion as in the file": {web(func(l *Listener) { l.Congestion = &Congestion{Configured: "bbr", Used: "bbr", Refused: 1} }), nil},
		"ejections": {shop(func(u *Upstream) {
			u.LastMinute.EjectionsWithheld = 2
			of := func(name string, lately int64) Endpoint {
				return Endpoint{Name: name, State: Up, Weight: 1, EjectionsWithheld: 9, EjectionsWithheldLastMinute: lately, WithheldWhy: "timed out"}
			}
			out := of("d", 0)
			out.State = Ejected
			u.Endpoints = []Endpoint{of("a", 1), of("b", 0), of("c", 1), out}
		}), []string{
			"warning ejections_withheld upstream shop: endpoints that fail are not ejected, because of max_ejected (2 failures within the last minute): a: timed out; c: timed out; ejected are d",
			"warning endpoint_ejected endpoint shop/d is ejected",
		}},
		"discovery": {
			shop(func(u *Upstream) { u.Discovery = &Discovery{Kind: "dns", From: "A db.test", Error: "SERVFAIL"} }),
			[]string{"warning discovery upstream shop: the last discovery from dns A db.test failed: SERVFAIL"},
		},
		"discovery of a part": {
			shop(func(u *Upstream) {
				u.Discovery = &Discovery{Kind: "dns", From: "SRV _db.test", Error: "discovery: dns: A one.test.: SERVFAIL", Stale: true}
			}),
			[]string{"warning discovery upstream shop: the endpoints from dns SRV _db.test may be out of date: A one.test.: SERVFAIL"},
		},
		"discovery that works": {shop(func(u *Upstream) { u.Discovery = &Discovery{Kind: "dns", From: "A db.test"} }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range problems(&test.of, now) {
				got = append(got, fmt.Sprintf("%s %s %s", p.Severity, p.Kind, p.Text))
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestDownSinceItsCheck: the problem of an endpoint that is down began when the endpoint did, not at the first look.
func TestDownSinceItsCheck(t *testing.T) {
	t.Parallel()

	at := time.Now().Add(-time.Minute)
	s := Status{State: Serving, Upstreams: []Upstream{{Name: "shop", Endpoints: []Endpoint{{Name: "a", State: Up, Weight: 1}, {Name: "d", State: Down, Weight: 1, Since: at}}}}}
	if list := problems(&s, time.Now()); len(list) != 1 || !list[0].Since.Equal(at) {
		t.Errorf("%+v, want it since %v", list, at)
	}
}

// TestOutagesAreThoseThatCostClients: an upstream that gets no clients, or that has a
// fallback, is a warning. The fallback of an upstream that gets clients and cannot serve them
// is an outage, and so is an upstream to which only a filter sends clients.
func TestOutagesAreThoseThatCostClients(t *testing.T) {
	s := Status{State: Serving, Listeners: []Listener{{Name: "l", Routes: []Route{{To: map[string]float64{"a": 100, "b": 0}}}, Filters: []Filter{{Upstreams: []string{"f"}}}}}}
	for name, fallback := range map[string]string{"a": "c", "b": "", "c": "d", "d": "", "e": "", "f": ""} {
		s.Upstreams = append(s.Upstreams, Upstream{Name: name, Fallback: fallback, Outage: &UpstreamOutage{}})
	}
	list := problems(&s, time.Now())
	for i, p := range list {
		want := Warning
		if p.Upstream == "d" || p.Upstream == "f" {
			want = Outage
		}
		if p.Severity != want || (i < 2) != (want == Outage) {
			t.Errorf("%d: %+v", i, p)
		}
	}
}

// TestUnusedFallbackIsNoOutage: a fallback without endpoints costs no client while its
// upstream has some. It does if the upstream has none, if its breaker keeps clients away, or
// if the last connections to all of its endpoints failed.
func TestUnusedFallbackIsNoOutage(t *testing.T) {
	up := Endpoint{State: Up, Weight: 1}
	unreachable := Endpoint{State: Up, Weight: 1, LastFailure: &Failure{Connecting: true}}
	for name, test := range map[string]struct {
		of   Upstream
		want Severity
	}{
		"usable":       {Upstream{Endpoints: []Endpoint{up, unreachable}}, Warning},
		"closed":       {Upstream{Breaker: "closed", Endpoints: []Endpoint{up}}, Warning},
		"unreachable":  {Upstream{Endpoints: []Endpoint{unreachable, {State: Down, Weight: 1}}}, Outage},
		"unusable":     {Upstream{Outage: &UpstreamOutage{}}, Outage},
		"full":         {Upstream{Outage: &UpstreamOutage{Full: true}}, Outage},
		"breaker open": {Upstream{Breaker: "open"}, Outage},
	} {
		test.of.Name, test.of.Fallback = "a", "b"
		s := Status{State: Serving, Listeners: []Listener{{Name: "l", Routes: []Route{{To: map[string]float64{"a": 100}}}}}}
		s.Upstreams = []Upstream{test.of, {Name: "b", Outage: &UpstreamOutage{Refused: 3}}}
		list := problems(&s, time.Now())
		i := slices.IndexFunc(list, func(p Problem) bool { return p.Upstream == "b" })
		if i < 0 || list[i].Severity != test.want {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// TestProblemsAreBounded: the number of problems is limited, however many endpoints are
// unhealthy.
func TestProblemsAreBounded(t *testing.T) {
	u := Upstream{Name: "u"}
	for i := range 10_000 {
		u.Endpoints = append(u.Endpoints, Endpoint{Name: fmt.Sprint(i), State: Down, Weight: 1})
	}
	list := problems(&Status{Upstreams: []Upstream{u}}, time.Now())
	if last := list[len(list)-1]; len(list) != 11 || last.Text != "upstream u: 9990 more endpoints are not usable" || last.Endpoint != "" {
		t.Errorf("%d problems, the last is %+v", len(list), last)
	}
	u.Outage, u.Endpoints[9_999].Why = new(UpstreamOutage), "another cause"
	list = problems(&Status{Upstreams: []Upstream{u}}, time.Now())
	if len(list) != 1 || !strings.HasSuffix(list[0].Text, ", 9 are down; and 9990 more") {
		t.Errorf("%d problems: %+v", len(list), list[0])
	}
}

// troubled has the problems of a status that it is given.
type troubled struct {
	Balancer
	st Status
}

func (b *troubled) Status() Status { return b.st }

// still has one generation.
type still struct{ Reloader }

func (still) Generations() rollback.Status { return rollback.Status{Current: 1} }

// TestProblemsHaveATime: each problem has the time at which it began, or was seen first, for as long as it lasts.
func TestProblemsHaveATime(t *testing.T) {
	t.Parallel()

	down := Endpoint{Name: "d", State: Down, Weight: 1}
	b := &troubled{st: Status{State: Serving, Summary: Summary{SessionLog: &SessionLog{DroppedLastMinute: 1}}, Upstreams: []Upstream{{Name: "u", Endpoints: []Endpoint{down}}}}}
	b.st.Listeners = []Listener{{Name: "l", Certificates: []Certificate{{Ends: time.Unix(1, 0)}}}}
	s := New(Config{Balancer: b, Reloader: still{}, Leaving: func() (time.Time, bool) { return time.Time{}, false }})
	defer s.Close(t.Context())
	first := s.current().Problems
	if len(first) != 3 {
		t.Fatal(first)
	}
	again := s.current().Problems
	for i, p := range first {
		if p.Since.IsZero() || !again[i].Since.Equal(p.Since) || p.Kind == "certificate_expired" && p.Since.Unix() != 1 {
			t.Errorf("%+v, then %+v", p, again[i])
		}
	}
	b.st.Upstreams[0].Endpoints[0].State = Up
	s.current()
	b.st.Upstreams[0].Endpoints[0].State = Down
	later := s.current().Problems
	for i, p := range later {
		if changed := !p.Since.Equal(first[i].Since); changed != (p.Kind == "endpoint_down") {
			t.Errorf("%+v, and first %+v", p, first[i])
		}
	}
}
