package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/display"
)

// A Severity is how severe a [Problem] is.
type Severity string

// The severities.
const (
	// Outage: clients are not served.
	Outage Severity = "outage"
	// Warning: clients are still served.
	Warning Severity = "warning"
)

// A Problem is something that is wrong now.
type Problem struct {
	Severity Severity `json:"severity"` // outage or warning
	// Kind is a word for programs. docs/reload.md lists all kinds.
	Kind string `json:"kind"`
	// Listener, Upstream and Endpoint are the subject. A problem of the whole process has none.
	Listener string    `json:"listener,omitempty"`
	Upstream string    `json:"upstream,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Since    time.Time `json:"since"` // when the problem began or, if unknown, when Penstock noticed it: it looks about once a second
	Text     string    `json:"text"`  // the problem in one line, with its subject
}

// problems returns the problems in a status, outages first.
func problems(s *Status, now time.Time) []Problem {
	p := finder{now: now, used: inUse(s), list: []Problem{}}
	p.process(s)
	for i := range s.Listeners {
		p.listener(&s.Listeners[i])
	}
	for i := range s.Upstreams {
		p.upstream(&s.Upstreams[i])
	}
	p.removed(s.RemovedWaiting)
	slices.SortStableFunc(p.list, func(a, b Problem) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	return p.list
}

func (s Severity) rank() int {
	if s == Outage {
		return 0
	}
	return 1
}

type finder struct {
	now  time.Time
	used map[string]bool // upstreams that get clients
	list []Problem
}

func (f *finder) add(subject Problem, severity Severity, kind, format string, args ...any) {
	subject.Severity, subject.Kind, subject.Text = severity, kind, fmt.Sprintf(format, args...)
	f.list = append(f.list, subject)
}

// inUse returns the upstreams that get clients: the upstreams of routes and of filters, and the fallback of each
// upstream that gets clients and cannot serve them.
func inUse(s *Status) map[string]bool {
	used, fallback := make(map[string]bool), make(map[string]string)
	for i := range s.Upstreams {
		if u := &s.Upstreams[i]; u.Outage != nil || u.Breaker != "" && u.Breaker != "closed" || u.unreachable() {
			fallback[u.Name] = u.Fallback
		}
	}
	use := func(name string) {
		for ; name != "" && !used[name]; name = fallback[name] {
			used[name] = true
		}
	}
	for i := range s.Listeners {
		for _, r := range s.Listeners[i].Routes {
			for name, percent := range r.To {
				if percent > 0 {
					use(name)
				}
			}
		}
		for _, f := range s.Listeners[i].Filters {
			for _, name := range f.Upstreams {
				use(name)
			}
		}
	}
	return used
}

// removed adds the removed upstreams that clients still wait for.
func (f *finder) removed(waiting map[string]int64) {
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		of := Problem{Upstream: name}
		f.add(of, Warning, "removed_upstream", "upstream %s, which was removed: %s", name, plural(waiting[name], "client waits for it", "clients wait for it"))
	}
}

// unreachable reports whether each endpoint that takes clients was unreachable at the last attempt. This attempt counts
// even before a monitor has a verdict.
func (u *Upstream) unreachable() bool {
	return !slices.ContainsFunc(u.Endpoints, func(e Endpoint) bool { return e.Unusable() == "" && !e.unreachable() })
}

func (f *finder) process(s *Status) {
	var of Problem
	switch p := s.Pending; {
	case p == nil || s.State == Draining: // a draining process keeps its configuration
	case p.Failed != "":
		of := Problem{Since: p.Until}
		f.add(of, Warning, "unconfirmed_reload", "generation %d was not confirmed, and cannot be rolled back: %s. Penstock tries again every few seconds: remove the cause, or keep the generation (penstock confirm)", p.Generation, p.Failed)
	default:
		sooner := when(p.RollbackIf != "", fmt.Sprintf(", or sooner if %s (%d until now)", p.RollbackIf, p.Increase))
		f.add(of, Warning, "unconfirmed_reload", "generation %d will be rolled back at %s%s, unless you run penstock confirm", p.Generation, f.clock(p.Until), sooner)
	}
	if r := s.Refused; r != nil && r.Automatic && s.State != Draining {
		of := Problem{Since: r.At}
		f.add(of, Warning, "rolled_back", "generation %d was rolled back at %s: %s. %s still has it, and the next reload or start brings it back: restore the old file (penstock plan shows the difference)", r.Generation, f.clock(r.At), r.Why, r.Path)
	}
	f.certificates(of, "admin.tls", s.AdminCertificates, "")
	f.certificates(of, "metrics.tls", s.MetricsCertificates, "")
	f.file(s)
	if len(s.Restart) > 0 {
		f.add(of, Warning, "restart_needed", "the configuration has changes that take effect only after a restart: %s", strings.Join(s.Restart, ", "))
	}
	if !s.DrainStarts.IsZero() {
		f.add(of, Warning, "not_ready", "the process is about to drain: GET /readyz fails, and the process accepts clients until %s", f.clock(s.DrainStarts))
	}
	if file := s.StateFile; file != nil && file.Problem != "" {
		f.add(of, Warning, "state_file", "the file of changes by hand: %s", file.Problem)
	}
	if s.State == Draining {
		until := when(!s.DrainEnds.IsZero(), ", until "+f.clock(s.DrainEnds))
		left, goOn := s.Connections.Active, ""
		if s.Lane != nil && s.Lane.GoOn > 0 {
			goOn = fmt.Sprintf("; %s on in the lane after its end", plural(s.Lane.GoOn, "session goes", "sessions go"))
		}
		f.add(of, Warning, "draining", "the process drains: it no longer accepts clients, %s%s%s", plural(left, "client is left", "clients are left"), until, goOn)
	}
	if l := s.Lane; l != nil && s.State != Draining { // a draining process opens no lane
		switch text := l.Trouble(); {
		case text == "":
		case l.State == LaneBusy:
			f.add(of, Warning, "lane_busy", "%s", text)
		default:
			f.add(of, Warning, "lane_unavailable", "%s", text)
		}
	}
	if l := s.Lane; l != nil && l.PinsProblem != "" {
		f.add(of, Warning, "lane_pins", "%s", l.PinsTrouble())
	}
	if c := s.Connections; c.Most > 0 && c.Active >= c.Most {
		f.add(of, Warning, "connections_limit", "the process is at its limit of connections (%d of %d): further clients wait", c.Active, c.Most)
	}
	if n := s.AcceptPausesLastMinute; n > 0 {
		f.add(of, Warning, "local_faults", "accepting failed %s within the last minute (mostly for lack of descriptors or memory): further clients wait. penstock doctor --process says what to raise", plural(n, "time", "times"))
	}
	if t := s.TLSSessions; t.Most > 0 && t.Active >= t.Most {
		f.add(of, Warning, "tls_limit", "the process is at its limit of TLS sessions (%d of %d): further TLS clients are refused", t.Active, t.Most)
	}
}

// file adds problems of the configuration file and of the session log.
func (f *finder) file(s *Status) {
	var of Problem
	if s.State != Draining {
		r := s.ReloadRefused
		still := r != nil && r.Error == s.FileProblem
		if r != nil {
			of := Problem{Since: r.At}
			f.add(of, Warning, "reload_refused", "the reload at %s, by %s, was refused, and nothing was changed%s: %s",
				f.clock(r.At), r.By, when(still, "; the next start or reload will fail, too"), r.Error)
		}
		if s.FileProblem != "" && !still {
			f.add(of, Warning, "file_unusable", "the next start or reload will fail: %s", s.FileProblem)
		}
	}
	l := s.SessionLog
	if l == nil {
		return
	}
	why := l.Error
	if of.Since = l.StuckSince; !of.Since.IsZero() {
		why += when(why != "", ", ") + "no line was taken since " + f.clock(of.Since)
	}
	switch {
	case l.DroppedLastMinute == 0 && why == "":
		return
	case l.DroppedLastMinute == 0:
		f.add(of, Warning, "session_log", "the session log: %s (a line that cannot be written waits, and is dropped if too many wait)", why)
		return
	case why != "": // the lines may have been lost at an earlier destination
		why = "; it cannot be written: " + why
	}
	f.add(of, Warning, "session_log", "the session log: %s lost within the last minute%s", plural(l.DroppedLastMinute, "line was", "lines were"), why)
}

func (f *finder) listener(l *Listener) {
	of := Problem{Listener: l.Name}
	if l.PausedAt != "" {
		f.add(of, Warning, "listener_limit", "listener %s is at its limit (%s): further clients wait", l.Name, l.PausedAt)
	}
	if l.DrainedByHand {
		f.add(of, Warning, "listener_drained", "listener %s is drained by hand: it accepts no clients until penstock listener ready %[1]s, or a reload that changes its bind", l.Name)
	}
	if l.RefusesAll != "" {
		f.add(of, Warning, "listener_refuses", "listener %s refuses every client: %s", l.Name, l.RefusesAll)
	}
	f.denials(of, l)
	for _, q := range l.Queues {
		switch {
		case q.Gone:
			f.add(of, Outage, "socket_gone", "listener %s: no client finds %s, because its path was removed or leads to another file: penstock reload binds it again", l.Name, q.Address)
		case q.DroppedLastMinute > 0:
			f.add(of, Warning, "accept_queue", "listener %s: the accept queue of %s overflowed %s within the last minute (%s now, the limit is %d)",
				l.Name, q.Address, plural(q.DroppedLastMinute, "time", "times"), plural(q.Length, "client waits", "clients wait"), q.Most)
		case q.Known && q.Length > q.Most:
			f.add(of, Warning, "accept_queue", "listener %s: the accept queue of %s is full (%s, the limit is %d)", l.Name, q.Address, plural(q.Length, "client waits", "clients wait"), q.Most)
		}
	}
	f.filters(of, l)
	f.congestion(of, "listener "+l.Name, l.Congestion)
	f.certificates(of, "listener "+l.Name, l.Certificates, l.AuthoritiesRefused)
}

// congestion adds sockets without the congestion control of the file.
func (f *finder) congestion(of Problem, subject string, c *Congestion) {
	if c != nil && c.Error != "" {
		f.add(of, Warning, "congestion", "%s: socket.congestion is %s, but %s is used: %s", subject, c.Configured, cmp.Or(c.Used, "an unknown one"), c.Error)
	}
}

// filters adds filters that do not answer.
func (f *finder) filters(of Problem, l *Listener) {
	for i := range l.Filters {
		to := &l.Filters[i]
		if to.FailedLastMinute == 0 {
			continue
		}
		f.add(of, Warning, "filter_failed", "listener %s: the filter %s gave no answer about %s within the last minute (since the start: %s), and on_error decided about these clients: read its errors in the log. Then write another module or leave the filter out, and reload",
			l.Name, to.Name, plural(to.FailedLastMinute, "client", "clients"), display.Counts(to.Failures))
	}
}

func (f *finder) certificates(base Problem, subject string, list []Certificate, authorities string) {
	if authorities != "" {
		f.add(base, Warning, "certificate_refused", "%s: the new authorities cannot be used, and the former authorities stay in use: %s", subject, authorities)
	}
	for _, c := range list {
		if c.Refused != "" {
			f.add(base, Warning, "certificate_refused", "%s: the new certificate in %s cannot be used, and the former certificate stays in use: %s", subject, c.Path, c.Refused)
		}
		switch {
		case !f.now.Before(c.Ends):
			of := base
			of.Since = c.Ends
			f.add(of, Outage, "certificate_expired", "%s: the certificate in %s expired at %s: write a valid certificate to the file (no reload is needed)", subject, c.Path, f.clock(c.Ends))
		case f.now.After(c.Due()):
			f.add(base, Warning, "certificate_expires", "%s: the certificate in %s expires at %s", subject, c.Path, f.clock(c.Ends))
		case f.now.Before(c.From):
			f.add(base, Outage, "certificate_not_yet_valid", "%s: the certificate in %s is not valid before %s: replace it with a certificate that is valid now (no reload is needed), or correct this host's clock", subject, c.Path, f.clock(c.From))
		}
	}
}

// clock formats a time, with its date if it is not close to now.
func (f *finder) clock(t time.Time) string {
	t = t.Local()
	if t.Sub(f.now).Abs() < 12*time.Hour {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// when returns the text if something holds, and else "".
func when(holds bool, text string) string {
	if !holds {
		return ""
	}
	return text
}

var plural = display.Plural

// denials adds a listener's denials if they refuse all of its clients, or nearly all.
func (f *finder) denials(of Problem, l *Listener) {
	d := l.DeniedByHand
	if d == nil || !d.All && !d.nearlyAll() {
		return
	}
	of.Since = d.Latest.Since
	clients := "every client"
	if !d.All {
		clients = fmt.Sprintf("%d of its last %s", d.Refused, plural(max(d.Clients, d.Refused), "client", "clients"))
	}
	denied := d.Latest.Source + " is denied by hand" + when(d.Count > 1, fmt.Sprintf(", the latest of %d sources", d.Count))
	if d.Latest.Source == "all" {
		denied = "all clients are denied by hand" + when(d.Count > 1, fmt.Sprintf(" (%d denials are in force)", d.Count))
	}
	remedy := "penstock deny remove " + d.Latest.Source
	remedy += when(d.Latest.Listener != "", " --listener "+d.Latest.Listener)
	f.add(of, Warning, "listener_denied", "listener %s refuses %s: %s, until %s, by %s: %s ends the denial",
		l.Name, clients, denied, f.clock(d.Latest.Until), cmp.Or(d.Latest.By, "-"), remedy)
}

// maxEndpoints limits the endpoints of an upstream that have a problem of their own, and the endpoints listed in one
// line. The others are counted.
const maxEndpoints = 10

// costly returns the severity of an upstream's outage.
func (f *finder) costly(u *Upstream) Severity {
	if u.Fallback != "" || !f.used[u.Name] || u.Outage.Served {
		return Warning
	}
	return Outage
}

// fewestUnserved is how many unserved clients in a row make a problem.
const fewestUnserved = 20

// unserved adds a problem if every endpoint that takes clients has served none of its last clients, and these are many.
// With a few clients, one client's data may be the cause. The problem began when the last of these endpoints began to
// fail.
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
		if since.After(of.Since) {
			of.Since = since
		}
	}
	if clients < fewestUnserved {
		return
	}
	severity := Outage
	if !f.used[u.Name] || u.Fallback != "" && u.breaks() { // others than the trials go to the fallback
		severity = Warning
	}
	f.add(of, severity, "none_served", "upstream %s: no usable endpoint has served a client since %s; each has served none of its last clients, %d together", u.Name, f.clock(of.Since), clients)
}

// breaks reports whether the upstream's breaker keeps clients away.
func (u *Upstream) breaks() bool { return u.Breaker != "" && u.Breaker != "closed" }

// takesClients reports whether clients are sent to the endpoint.
func (e *Endpoint) takesClients() bool {
	return e.State == Up && e.Breaker == "" && e.Weight != 0
}

func (f *finder) upstream(u *Upstream) {
	of := Problem{Upstream: u.Name}
	if f.outage(of, u); u.Outage == nil {
		f.unserved(of, u)
	}
	if u.breaks() {
		f.add(of, Warning, "breaker", "upstream %s: %s", u.Name, reason("breaker "+u.Breaker, u.BreakerUntil, u.BreakerWhy))
	}
	waiting := u.Pending - u.PendingEndpoint // for room
	if u.Most > 0 && u.Connections >= u.Most && waiting > 0 {
		f.add(of, Warning, "upstream_limit", "upstream %s is at its limit of connections (circuit_breaker.connections, %d of %d), %s", u.Name, u.Connections, u.Most, plural(waiting, "client waits", "clients wait"))
	}
	if u.MostConnecting > 0 && u.Connecting >= u.MostConnecting && waiting > 0 {
		f.add(of, Warning, "upstream_limit", "upstream %s is at its limit of connections being made (circuit_breaker.pending, %d of %d), %s", u.Name, u.Connecting, u.MostConnecting, plural(waiting, "client waits", "clients wait"))
	}
	if u.Panic {
		f.add(of, Warning, "panic", "upstream %s: too few endpoints are healthy, so all endpoints are used (panic_below)", u.Name)
	}
	m := &u.LastMinute
	by := maps.Clone(m.RefusedBy)
	delete(by, "declined") // a single client can cause it
	if n := m.Refused - m.RefusedBy["declined"]; n > 0 && u.Outage == nil {
		reasons := when(len(by) > 0, " ("+display.Counts(by)+")")
		f.add(of, Warning, "refused", "upstream %s has refused %s within the last minute%s", u.Name, plural(n, "client", "clients"), reasons)
	}
	if n := m.Held; n > 0 && u.Outage == nil {
		f.add(of, Warning, "held", "upstream %s had no usable endpoint: %s within the last minute", u.Name, plural(n, "client", "clients")+" waited")
	}
	if n := m.LocalFaults; n > 0 {
		f.add(of, Warning, "local_faults", "upstream %s: %s failed within the last minute because this machine lacks a resource (%s)", u.Name,
			plural(n, "connection", "connections"), strings.Join(slices.Sorted(maps.Keys(u.LocalFaults)), ", "))
	}
	if n := m.EjectionsWithheld; n > 0 {
		f.add(of, Warning, "ejections_withheld", "upstream %s: endpoints that fail are not ejected, because of max_ejected (%s within the last minute)%s", u.Name, plural(n, "failure", "failures"), withheld(u.Endpoints))
	}
	if d := u.Discovery; d != nil && d.Error != "" {
		text := "upstream %s: the last discovery from %s %s failed: %s"
		if d.Stale {
			text = "upstream %s: the endpoints from %s %s may be out of date: %s"
		}
		f.add(of, Warning, "discovery", text, u.Name, d.Kind, d.From, d.cause())
	}
	if d := u.Discovery; d != nil && d.LeftOut > 0 {
		f.add(of, Warning, "left_out", "upstream %s: %s that discovery found cannot be used: %s", u.Name,
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
	var costs []string
	add := func(n int64, one, more string) {
		if n > 0 {
			costs = append(costs, plural(n, one, more))
		}
	}
	add(u.Pending, "client waits", "clients wait")
	add(o.Refused, "client was refused", "clients were refused")
	add(o.Unserved, "session ended without a byte from the endpoint", "sessions ended without a byte from the endpoint")
	cost := ": " + unusable(u) + when(len(costs) > 0, ". "+strings.Join(costs, ", "))
	if m := &u.LastMinute; m.LastResort > 0 {
		also := when(f.now.Sub(o.Since) < time.Minute, ", also before this outage,")
		cost += fmt.Sprintf(". In the last minute%s %s sent to an unusable endpoint as a last resort, and %s", also, plural(m.LastResort, "client was", "clients were"), served(m.LastResort, m.LastResortAnswered))
	}
	if o.Full {
		f.add(subject, Warning, "upstream_full", "upstream %s: every usable endpoint is at its limit since %s%s", u.Name, f.clock(o.Since), cost)
		return
	}
	f.add(subject, f.costly(u), "no_usable_endpoint", "upstream %s has no usable endpoint since %s%s", u.Name, f.clock(o.Since), cost)
}

func served(all, n int64) string {
	switch {
	case all == 1 && n == 0:
		return "was not served"
	case all == 1:
		return "was served"
	case n == 0:
		return "none was served"
	case n < all:
		return plural(n, "was served", "were served")
	}
	return "all were served"
}

// withheld names some of the endpoints that max_ejected keeps from ejection, with their failures, and some of the
// ejected endpoints.
func withheld(list []Endpoint) string {
	var kept, ejected []string
	for i := range list {
		e := &list[i]
		if e.EjectionsWithheldLastMinute > 0 {
			kept = append(kept, e.Name+": "+e.WithheldWhy)
		}
		if e.State == Ejected && e.Weight > 0 {
			ejected = append(ejected, e.Name)
		}
	}
	return joined(": ", kept) + joined("; ejected are ", ejected)
}

func joined(prefix string, parts []string) string {
	if more := len(parts) - maxEndpoints; more > 0 {
		parts = append(parts[:maxEndpoints], fmt.Sprintf("and %d more", more))
	}
	if len(parts) == 0 {
		return ""
	}
	return prefix + strings.Join(parts, "; ")
}

// unusable says why endpoints get no clients: each reason once, after the names of some of its endpoints.
func unusable(u *Upstream) string {
	list := slices.DeleteFunc(slices.Clone(u.Endpoints), func(e Endpoint) bool {
		return e.State == Removed && (len(e.ByHand) == 0 || u.Discovery != nil && u.Discovery.Endpoints == 0)
	})
	if d := u.Discovery; len(list) == 0 && d != nil {
		return d.Kind + " " + d.From + d.empty()
	}
	if len(list) == 0 {
		return "there are none"
	}
	why := list[0].Reason()
	if len(list) > 1 && why != "" && !slices.ContainsFunc(list, func(e Endpoint) bool { return e.Reason() != why }) {
		all := "both"
		if len(list) > 2 {
			all = fmt.Sprintf("all %d", len(list))
		}
		return list[0].said(all, "are", why)
	}
	var first []*Endpoint // with each reason
	var names, reasons []string
	for i := range list[:min(len(list), maxEndpoints)] {
		why = list[i].Reason()
		if same := slices.Index(reasons, why); same >= 0 {
			names[same] += ", " + list[i].Name
		} else if why != "" {
			first, names, reasons = append(first, &list[i]), append(names, list[i].Name), append(reasons, why)
		}
	}
	for i, of := range names {
		verb := "is"
		if of != first[i].Name {
			verb = "are"
		}
		reasons[i] = first[i].said(of, verb, reasons[i])
	}
	if more := len(list) - maxEndpoints; more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, "; ")
}

// cause is the error, without the words that are said anyway.
func (d *Discovery) cause() string { return strings.TrimPrefix(d.Error, "discovery: "+d.Kind+": ") }

// empty says why there are no endpoints.
func (d *Discovery) empty() string {
	switch {
	case d.LeftOut > 0:
		return " has none that can be used"
	case d.Denied != "":
		return " has none (" + d.Denied + ")"
	case d.Error != "":
		return " has none: " + d.cause()
	case d.Confirmed.IsZero():
		return " has not answered yet"
	}
	return " has none"
}

// endpoints adds the unhealthy or full endpoints of an upstream, unless a problem of the whole upstream includes them.
// An endpoint that an operator has taken out is no problem.
func (f *finder) endpoints(subject Problem, u *Upstream) {
	n := int64(0)
	for i := range u.Endpoints {
		e := &u.Endpoints[i]
		kind := e.problem()
		if u.Outage != nil && e.Connecting != nil { // the line about the outage does not say this
			kind = connecting
		} else if kind == "" || u.Outage != nil || kind == unreachable && f.now.Sub(e.LastFailure.Time) > unreachableFor {
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

func (f *finder) endpoint(subject Problem, kind string, e *Endpoint) {
	subject.Endpoint = e.Name
	if s := e.Silence; kind == unanswered {
		subject.Since = s.Since
		waited := f.now.Sub(s.Since).Round(100 * time.Millisecond)
		f.add(subject, Warning, kind, "endpoint %s/%s answers no client: %s waited, the first for %v%s; %s", subject.Upstream, e.Name, plural(s.Clients, "client", "clients"), waited, s.Usual, s.Proof)
		return
	}
	if r := e.Failing; kind == failing {
		subject.Since = r.Since
		why := ""
		if e.LastFailure != nil {
			why = ": " + e.LastFailure.Cause
		}
		f.add(subject, Warning, kind, "endpoint %s/%s has served none of its last %d clients since %s%s", subject.Upstream, e.Name, r.Clients, f.clock(r.Since), why)
		return
	}
	if c := e.Connecting; kind == connecting {
		subject.Since = c.Since
		f.add(subject, Warning, kind, "endpoint %s/%s: %s waited for a connection for more than a second, since %s", subject.Upstream, e.Name,
			plural(c.Clients, "client has", "clients have"), f.clock(c.Since))
		return
	}
	if last := e.LastFailure; kind == unreachable {
		f.add(subject, Warning, kind, "endpoint %s/%s: connections to it fail: %s", subject.Upstream, e.Name, strings.TrimPrefix(last.Cause, connectFailed))
		return
	}
	if kind == unresolved {
		f.add(subject, Warning, kind, "endpoint %s/%s: the name in %s does not resolve: %s", subject.Upstream, e.Name, e.Address, e.Unresolved)
		return
	}
	subject.Since = e.Since
	f.add(subject, Warning, kind, "endpoint %s", e.said(subject.Upstream+"/"+e.Name, "is", e.Unusable()))
}

// failing is the kind of problem of an endpoint with a [Failing].
const failing = "endpoint_failing"

// connecting is the kind of problem of an endpoint with a [Connecting].
const connecting = "endpoint_connecting"

// unreachable is the kind of problem of an endpoint that takes clients, if the last connection to it failed.
const unreachable = "endpoint_unreachable"

// unreachableFor is how long such a failure is a problem: while nobody uses the endpoint, nothing would show that the
// failure is over. The last failure stays in the status, with its age.
const unreachableFor = time.Minute

// unresolved is the kind of problem of an endpoint with a name that does not resolve.
const unresolved = "endpoint_unresolved"

// unanswered is the kind of problem of an endpoint with a [Silence].
const unanswered = "endpoint_unanswered"

// unreachable reports whether the last connection to the endpoint could not be made.
func (e *Endpoint) unreachable() bool {
	return e.LastFailure != nil && e.LastFailure.Connecting && !e.LastFailure.Over
}

// connectFailed begins the cause of a connection that could not be made.
const connectFailed = "connect failed: "

// problem returns the kind of problem of an endpoint, or "" if it has none.
func (e *Endpoint) problem() string {
	switch {
	case e.State == Draining, e.State == Maint, e.State == Removed, e.State == Standby, e.Weight == 0: // as an operator wanted
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

// lookForProblems is how often, at most, the process looks for problems unasked. Looks take at most a hundredth of the
// time.
const lookForProblems = time.Second

// A sinces knows since when each problem without a time of its own has been seen. The zero value is ready to use.
type sinces struct {
	mu sync.Mutex
	at map[Problem]time.Time // by kind and subject
}

// note sets the time of each problem without one. now is the time of the look, and list has all problems at that time.
func (s *sinces) note(list []Problem, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	still := make(map[Problem]time.Time)
	for i := range list {
		p := &list[i]
		if !p.Since.IsZero() {
			continue
		}
		key := Problem{Kind: p.Kind, Listener: p.Listener, Upstream: p.Upstream, Endpoint: p.Endpoint}
		at, known := s.at[key]
		if !known {
			at = now
		}
		p.Since, still[key] = at, at
	}
	s.at = still
}

// Watch looks at the problems every second until ctx ends, so that their first times are known. The process must have
// opened everything.
func (s *Server) Watch(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			began := time.Now()
			s.current()
			pause.Reset(max(lookForProblems, 100*time.Since(began)))
		}
	}
}
