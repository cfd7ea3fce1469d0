package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// A picture is the tables of two looks, and the rates of the whole process.
type picture struct {
	listeners, upstreams, endpoints, loops, problems table

	accepted, refused rate
	flow              flow
	lag               admin.Lag // of all loops
}

// pictureOf makes the tables of a look and the one before; nil: there was none.
func pictureOf(before, now *Look) *picture {
	e := earlierOf(before, now)
	s := &now.Status
	p := &picture{accepted: unknown, refused: unknown, flow: flow{unknown, unknown}}
	if e.status != nil {
		p.accepted = between(e.status.Connections.Accepted, s.Connections.Accepted, e.time)
		p.refused = between(e.status.Connections.Refused, s.Connections.Refused, e.time)
		p.flow = flowOf(&e.status.Bytes, &s.Bytes, e.time)
	}
	p.listeners, p.upstreams, p.endpoints = e.listenerTable(s), e.upstreamTable(s), e.endpointTable(s)
	p.loops, p.problems = e.loopTable(s), problemTable(s, now.At)
	for i := range s.Loops {
		lag := e.lagOf(s, i)
		p.lag.P99, p.lag.Longest = max(p.lag.P99, lag.P99), max(p.lag.Longest, lag.Longest)
	}
	return p
}

var listenerColumns = []column{
	{name: "listener", limit: 24},
	{name: "state", limit: 24},
	{name: "active", right: true},
	{name: "new/s", right: true},
	{name: "refused/s", right: true, drop: 2},
	{name: "in/s", right: true},
	{name: "out/s", right: true},
	{name: "queue", right: true, drop: 1},
	{name: "address"},
}

func (e *earlier) listenerTable(s *admin.Status) table {
	t := table{columns: listenerColumns}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		was := e.listeners[l.Name]
		f := flowOf(bytesOf(was, func(l *admin.Listener) *admin.Bytes { return &l.Bytes }), &l.Bytes, e.time)
		accepted := e.rate(counter(was, func(l *admin.Listener) int64 { return l.Connections.Accepted }), l.Connections.Accepted)
		refused := e.rate(counter(was, func(l *admin.Listener) int64 { return l.Connections.Refused }), l.Connections.Refused)
		state, tone := string(l.State), calm
		if l.State != admin.Serving {
			tone = warn
		}
		if l.PausedAt != "" {
			state += " (" + l.PausedAt + ")"
		}
		queue, length := queueOf(l)
		at := strings.Join(l.Addresses, ", ")
		t.rows = append(t.rows, row{tone: tone, detail: at, cells: []cell{
			name(l.Name), name(state), limited(l.Connections.Active, l.Connections.Most), figure(accepted.count(), accepted), figure(refused.count(), refused),
			figure(f.in.bytes(), f.in), figure(f.out.bytes(), f.out), figure(queue, length), name(at),
		}})
	}
	return t
}

// limited is a number and its limit; 0: there is none.
func limited(n, limit int64) cell {
	if limit <= 0 {
		return figure(fmt.Sprint(n), n)
	}
	return figure(fmt.Sprintf("%d/%d", n, limit), n)
}

// queueOf is the fullest accept queue of a listener.
func queueOf(l *admin.Listener) (text string, length int64) {
	text = "-"
	for _, q := range l.Queues {
		if q.Known && (text == "-" || q.Length > length) {
			text, length = fmt.Sprintf("%d/%d", q.Length, q.Most), q.Length
		}
	}
	return text, length
}

var upstreamColumns = []column{
	{name: "upstream", limit: 24},
	{name: "up", right: true},
	{name: "active", right: true},
	{name: "waiting", right: true, drop: 2},
	{name: "new/s", right: true},
	{name: "failed/s", right: true, drop: 1},
	{name: "in/s", right: true},
	{name: "out/s", right: true},
	{name: "balance", drop: 3},
	{name: "why"},
}

