package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Severity is the severity of a [Problem].
type Severity string

// The severities.
const (
	// Outage: clients are not served.
	Outage Severity = "outage"
	// Warning: clients are still served.
	Warning Severity = "warning"
)

// A Problem is something that is wrong at the moment.
type Problem struct {
	Severity Severity `json:"severity"` // an outage, or a warning
	// Kind is a word for programs; docs/reload.md lists them.
	Kind string `json:"kind"`
	// Listener, Upstream and Endpoint are the subject; left out: the whole process.
	Listener string    `json:"listener,omitempty"`
	Upstream string    `json:"upstream,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Since    time.Time `json:"since"` // when it began or, if that is not known, when it was seen first: it is looked every 10 s
	Text     string    `json:"text"`  // a readable line, which names the subject
}

// problems returns the problems that a status shows, outages first.
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

// A finder collects problems.
type finder struct {
	now  time.Time
	used map[string]bool // upstreams that get clients
	list []Problem
}

// add adds a problem with the subject of another.
func (f *finder) add(subject Problem, severity Severity, kind, format string, args ...any) {
	subject.Severity, subject.Kind, subject.Text = severity, kind, fmt.Sprintf(format, args...)
	f.list = append(f.list, subject)
}

// inUse returns the upstreams that get clients: those of a listener's route, and the fallback
// of one that gets clients and cannot serve them.
func inUse(s *Status) map[string]bool {
	used, fallback := make(map[string]bool), make(map[string]string)
	for i := range s.Upstreams {
		if u := &s.Upstreams[i]; u.Outage != nil || u.Breaker != "" && u.Breaker != "closed" || u.unreachable() {
			fallback[u.Name] = u.Fallback
		}
	}
	for i := range s.Listeners {
		for _, r := range s.Listeners[i].Routes {
			for name, percent := range r.To {
				for ; percent > 0 && name != "" && !used[name]; name = fallback[name] {
					used[name] = true
				}
			}
		}
	}
	return used
}

// removed adds upstreams that were removed while clients waited for them.
func (f *finder) removed(waiting map[string]int64) {
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		of := Problem{Upstream: name}
		f.add(of, Warning, "removed_upstream", "upstream %s, which was removed: %s", name, plural(waiting[name], "client waits for it", "clients wait for it"))
	}
}

// unreachable reports whether no endpoint of the upstream both takes clients and could be
// connected to at the last attempt. That attempt counts before any monitor has a verdict.
func (u *Upstream) unreachable() bool {
	return !slices.ContainsFunc(u.Endpoints, func(e Endpoint) bool { return e.Unusable() == "" && !e.unreachable() })
}

func (f *finder) process(s *Status) {
	var of Problem
	if p := s.Pending; p != nil && s.State != Draining { // a drain does not change it
		f.add(of, Warning, "unconfirmed_reload", "generation %d waits to be confirmed until %s, or is taken back", p.Generation, f.clock(p.Until))
	}
	if r := s.Refused; r != nil && r.Automatic && s.State != Draining {
		of := Problem{Since: r.At}
		f.add(of, Warning, "rolled_back", "generation %d was rolled back at %s: %s. %s still has it, and the next reload or start brings it back. Restore the old file. penstock plan shows the difference", r.Generation, f.clock(r.At), r.Why, r.Path)
	}
	f.certificates(of, "admin.tls", s.AdminCertificates, "")
	f.certificates(of, "metrics.tls", s.MetricsCertificates, "")
	f.file(s)
	if len(s.Restart) > 0 {
		f.add(of, Warning, "restart_needed", "the configuration has changed in keys that take effect when the process is started again: %s", strings.Join(s.Restart, ", "))
	}
	if !s.DrainStarts.IsZero() {
		f.add(of, Warning, "not_ready", "the process is about to drain: GET /readyz fails, and it accepts clients until %s", f.clock(s.DrainStarts))
	}
	if file := s.StateFile; file != nil && file.Problem != "" {
		f.add(of, Warning, "state_file", "the file of changes by hand: %s", file.Problem)
	}
	if s.State == Draining {
		until := ""
		if !s.DrainEnds.IsZero() {
			until = ", until " + f.clock(s.DrainEnds)
		}
		left, goOn := s.Connections.Active, ""
		if s.Lane != nil && s.Lane.GoOn > 0 {
			goOn = fmt.Sprintf("; %s on in the lane without it", plural(s.Lane.GoOn, "session goes", "sessions go"))
		}
		f.add(of, Warning, "draining", "the process drains: it accepts no clients any more, %s%s%s", plural(left, "client is left", "clients are left"), until, goOn)
	}
	if l := s.Lane; l != nil && s.State != Draining { // which opens none any more
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
	if t := s.TLSSessions; t.Most > 0 && t.Active >= t.Most {
		f.add(of, Warning, "tls_limit", "the process is at its limit of TLS sessions (%d of %d): further ones are refused", t.Active, t.Most)
	}
}

// file adds what is known of the configuration file, and of the session log.
func (f *finder) file(s *Status) {
	var of Problem
	if s.State != Draining {
		if r := s.ReloadRefused; r != nil {
			of := Problem{Since: r.At}
			f.add(of, Warning, "reload_refused", "the reload at %s, by %s, was refused, and nothing was changed: %s", f.clock(r.At), r.By, r.Error)
		}
		if s.FileProblem != "" {
			f.add(of, Warning, "file_unusable", "the next start or reload will fail: %s", s.FileProblem)
		}
	}
	l := s.SessionLog
	if l == nil || l.DroppedLastMinute == 0 && l.Error == "" {
		return
	}
	why := ""
	if l.Error != "" {
		why = ": " + l.Error
	}
	if l.DroppedLastMinute == 0 {
		f.add(of, Warning, "session_log", "session log cannot be written%s: lines wait, later ones are dropped", why)
		return
	}
	f.add(of, Warning, "session_log", "session log: %s lost within the last minute%s", plural(l.DroppedLastMinute, "line was", "lines were"), why)
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
		case q.DroppedLastMinute > 0:
			f.add(of, Warning, "accept_queue", "listener %s: the accept queue of %s has overflowed %s within the last minute (now %d of %d wait)",
				l.Name, q.Address, plural(q.DroppedLastMinute, "time", "times"), q.Length, q.Most)
		case q.Known && q.Length > q.Most:
			f.add(of, Warning, "accept_queue", "listener %s: the accept queue of %s is full (%d of %d wait)", l.Name, q.Address, q.Length, q.Most)
		}
	}
	f.filters(of, l)
	f.congestion(of, "listener "+l.Name, l.Congestion)
	f.certificates(of, "listener "+l.Name, l.Certificates, l.AuthoritiesRefused)
}

// congestion adds sockets that do not have the congestion control of the file.
func (f *finder) congestion(of Problem, subject string, c *Congestion) {
	if c != nil && c.Error != "" {
		f.add(of, Warning, "congestion", "%s: socket.congestion is %s, and %s is used: %s", subject, c.Configured, cmp.Or(c.Used, "an unknown one"), c.Error)
	}
}

// filters adds filters that do not answer.
func (f *finder) filters(of Problem, l *Listener) {
	for i := range l.Filters {
		to := &l.Filters[i]
		if to.FailedLastMinute == 0 {
			continue
		}
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(to.Failures)) {
			reasons = append(reasons, fmt.Sprintf("%s %d", reason, to.Failures[reason]))
		}
		f.add(of, Warning, "filter_failed", "listener %s: the filter %s has not answered about %s within the last minute (ever: %s), who were treated as on_error says: the log has its errors; write another module, or leave the filter out, and reload",
			l.Name, to.Name, plural(to.FailedLastMinute, "client", "clients"), strings.Join(reasons, ", "))
	}
}

// expiresSoon is the time before its expiry at which a certificate becomes a problem, unless a
// fifth of its lifetime is less.
const expiresSoon = 14 * 24 * time.Hour

func (f *finder) certificates(base Problem, subject string, list []Certificate, authorities string) {
	if authorities != "" {
		f.add(base, Warning, "certificate_refused", "%s: the authorities were not taken, and the former ones are in use: %s", subject, authorities)
	}
	for _, c := range list {
		if c.Refused != "" {
			f.add(base, Warning, "certificate_refused", "%s: the certificate in %s was not taken, and the former one is in use: %s", subject, c.Path, c.Refused)
		}
		switch left := c.Ends.Sub(f.now); {
		case left <= 0:
			of := base
			of.Since = c.Ends
			f.add(of, Outage, "certificate_expired", "%s: the certificate in %s has expired, at %s: write a valid one to the file, it is read again without a reload", subject, c.Path, f.clock(c.Ends))
		case left < min(expiresSoon, c.Ends.Sub(c.From)/5):
			f.add(base, Warning, "certificate_expires", "%s: the certificate in %s expires at %s", subject, c.Path, f.clock(c.Ends))
		case f.now.Before(c.From):
			f.add(base, Outage, "certificate_not_yet_valid", "%s: the certificate in %s is not valid before %s: write one that is valid now to the file, it is read again without a reload, or set this host's clock", subject, c.Path, f.clock(c.From))
		}
	}
}

// clock formats a time of today, or of another day.
func (f *finder) clock(t time.Time) string {
	t = t.Local()
	if t.Sub(f.now).Abs() < 12*time.Hour {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// plural formats a count.
func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
