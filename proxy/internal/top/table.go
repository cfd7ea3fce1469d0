package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// A tone says how urgent a row is.
type tone int

const (
	calm tone = iota
	faint
	warn
	bad
)

// A column of a table.
type column struct {
	name  string
	right bool // aligned, as numbers are
	drop  int  // columns with the highest drop are left out first if there is no room; 0 means never
	limit int  // largest width; 0 is no limit. The last column takes the remaining room
}

// A cell is a text, and the key to sort it by if that is not the text.
type cell struct {
	text string
	key  float64
}

func name(text string) cell { return cell{text: display.Text(text)} }

// figure returns a cell that is sorted by a number.
func figure[T ~int | ~int64 | ~float64](text string, key T) cell {
	return cell{text, float64(key)}
}

// A row of a table.
type row struct {
	cells  []cell
	tone   tone
	detail string // the complete text of the last cell, which may have no room for it
}

// contains reports whether the row contains a text. The text is in lower case.
func (r *row) contains(text string) bool {
	return slices.ContainsFunc(r.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), text) })
}

// A table has rows with the same columns.
type table struct {
	columns []column
	rows    []row
}

// A sorting is the column to sort by. Numbers begin with the largest, texts with the first.
type sorting struct {
	column   int
	reversed bool
}

// sort sorts the rows. Equal rows keep their order.
func (t *table) sort(by sorting) {
	if by.column >= len(t.columns) {
		return
	}
	slices.SortStableFunc(t.rows, func(a, b row) int {
		x, y := &a.cells[by.column], &b.cells[by.column]
		order := cmp.Or(cmp.Compare(y.key, x.key), strings.Compare(x.text, y.text))
		if by.reversed {
			return -order
		}
		return order
	})
}

// filter keeps the rows that contain a text, in upper or lower case.
func (t *table) filter(text string) {
	if text = strings.ToLower(text); text == "" {
		return
	}
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return !r.contains(text) })
}

// A layout has the widths of the columns. A column with width 0 is left out.
type layout []int

// gap is the space between two columns.
const gap = 2

// layout chooses the widths from all rows, so that scrolling does not change them.
func (t *table) layout(width int) layout {
	widths := make(layout, len(t.columns))
	for i, c := range t.columns {
		widths[i] = len(c.name) + 1 // with room for the mark of the sorting
	}
	for i := range t.rows {
		for j := range t.rows[i].cells {
			widths[j] = max(widths[j], ansi.StringWidth(t.rows[i].cells[j].text))
		}
	}
	last := len(widths) - 1
	for i, c := range t.columns {
		if c.limit > 0 {
			widths[i] = min(widths[i], c.limit)
		}
	}
	fixed := widths[:last].sum()
	for fixed+min(widths[last], leastLast) > width && widths.leaveOut(t.columns) {
		fixed = widths[:last].sum()
	}
	widths[last] = min(widths[last], max(width-fixed, 0))
	return widths
}

// leastLast is the least room that the last column should have.
const leastLast = 11

// sum returns the room of columns, with the gap after each.
func (l layout) sum() (n int) {
	for _, w := range l {
		if w > 0 {
			n += w + gap
		}
	}
	return n
}

// leaveOut leaves out the column that is needed least, and reports whether there was one to leave out.
func (l layout) leaveOut(columns []column) bool {
	least := -1
	for i, c := range columns[:len(columns)-1] {
		if l[i] > 0 && c.drop > 0 && (least < 0 || c.drop > columns[least].drop) {
			least = i
		}
	}
	if least >= 0 {
		l[least] = 0
	}
	return least >= 0
}

func (t *table) line(l layout, texts func(i int) string) string {
	var b strings.Builder
	for i, c := range t.columns {
		w := l[i]
		if w == 0 {
			continue
		}
		text := ansi.Truncate(texts(i), w, "…")
		space := strings.Repeat(" ", max(w-ansi.StringWidth(text), 0))
		if c.right {
			b.WriteString(space + text)
		} else {
			b.WriteString(text + space)
		}
		b.WriteString("  ")
	}
	return strings.TrimRight(b.String(), " ")
}

// header returns the line with the names of the columns. The column that rows are sorted by has a mark.
func (t *table) header(l layout, by sorting) string {
	return t.line(l, func(i int) string {
		switch {
		case i != by.column:
			return t.columns[i].name
		case by.reversed:
			return t.columns[i].name + "↑"
		}
		return t.columns[i].name + "↓"
	})
}

