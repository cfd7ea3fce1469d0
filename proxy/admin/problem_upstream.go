package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxEndpoints is the largest number of endpoints of an upstream with a problem of their own,
// and of endpoints listed in one line. Those beyond it are counted.
const maxEndpoints = 10

// costly returns the severity of an outage of an upstream.
func (f *finder) costly(u *Upstream) Severity {
	if u.Fallback != "" || !f.used[u.Name] || u.Outage.Served {
		return Warning
	}
	return Outage
}

// fewestUnserved is how many clients in a row have to be without an answer for an outage.
const fewestUnserved = 20

// unserved adds that every endpoint which takes clients has served none of its last ones, and that these
// are many: one client's data may be the cause with a few.
func (f *finder) unserved(of Problem, u *Upstream) {
	clients := int64(0)
	for i := range u.Endpoints {
		e := &u.Endpoints[i]
		var since time.Time
		switch kind := e.problem(); {
		case kind == failing:
			clients, since = clients+e.Failing.Clients, e.Failing.Since
		case kind == unanswered:
			clients, since = clients+e.Silence.Clients, e.Silence.Since
		case e.takesClients():
			return
		default:
			continue
		}
		if of.Since.IsZero() || since.Before(of.Since) {
			of.Since = since
		}
	}
	if clients < fewestUnserved {
		return
	}
	severity := Warning
	if f.used[u.Name] {
		severity = Outage
	}
	f.add(of, severity, "none_served", "upstream %s: its endpoints have served none of their last %d clients, since %s", u.Name, clients, f.clock(of.Since))
}

// takesClients reports whether clients are sent to the endpoint.
func (e *Endpoint) takesClients() bool {
	return e.State == Up && e.Breaker == "" && e.Weight != 0
}

func (f *finder) upstream(u *Upstream) {
	of := Problem{Upstream: u.Name}
	if f.outage(of, u); u.Outage == nil {
		f.unserved(of, u)
	}
	if u.Breaker != "" && u.Breaker != "closed" {
		f.add(of, Warning, "breaker", "upstream %s: %s", u.Name, reason("breaker "+u.Breaker, u.BreakerUntil, u.BreakerWhy))
	}
	if u.Most > 0 && u.Connections >= u.Most && u.Pending > 0 {
		f.add(of, Warning, "upstream_limit", "upstream %s is at its limit of connections (circuit_breaker.connections, %d of %d), %s", u.Name, u.Connections, u.Most, plural(u.Pending, "client waits", "clients wait"))
	}
	if u.MostConnecting > 0 && u.Connecting >= u.MostConnecting && u.Pending > 0 {
		f.add(of, Warning, "upstream_limit", "upstream %s is at its limit of connections being made (circuit_breaker.pending, %d of %d), %s", u.Name, u.Connecting, u.MostConnecting, plural(u.Pending, "client waits", "clients wait"))
	}
	if u.Panic {
		f.add(of, Warning, "panic", "upstream %s: too few endpoints are usable, all are used (panic_below)", u.Name)
	}
	m := &u.LastMinute
	if n := m.Refused; n > 0 && u.Outage == nil {
		f.add(of, Warning, "refused", "upstream %s has refused %s within the last minute", u.Name, plural(n, "client", "clients"))
	}
	if n := m.Held; n > 0 && u.Outage == nil {
		f.add(of, Warning, "held", "upstream %s had no endpoint for %s within the last minute, and held them", u.Name, plural(n, "client", "clients"))
	}
	if n := m.LocalFaults; n > 0 {
		f.add(of, Warning, "local_faults", "upstream %s: %s failed within the last minute for want of something on this machine (%s)", u.Name,
			plural(n, "connection", "connections"), strings.Join(slices.Sorted(maps.Keys(u.LocalFaults)), ", "))
	}
	if n := m.EjectionsWithheld; n > 0 {
		f.add(of, Warning, "ejections_withheld", "upstream %s: max_ejected keeps endpoints that fail (%s within the last minute)%s", u.Name, plural(n, "failure", "failures"), withheld(u.Endpoints))
	}
	if d := u.Discovery; d != nil && d.Error != "" {
		f.add(of, Warning, "discovery", "upstream %s: discovery from %s %s fails: %s", u.Name, d.Kind, d.From, d.Error)
	}
	if d := u.Discovery; d != nil && d.LeftOut > 0 {
		f.add(of, Warning, "left_out", "upstream %s: %s that discovery found left out: %s", u.Name,
			plural(int64(d.LeftOut), "endpoint", "endpoints"), d.LeftOutCause)
	}
	f.congestion(of, "upstream "+u.Name, u.Congestion)
	f.certificates(of, "upstream "+u.Name, u.Certificates, u.AuthoritiesRefused)
	f.endpoints(of, u)
}

// outage adds the problem that no endpoint takes clients.
func (f *finder) outage(subject Problem, u *Upstream) {
	o := u.Outage
	if o == nil {
		return
	}
	subject.Since = o.Since
	cost := ""
	if u.Pending > 0 {
		cost += ", " + plural(u.Pending, "client waits", "clients wait")
	}
	if o.Refused > 0 {
		cost += ", " + plural(o.Refused, "client", "clients") + " refused"
	}
	if o.Unserved > 0 {
		cost += ", " + plural(o.Unserved, "session", "sessions") + " ended without a byte of the endpoint"
	}
	if m := &u.LastMinute; m.LastResort > 0 {
		cost += fmt.Sprintf(", clients are sent to endpoints as a last resort (%d within the last minute, %d served)", m.LastResort, m.LastResortAnswered)
	}
	if o.Full {
		f.add(subject, Warning, "upstream_full", "upstream %s: every usable endpoint is at its limit since %s%s: %s", u.Name, f.clock(o.Since), cost, unusable(u.Endpoints))
		return
	}
	f.add(subject, f.costly(u), "no_usable_endpoint", "upstream %s has no usable endpoint since %s%s: %s", u.Name, f.clock(o.Since), cost, unusable(u.Endpoints))
}