func (e *earlier) upstreamTable(s *admin.Status) table {
	t := table{columns: upstreamColumns}
	for i := range s.Upstreams {
		u := &s.Upstreams[i]
		was := e.upstreams[u.Name]
		f := flowOf(bytesOf(was, func(u *admin.Upstream) *admin.Bytes { return &u.Bytes }), &u.Bytes, e.time)
		up, begun, failed := 0, e.none(was), e.none(was)
		for j := range u.Endpoints {
			ep := &u.Endpoints[j]
			if ep.State == admin.Up {
				up++
			}
			total, failures := e.endpointRates(u.Name, ep)
			begun, failed = begun+max(total, 0), failed+max(failures, 0)
		}
		tone := calm
		switch {
		case up == 0:
			tone = bad
		case up < len(u.Endpoints) || u.Panic || u.BreakerWhy != "":
			tone = warn
		}
		why := whyOf(u)
		t.rows = append(t.rows, row{tone: tone, detail: why, cells: []cell{
			name(u.Name), figure(fmt.Sprintf("%d/%d", up, len(u.Endpoints)), len(u.Endpoints)-up), figure(fmt.Sprint(u.Active), u.Active), figure(fmt.Sprint(u.Pending), u.Pending),
			figure(begun.count(), begun), figure(failed.count(), failed), figure(f.in.bytes(), f.in), figure(f.out.bytes(), f.out), name(u.Balance), name(why),
		}})
	}
	return t
}

// none is the rate to which those of endpoints are added.
func (e *earlier) none(was *admin.Upstream) rate {
	if was == nil || e.time <= 0 {
		return unknown
	}
	return 0
}

// endpointRates are those of sessions, and of failures.
func (e *earlier) endpointRates(upstream string, ep *admin.Endpoint) (begun, failed rate) {
	was := e.endpoints[keyOf(upstream, ep)]
	return e.rate(counter(was, func(ep *admin.Endpoint) int64 { return ep.Total }), ep.Total),
		e.rate(counter(was, func(ep *admin.Endpoint) int64 { return ep.Failures }), ep.Failures)
}

// whyOf is the cause of an upstream's state in words.
func whyOf(u *admin.Upstream) string {
	var parts []string
	if u.Panic {
		parts = append(parts, "too few endpoints are healthy: all are used")
	}
	if u.BreakerWhy != "" {
		parts = append(parts, "breaker "+u.Breaker+": "+u.BreakerWhy)
	}
	if u.Discovery != nil && u.Discovery.Error != "" {
		parts = append(parts, "discovery: "+u.Discovery.Error)
	}
	return strings.Join(parts, "; ")
}

var endpointColumns = []column{
	{name: "upstream", limit: 16, drop: 2},
	{name: "endpoint", limit: 24},
	{name: "state"},
	{name: "active", right: true},
	{name: "new/s", right: true, drop: 3},
	{name: "failed/s", right: true, drop: 5},
	{name: "in/s", right: true},
	{name: "out/s", right: true},
	{name: "answer", right: true, drop: 1},
	{name: "waits", right: true, drop: 4},
	{name: "weight", right: true, drop: 6},
	{name: "why"},
}

func (e *earlier) endpointTable(s *admin.Status) table {
	t := table{columns: endpointColumns}
	for i := range s.Upstreams {
		u := &s.Upstreams[i]
		for j := range u.Endpoints {
			t.rows = append(t.rows, e.endpointRow(u.Name, &u.Endpoints[j]))
		}
	}
	// The least healthy ones are first, and then those with the most traffic, unless a column is chosen.
	slices.SortStableFunc(t.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.tone, a.tone), cmp.Compare(b.cells[6].key+b.cells[7].key, a.cells[6].key+a.cells[7].key))
	})
	return t
}

func (e *earlier) endpointRow(upstream string, ep *admin.Endpoint) row {
	was := e.endpoints[keyOf(upstream, ep)]
	begun, failed := e.endpointRates(upstream, ep)
	f := flowOf(bytesOf(was, func(ep *admin.Endpoint) *admin.Bytes { return &ep.Bytes }), &ep.Bytes, e.time)
	state := string(ep.State)
	if ep.Breaker != "" {
		state += ", " + ep.Breaker
	}
	why := causeOf(ep)
	return row{tone: toneOf(ep), detail: why, cells: []cell{
		name(upstream), name(ep.Name), figure(display.Text(state), toneOf(ep)), limited(ep.Active, ep.Max), figure(begun.count(), begun), figure(failed.count(), failed),
		figure(f.in.bytes(), f.in), figure(f.out.bytes(), f.out), span(answerOf(was, ep)), waitsOf(was, ep), figure(fmt.Sprint(ep.Weight), ep.Weight), name(why),
	}}
}