func (t *table) text(l layout, r *row) string {
	return t.line(l, func(i int) string { return r.cells[i].text })
}

// A picture has the tables of two looks, and the rates of the whole process.
type picture struct {
	listeners, upstreams, endpoints, loops, problems table

	accepted, refused rate
	flow              flow
	lag               admin.Lag // of all loops
}

// pictureOf makes the tables from a look and the previous one, which may be nil.
func pictureOf(before, now *Look) *picture {
	e := earlierOf(before, now)
	s := &now.Status
	p := &picture{
		accepted: between(e.status.Connections.Accepted, s.Connections.Accepted, e.time),
		refused:  between(e.status.Connections.Refused, s.Connections.Refused, e.time),
		flow:     flowOf(&e.status.Bytes, &s.Bytes, e.time),
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
		before, since := was(e, e.listeners, l.Name)
		f := flowOf(&before.Bytes, &l.Bytes, since)
		accepted := between(before.Connections.Accepted, l.Connections.Accepted, since)
		refused := between(before.Connections.Refused, l.Connections.Refused, since)
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

// limited formats a number and its limit. A limit of 0 is none.
func limited(n, limit int64) cell {
	if limit <= 0 {
		return figure(fmt.Sprint(n), n)
	}
	return figure(fmt.Sprintf("%d/%d", n, limit), n)
}

// queueOf returns the fullest accept queue of a listener.
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
		before, since := was(e, e.upstreams, u.Name)
		f := flowOf(&before.Bytes, &u.Bytes, since)
		none := between(0, 0, since) // the endpoints' rates are added to it
		up, begun, failed := 0, none, none
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

func (e *earlier) endpointRates(upstream string, ep *admin.Endpoint) (begun, failed rate) {
	before, since := was(e, e.endpoints, keyOf(upstream, ep))
	return between(before.Total, ep.Total, since), between(before.Failures, ep.Failures, since)
}

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
	// The least healthy endpoints come first, and then the endpoints with the most traffic, unless the user has
	// chosen a column.
	slices.SortStableFunc(t.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.tone, a.tone), cmp.Compare(b.cells[6].key+b.cells[7].key, a.cells[6].key+a.cells[7].key))
	})
	return t
}

func (e *earlier) endpointRow(upstream string, ep *admin.Endpoint) row {
	before, since := was(e, e.endpoints, keyOf(upstream, ep))
	begun, failed := e.endpointRates(upstream, ep)
	f := flowOf(&before.Bytes, &ep.Bytes, since)
	state := string(ep.State)
	if ep.Breaker != "" {
		state += ", " + ep.Breaker
	}
	if ep.Backup {
		state += ", backup"
	}
	why := causeOf(ep)
	return row{tone: toneOf(ep), detail: why, cells: []cell{
		name(upstream), name(ep.Name), figure(display.Text(state), toneOf(ep)), limited(ep.Active, ep.Max), figure(begun.count(), begun), figure(failed.count(), failed),
		figure(f.in.bytes(), f.in), figure(f.out.bytes(), f.out), span(answerOf(before, ep)), waitsOf(before, ep), figure(fmt.Sprint(ep.Weight), ep.Weight), name(why),
	}}
}

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
	{name: "turn p99", right: true},
	{name: "turn max", right: true},
	{name: "since start", right: true, drop: 1},
	{name: "timer late p99", right: true, drop: 2},
	{name: "timer late max", right: true, drop: 3},
	{name: "turns over 1 ms", right: true},
}