// withheld names some of the endpoints that max_ejected keeps from ejection, with their
// failures.
func withheld(list []Endpoint) string {
	var parts []string
	for i := range list {
		if e := &list[i]; e.EjectionsWithheldLastMinute > 0 {
			parts = append(parts, e.Name+": "+e.WithheldWhy)
		}
	}
	if more := len(parts) - maxEndpoints; more > 0 {
		parts = append(parts[:maxEndpoints], fmt.Sprintf("and %d more", more))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, "; ")
}

// unusable names some of the endpoints that get no clients, with the reasons.
func unusable(list []Endpoint) string {
	if len(list) == 0 {
		return "there are none"
	}
	var parts []string
	for i := range list[:min(len(list), maxEndpoints)] {
		if why := list[i].Reason(); why != "" {
			parts = append(parts, list[i].Name+": "+why)
		}
	}
	if more := len(list) - maxEndpoints; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// endpoints adds the endpoints of an upstream that are unhealthy or full, unless a problem of
// the whole upstream includes them. An endpoint taken out by an operator is no problem.
func (f *finder) endpoints(subject Problem, u *Upstream) {
	n := int64(0)
	for i := range u.Endpoints {
		e := &u.Endpoints[i]
		kind := e.problem()
		if u.Outage != nil && e.Connecting != nil { // which the line on the outage does not say
			kind = connecting
		} else if kind == "" || u.Outage != nil {
			continue
		}
		if n++; n <= maxEndpoints {
			f.endpoint(subject, kind, e)
		}
	}
	if n > maxEndpoints {
		f.add(subject, Warning, "endpoints", "upstream %s: %s not usable", u.Name, plural(n-maxEndpoints, "more endpoint is", "more endpoints are"))
	}
}

// endpoint adds the problem of one endpoint.
func (f *finder) endpoint(subject Problem, kind string, e *Endpoint) {
	subject.Endpoint = e.Name
	if s := e.Silence; kind == unanswered {
		subject.Since = s.Since
		waited := f.now.Sub(s.Since).Round(100 * time.Millisecond)
		f.add(subject, Warning, kind, "endpoint %s/%s answers no client: %s waited, the first for %v%s; %s", subject.Upstream, e.Name, plural(s.Clients, "client has", "clients have"), waited, s.Usual, s.Proof)
		return
	}
	if r := e.Failing; kind == failing {
		subject.Since = r.Since
		why := ""
		if e.LastFailure != nil {
			why = ": " + e.LastFailure.Cause
		}
		f.add(subject, Warning, kind, "endpoint %s/%s has served none of the last %d clients, since %s%s", subject.Upstream, e.Name, r.Clients, f.clock(r.Since), why)
		return
	}
	if c := e.Connecting; kind == connecting {
		subject.Since = c.Since
		f.add(subject, Warning, kind, "endpoint %s/%s: %s waited for a connection for more than a second, since %s", subject.Upstream, e.Name,
			plural(c.Clients, "client has", "clients have"), f.clock(c.Since))
		return
	}
	if last := e.LastFailure; kind == unreachable {
		f.add(subject, Warning, kind, "endpoint %s/%s: the last connection to it could not be made, at %s: %s", subject.Upstream, e.Name, f.clock(last.Time), last.Cause)
		return
	}
	if kind == unresolved {
		f.add(subject, Warning, kind, "endpoint %s/%s: the name in %s does not resolve: %s", subject.Upstream, e.Name, e.Address, e.Unresolved)
		return
	}
	f.add(subject, Warning, kind, "endpoint %s/%s: %s", subject.Upstream, e.Name, e.Unusable())
}

// failing is the kind of problem of an endpoint with a [Failing].
const failing = "endpoint_failing"

// connecting is the kind of problem of an endpoint with a [Connecting].
const connecting = "endpoint_connecting"

// unreachable is the kind of problem of an endpoint that takes clients, if the last connection
// to it failed.
const unreachable = "endpoint_unreachable"

// unresolved is the kind of problem of an endpoint whose name does not resolve.
const unresolved = "endpoint_unresolved"

// unanswered is the kind of problem of an endpoint with a [Silence].
const unanswered = "endpoint_unanswered"

// unreachable reports whether the last connection to the endpoint could not be made.
func (e *Endpoint) unreachable() bool {
	return e.LastFailure != nil && e.LastFailure.Connecting && !e.LastFailure.Over
}

// problem returns the kind of problem of an endpoint, or "" if it has none.
func (e *Endpoint) problem() string {
	switch {
	case e.State == Draining, e.State == Maint, e.State == Removed, e.State == Standby, e.Weight == 0: // an operator wanted it so
		if e.Connecting != nil {
			return connecting
		}
		return ""
	case e.State == Down:
		return "endpoint_down"
	case e.State == Ejected:
		return "endpoint_ejected"
	case e.Breaker != "":
		return "endpoint_breaker"
	case e.Silence != nil:
		return unanswered
	case e.Failing != nil:
		return failing
	case e.Connecting != nil:
		return connecting
	case e.Unresolved != "":
		return unresolved
	case e.unreachable():
		return unreachable
	case e.Unusable() != "":
		return "endpoint_full"
	}
	return ""
}