// toneOf is how urgent the state of an endpoint is.
func toneOf(ep *admin.Endpoint) tone {
	switch {
	case ep.State == admin.Down || ep.State == admin.Ejected:
		return bad
	case ep.State == admin.Standby && ep.Unanswered == 0:
		return calm
	case ep.State != admin.Up || ep.Breaker != "" || ep.Unanswered > 0 || ep.Weight == 0:
		return warn
	}
	return calm
}

var loopColumns = []column{
	{name: "loop", right: true},
	{name: "active", right: true},
	{name: "new/s", right: true},
	{name: "turns/s", right: true},
	{name: "lag p99", right: true},
	{name: "longest", right: true},
	{name: "ever", right: true, drop: 1},
	{name: "late p99", right: true, drop: 2},
	{name: "late ever", right: true, drop: 3},
	{name: "turns over 1 ms", right: true},
}

func (e *earlier) loopTable(s *admin.Status) table {
	t := table{columns: loopColumns}
	for i := range s.Loops {
		l := &s.Loops[i]
		accepted, turns, late := unknown, unknown, admin.Within(nil, l.TimerLate)
		if e.status != nil && i < len(e.status.Loops) {
			was := &e.status.Loops[i]
			accepted, turns = between(was.Accepted, l.Accepted, e.time), between(was.Turns, l.Turns, e.time)
			late = admin.Within(was.TimerLate, l.TimerLate)
		}
		lag, tone := e.lagOf(s, i), calm
		if lag.Longest > time.Millisecond {
			tone = warn
		}
		t.rows = append(t.rows, row{tone: tone, cells: []cell{
			{fmt.Sprint(l.Index), -float64(l.Index)},
			figure(fmt.Sprint(l.Active), l.Active), figure(accepted.count(), accepted), figure(turns.count(), turns),
			span(lag.P99), span(lag.Longest), span(time.Duration(l.LagMaxUs) * time.Microsecond), span(late.P99), span(time.Duration(l.TimerLateMaxUs) * time.Microsecond),
			figure(fmt.Sprint(l.LongTurns), l.LongTurns),
		}})
	}
	return t
}

// lagOf is the lag of a loop between the looks, and before a second one of all time.
func (e *earlier) lagOf(s *admin.Status, i int) admin.Lag {
	l := &s.Loops[i]
	var before []int64
	if e.status != nil && i < len(e.status.Loops) {
		before = e.status.Loops[i].Lag
	}
	lag, longest := admin.Within(before, l.Lag), time.Duration(l.LagMaxUs)*time.Microsecond
	lag.P99, lag.Longest = min(lag.P99, longest), min(lag.Longest, longest) // they are powers of two
	return lag
}

// span is a cell of a time; 0 is unknown.
func span(d time.Duration) cell {
	if d == 0 {
		return figure("-", 0)
	}
	return figure(short(d).String(), int64(d))
}

// short rounds a time to what is of interest.
func short(d time.Duration) time.Duration {
	switch {
	case d < 100*time.Microsecond:
		return d.Round(time.Microsecond)
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// age writes a time to the second, and from two days on to the hour.
func age(d time.Duration) string {
	if hours := int(d.Hours()); hours >= 48 {
		return fmt.Sprintf("%dd%dh", hours/24, hours%24)
	}
	return d.Round(time.Second).String()
}

var problemColumns = []column{
	{name: "severity"},
	{name: "since", right: true},
	{name: "problem"},
}

func problemTable(s *admin.Status, now time.Time) table {
	t := table{columns: problemColumns}
	for _, p := range s.Problems {
		tone, rank := warn, 0
		if p.Severity == admin.Outage {
			tone, rank = bad, 1
		}
		since := figure("-", -1)
		if !p.Since.IsZero() {
			d := max(now.Sub(p.Since), 0)
			since = figure(age(d), d)
		}
		text := oneLine(p.Text)
		t.rows = append(t.rows, row{tone: tone, detail: text, cells: []cell{figure(display.Text(string(p.Severity)), rank), since, {text: text}}})
	}
	return t
}