func (e *earlier) loopTable(s *admin.Status) table {
	t := table{columns: loopColumns}
	for i := range s.Loops {
		l := &s.Loops[i]
		accepted, turns, late := unknown, unknown, admin.Within(nil, l.TimerLate, l.TimerLateMaxUs)
		if i < len(e.status.Loops) {
			was := &e.status.Loops[i]
			accepted, turns = between(was.Accepted, l.Accepted, e.time), between(was.Turns, l.Turns, e.time)
			late = admin.Within(was.TimerLate, l.TimerLate, l.TimerLateMaxUs)
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

// lagOf returns the lag of a loop between the looks, or of all time before a second look.
func (e *earlier) lagOf(s *admin.Status, i int) admin.Lag {
	l := &s.Loops[i]
	var before []int64
	if i < len(e.status.Loops) {
		before = e.status.Loops[i].Lag
	}
	return admin.Within(before, l.Lag, l.LagMaxUs)
}

// span returns a cell with a time. 0 is unknown.
func span(d time.Duration) cell {
	if d == 0 {
		return figure("-", 0)
	}
	return figure(short(d).String(), int64(d))
}

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

// age formats a time to the second, and from two days on to the hour.
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

// answerOf returns the mean time to an endpoint's first answers since the previous look, or of all answers if there was
// none since then. It returns 0 without answers.
func answerOf(was, now *admin.Endpoint) time.Duration {
	a := now.Answers
	if a == nil || a.Made == 0 {
		return 0
	}
	n, us := a.Made, a.SumUs
	if was.Answers != nil && was.Answers.Made < n && was.Answers.SumUs <= us {
		n, us = n-was.Answers.Made, us-was.Answers.SumUs
	}
	return time.Duration(us/n) * time.Microsecond
}

// waitsOf returns the share of sessions' time that was lost to an endpoint and its network, by their verdicts. It
// counts the sessions that have ended since the previous look, or all if none has.
func waitsOf(was, now *admin.Endpoint) cell {
	lost, all := now.Waited()
	if lostBefore, before := was.Waited(); before < all && lostBefore <= lost {
		lost, all = lost-lostBefore, all-before
	}
	if all == 0 || now.State == admin.Down { // no client has used it lately
		return figure("-", -1)
	}
	share := lost.Seconds() / all.Seconds()
	return figure(fmt.Sprintf("%.0f %%", 100*share), share)
}

// causeOf returns in words the cause of an endpoint's state, or its last failure, and the changes to it by hand.
func causeOf(ep *admin.Endpoint) string {
	hand := strings.Join(ep.ByHand, ", ")
	why := stateCause(ep)
	switch {
	case why != "" && hand != "":
		return why + "; " + hand
	case why == "" && hand == "" && ep.Weight == 0 && ep.State == admin.Up:
		return "weight 0: it gets no clients"
	}
	return why + hand
}

// stateCause is causeOf without the changes by hand.
func stateCause(ep *admin.Endpoint) string {
	switch {
	case ep.Why != "":
		return ep.Why
	case ep.BreakerWhy != "":
		return "breaker: " + ep.BreakerWhy
	case ep.Unanswered > 0:
		return fmt.Sprintf("%s for an answer, for up to %v", display.Plural(int64(ep.Unanswered), "client waits", "clients wait"), short(time.Duration(max(ep.UnansweredMs, 1))*time.Millisecond))
	case ep.LastFailure != nil && !ep.LastFailure.Over:
		return ep.LastFailure.Cause
	}
	return ""
}

var sessionColumns = []column{
	{name: "client", limit: 28},
	{name: "endpoint", limit: 24},
	{name: "limited by"},
	{name: "age", right: true, drop: 1},
	{name: "in/s", right: true, drop: 2},
	{name: "out/s", right: true},
	{name: "why"},
}

// sessionTable has the sessions that were kept waiting the longest, and what slows them down.
func sessionTable(y *admin.Why) table {
	t := table{columns: sessionColumns}
	window := time.Duration(y.WindowUs) * time.Microsecond
	for i := range y.Sessions {
		s := &y.Sessions[i]
		f := flow{unknown, unknown}
		if s.ClientLeg != nil && window > 0 {
			f = flow{between(0, s.ClientLeg.Received, window), between(0, s.ClientLeg.Sent, window)}
		}
		old := time.Duration(s.AgeUs) * time.Microsecond
		tone := calm
		switch s.Verdict {
		case "idle", "unknown":
			tone = faint
		case "proxy":
			tone = warn
		}
		t.rows = append(t.rows, row{tone: tone, detail: s.Why, cells: []cell{
			name(s.Client), name(admin.Label(s.Name, s.Endpoint)), name(s.Verdict), figure(short(old).String(), old),
			figure(f.in.bytes(), f.in), figure(f.out.bytes(), f.out), name(oneLine(s.Why)),
		}})
	}
	return t
}

// verdictLines returns the verdict on all sessions, and the advice.
func verdictLines(y *admin.Why) []string {
	if y == nil {
		return []string{"measuring sessions ..."}
	}
	if y.Count == 0 {
		return []string{oneLine(y.Advice)}
	}
	var parts []string
	for _, kind := range y.Kinds() {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", display.Text(kind), 100*y.Shares[kind]))
	}
	more := ""
	if y.More {
		more = " and more"
	}
	return []string{fmt.Sprintf("time of %d %s%s: %s", y.Count, cmp.Or(map[bool]string{true: "session"}[y.Count == 1], "sessions"), more, strings.Join(parts, ", ")), oneLine(y.Advice)}
}
