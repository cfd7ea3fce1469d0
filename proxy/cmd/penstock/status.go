package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type statusCmd struct {
	processFlags
	JSON     bool   `name:"json" help:"Print JSON, with everything that is counted."`
	Problems bool   `help:"Show only the problems."`
	All      bool   `help:"Show every endpoint. Without this flag, if there are more than 40 endpoints, only those with a problem or a change by hand are listed, and the rest are summed up."`
	Listener string `placeholder:"NAME" help:"Show only the process and this listener."`
	Upstream string `placeholder:"NAME" help:"Show only the process and this upstream."`
	ExitCode bool   `help:"Exit with 3 if there are warnings, and with 4 if clients are not served. With --listener or --upstream, problems of other listeners and upstreams do not count."`
}

func (c *statusCmd) Run(e *cli.Env) error {
	return c.ask(e, "status", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		if err == nil {
			err = c.narrow(&s)
		}
		switch {
		case err != nil:
			return err
		case c.Problems && c.JSON:
			err = writeJSON(e.Stdout, s.Problems)
		case c.JSON:
			err = writeJSON(e.Stdout, &s)
		case c.Problems:
			err = writeProblems(e.Stdout, s.Problems)
		default:
			err = writeStatus(e.Stdout, &s, time.Now(), c.All)
		}
		if err == nil && c.ExitCode {
			err = verdict(s.Problems)
		}
		return err
	})
}

// writeProblems writes a line for each problem, or says that there are none.
func writeProblems(w io.Writer, problems []admin.Problem) error {
	lines := problemLines(problems, len(problems))
	if len(lines) == 0 {
		lines = []string{"no problems"}
	}
	return say(w, "%s\n", strings.Join(lines, "\n"))
}

func writeJSON(w io.Writer, v any) error {
	form := json.NewEncoder(display.NewWriter(w))
	form.SetIndent("", "  ")
	return form.Encode(v)
}

// verdict returns the exit code for the worst problem, or nil without problems.
func verdict(problems []admin.Problem) error {
	switch {
	case len(problems) == 0:
		return nil
	case slices.ContainsFunc(problems, func(p admin.Problem) bool { return p.Severity == admin.Outage }):
		return cli.ExitCode(cli.ExitOutage)
	}
	return cli.ExitCode(cli.ExitWarnings)
}

// narrow reduces a status to the selected listener and upstream. It fails if one of them does not exist.
func (c *statusCmd) narrow(s *admin.Status) (err error) {
	if c.Listener == "" && c.Upstream == "" {
		return nil
	}
	nameOfListener := func(l admin.Listener) string { return l.Name }
	nameOfUpstream := func(u admin.Upstream) string { return u.Name }
	if s.Listeners, err = only(s.Listeners, "listener", c.Listener, nameOfListener); err == nil {
		s.Upstreams, err = only(s.Upstreams, "upstream", c.Upstream, nameOfUpstream)
	}
	s.Problems = slices.DeleteFunc(s.Problems, func(p admin.Problem) bool {
		return p.Listener != "" && p.Listener != c.Listener || p.Upstream != "" && p.Upstream != c.Upstream
	})
	return err
}

func only[T any](list []T, kind, name string, nameOf func(T) string) ([]T, error) {
	if name == "" {
		return []T{}, nil
	}
	if i := slices.IndexFunc(list, func(of T) bool { return nameOf(of) == name }); i >= 0 {
		return list[i : i+1], nil
	}
	names := make([]string, 0, 10)
	for _, of := range list[:min(len(list), cap(names))] {
		names = append(names, nameOf(of))
	}
	if len(list) > len(names) {
		names = append(names, "...")
	}
	return nil, fmt.Errorf("there is no %s %q, known: %s", kind, name, strings.Join(names, ", "))
}

// A statusText is a status as text: a table, with notes below a row if they would make it too wide.
type statusText struct {
	now   time.Time
	short bool       // endpoints are summed up
	rows  []string   // cells, separated by tabs
	notes [][]string // of each row
}

func (t *statusText) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = display.Text(cell)
	}
	t.rows, t.notes = append(t.rows, strings.Join(cells, "\t")), append(t.notes, nil)
}

// note adds a line below the last row.
func (t *statusText) note(format string, args ...any) {
	last := len(t.notes) - 1
	t.notes[last] = append(t.notes[last], oneLine(fmt.Sprintf(format, args...)))
}

func (t *statusText) noteIf(holds bool, format string, args ...any) {
	if holds {
		t.note(format, args...)
	}
}

// when returns the text if something holds, and else "".
func when(holds bool, text string) string {
	if !holds {
		return ""
	}
	return text
}

// write writes the lines of above, the table, and then the text below.
func (t *statusText) write(w io.Writer, above []string, below string) error {
	var table strings.Builder
	form := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		fmt.Fprintln(form, r)
	}
	if err := form.Flush(); err != nil {
		return err
	}
	var text strings.Builder
	for _, line := range above {
		text.WriteString(line + "\n")
	}
	i := 0
	for line := range strings.Lines(table.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
		for _, note := range t.notes[i] {
			fmt.Fprintf(&text, "      %s\n", note)
		}
		i++
	}
	_, err := io.WriteString(w, text.String()+below)
	return err
}

// mostEndpoints is how many endpoints a status may have for each to get a row.
const mostEndpoints = 40

// writeStatus writes a status as text, as seen at the time now. Without all, many endpoints are summed up.
func writeStatus(w io.Writer, s *admin.Status, now time.Time, all bool) error {
	t := &statusText{now: now}
	endpoints := 0
	for i := range s.Upstreams {
		endpoints += len(s.Upstreams[i].Endpoints)
	}
	t.short = !all && endpoints > mostEndpoints
	t.row("process", fmt.Sprint(s.PID), string(s.State), fmt.Sprintf("up %v, generation %d for %v", since(now, s.Started), s.Generation, since(now, s.GenerationSince)))
	if r := s.Refused; r != nil && !r.Automatic { // otherwise it is a problem
		t.note("generation %d was rolled back at %s, by %s, but %s still has it: the next reload or start brings it back. penstock plan shows the difference", r.Generation, r.At.Local().Format(time.TimeOnly), r.By, r.Path)
	}
	t.row("connections", "", "", clients(s.Connections)+", "+traffic(s.Bytes))
	t.noteIf(s.Lost > 0, "%s "+undelivered, display.Bytes(s.Lost))
	for _, reason := range slices.Sorted(maps.Keys(s.Fallbacks)) {
		t.note("%s copied, not spliced: %s", plural(s.Fallbacks[reason], "direction was", "directions were"), cmp.Or(copiedBecause[reason], reason))
	}
	if s.TLSSessions.Active > 0 {
		t.row("  of them TLS", "", "", active(s.TLSSessions.Active, s.TLSSessions.Most))
	}
	if s.Lane != nil {
		t.row("lane", "", "", laneLine(s.Lane))
		t.noteIf(len(s.Lane.Stays) > 0, "attempts that stayed in user space: %s", listed(s.Lane.Stays))
	}
	t.row("pipes", "", "", fmt.Sprintf("in use %d, idle %d, made %d, reused %d", s.Pipes.Leased, s.Pipes.Idle, s.Pipes.Made, s.Pipes.Reused))
	if l := s.SessionLog; l != nil {
		lost := total(l.Dropped)
		t.row("session log", "", "", fmt.Sprintf("%s, %d dropped", plural(l.Lines, "line", "lines"), lost))
		t.noteIf(lost > 0, "dropped: %s", listed(l.Dropped))
	}
	if s.Traces != nil {
		t.traces(s.Traces, s.Connections.Accepted)
	}
	t.memory(&s.Arena)
	t.row("loops", "", "", fmt.Sprintf("%d, on CPU %s%s", len(s.Loops), cmp.Or(s.CPUs, "unknown"), longestTurn(s.Loops)))
	for i := range s.Listeners {
		t.listener(&s.Listeners[i])
	}
	for i := range s.Upstreams {
		t.upstream(&s.Upstreams[i])
	}
	for _, name := range slices.Sorted(maps.Keys(s.RemovedSessions)) {
		t.continues("upstream", name, string(admin.Removed), s.RemovedSessions[name], s.RemovedUntil[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.ClosedListeners)) {
		t.continues("listener", name, "closed", s.ClosedListeners[name].Sessions, s.ClosedListeners[name].Until)
	}
	t.live(s.Live)
	t.denied(s.DeniedByHand)
	return t.write(w, problemLines(s.Problems, maxProblems), "")
}

// undelivered says what happened to lost bytes.
const undelivered = "not delivered: a receiver left, or its session was ended"

// copiedBecause are the reasons why a direction is not spliced, see relay.Fallback.
var copiedBecause = map[string]string{
	"wrapped": "TLS ends here", "unsupported": "splice cannot be used between their sockets", "refused": "the kernel refused to splice",
	"budget": "no pipe was left in the budget", "descriptors": "no descriptor was left for a pipe", "closed": "the process was ending",
	"urgent": "urgent bytes arrived", "half-close": "the other side cannot be half-closed", "compare": "a mirror's answers are compared", "rewrite": "their bytes are rewritten",
}

// since returns the time between then and now, in whole seconds.
func since(now, then time.Time) time.Duration { return max(now.Sub(then), 0).Round(time.Second) }

// longestTurn describes the loop with the longest turn.
func longestTurn(loops []admin.Loop) string {
	if len(loops) == 0 {
		return ""
	}
	worst := slices.MaxFunc(loops, func(a, b admin.Loop) int { return cmp.Compare(a.LagMaxUs, b.LagMaxUs) })
	if worst.LagMaxUs == 0 {
		return ""
	}
	return fmt.Sprintf(", longest turn %v (loop %d)", time.Duration(worst.LagMaxUs)*time.Microsecond, worst.Index)
}

func (t *statusText) live(list []admin.LiveChange) {
	if len(list) == 0 {
		return
	}
	t.row("manual changes", "", "", strconv.Itoa(len(list)))
	for i := range list {
		c := &list[i]
		t.note("%s, by %s at %s", c.What, c.By, c.Since.Local().Format(time.DateTime))
		t.noteIf(c.Waits != "", "  without effect: %s", c.Waits)
	}
}

func (t *statusText) denied(d *admin.Denials) {
	if d == nil {
		return
	}
	t.row("denied by hand", "", "", count(d.Count, "source"))
	for i := range d.Latest {
		one := &d.Latest[i]
		at := "all listeners"
		if one.Listener != "" {
			at = "listener " + one.Listener + when(one.Waits != "", " ("+one.Waits+")")
		}
		t.note("%s at %s until %s, by %s", one.Source, at, one.Until.Local().Format(time.DateTime), cmp.Or(one.By, "-"))
	}
	if more := d.Count - len(d.Latest); more > 0 {
		t.note("... and %d more, see penstock deny list", more)
	}
}

func (t *statusText) traces(s *admin.Traces, accepted int64) {
	state := "off"
	if s.Endpoint != "" {
		state = fmt.Sprintf("%g %%", s.Sample)
	}
	t.row("traces", "", state, fmt.Sprintf("sampled %d of %d clients, exported %d, open %d, queued %d", s.Sampled, accepted, s.Exported, s.Open, s.Queued))
	dropped := total(s.Dropped)
	t.noteIf(dropped > 0 || s.Unconfirmed > 0, "dropped %d%s, unconfirmed %d", dropped, byReason(s.Dropped), s.Unconfirmed)
	t.noteIf(s.LastError != "", "last failed request at %s: %s", s.LastErrorAt.Local().Format("15:04:05"), s.LastError)
}

func (t *statusText) memory(a *admin.Arena) {
	text := fmt.Sprintf("buffers: %s of %s, %s in use", doctor.Size(a.Budget), cmp.Or(a.Pages, "unknown pages"), doctor.Size(a.Used))
	text += when(a.Locked, ", locked")
	text += when(len(a.Nodes) > 0, ", on NUMA node "+topology.NewSet(slices.Clone(a.Nodes)...).String())
	t.row("memory", "", "", text)
	t.noteIf(a.Fallback != "" && a.Huge == 0, "no huge pages: %s", a.Fallback)
	t.noteIf(a.Unbound != "", "not bound to a NUMA node: %s", a.Unbound)
	t.noteIf(a.HeapResidues > 0, "kept on the heap because the arena was full: %s", plural(a.HeapResidues, "time", "times"))
}

// maxProblems is how many problems have a line. Further problems are only counted.
const maxProblems = 40

func problemLines(problems []admin.Problem, most int) (lines []string) {
	for _, p := range problems[:min(len(problems), most)] {
		text := oneLine(p.Text)
		since := p.Since.Local()
		timed := p.Since.IsZero() || strings.Contains(text, "since ") || strings.Contains(text, "within the last minute") || strings.Contains(text, since.Format(time.TimeOnly))
		text += when(!timed, " (since "+since.Format(time.DateTime)+")")
		lines = append(lines, fmt.Sprintf("%-7s  %s", display.Text(strings.ToUpper(string(p.Severity))), text))
	}
	if more := len(problems) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("...      and %s: penstock status --problems lists all of them", plural(int64(more), "more problem", "more problems")))
	}
	return lines
}

// writeTable writes rows and then the line last. The first row has the names of the columns.
func writeTable(w io.Writer, rows [][]string, last string) error {
	t := new(statusText)
	for _, row := range rows {
		t.row(row...)
	}
	return t.write(w, nil, last)
}

func say(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}

// andMore returns the last line of a list that leaves n items out, or "".
func andMore(n int) string {
	return when(n > 0, fmt.Sprintf("... and %d more\n", n))
}

// oneLine joins lines into one: joined errors have several.
func oneLine(text string) string { return display.Text(strings.ReplaceAll(text, "\n", "; ")) }

// continues writes a row for sessions of a part that is gone; until is when the last of them is reset, or zero.
func (t *statusText) continues(kind, name, state string, sessions int64, until time.Time) {
	text := plural(sessions, "session continues", "sessions continue")
	if !until.IsZero() {
		text += " until " + t.until(until)
	}
	t.row(kind, name, state, text)
}

// until formats a time, and how long it is until then.
func (t *statusText) until(at time.Time) string {
	return fmt.Sprintf("%s (in %v)", at.Local().Format("15:04:05"), max(at.Sub(t.now), 0).Round(time.Second))
}

func clients(c admin.Connections) string {
	text := fmt.Sprintf("%s, accepted %d, refused %d", active(c.Active, c.Most), c.Accepted, c.Refused)
	text += when(c.Left > 0, fmt.Sprintf(", left before an endpoint %d", c.Left))
	return text
}

// active formats a number and its limit; 0 means no limit.
func active(n, limit int64) string {
	switch {
	case limit <= 0:
		return fmt.Sprintf("active %d", n)
	case n >= limit:
		return fmt.Sprintf("active %d of %d (limit)", n, limit)
	}
	return fmt.Sprintf("active %d of %d", n, limit)
}

func traffic(b admin.Bytes) string {
	return fmt.Sprintf("in %s, out %s", display.Bytes(b.ClientToEndpoint.All()), display.Bytes(b.EndpointToClient.All()))
}

func byReason(counts map[string]int64) string {
	return when(len(counts) > 0, " ("+listed(counts)+")")
}

func total(counts map[string]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

func (t *statusText) listener(l *admin.Listener) {
	state := string(l.State)
	state += when(l.PausedAt != "", " ("+l.PausedAt+")")
	t.row("listener", l.Name, state, fmt.Sprintf("%s%s, %s%s", clients(l.Connections), byReason(l.Reasons), traffic(l.Bytes), listensAt(l)))
	t.congestion(l.Congestion)
	t.noteIf(len(l.Pauses) > 0, "has paused at its limits%s", byReason(l.Pauses))
	t.noteIf(len(l.Protocols) > 0, "clients by their first bytes%s", byReason(l.Protocols))
	for i, r := range l.Routes {
		t.noteIf(len(r.To) > 1, "route %d is split%s: %s", i, matched(r.Match), shares(r.To))
	}
	t.mirrors(l.Mirrors)
	t.silentMirrors(l)
	t.rewrites(l.Rewrites)
	for i := range l.Filters {
		t.filter(&l.Filters[i])
	}
}

func (t *statusText) filter(f *admin.Filter) {
	t.note("filter %s (%s): %d calls of %s%s", f.Name, f.Engine, f.Calls, mean(f.TimeUs, f.Calls), byReason(f.Answers))
	t.noteIf(len(f.Failures) > 0, "filter %s has not answered%s", f.Name, byReason(f.Failures))
}

func (t *statusText) mirrors(m *admin.Mirrors) {
	if m == nil {
		return
	}
	t.note("mirrors to %s: %d running, %d ended%s; %s teed, %s copied, %s undelivered", mirroredTo(m), m.Running, total(m.Ended), byReason(m.Ended),
		display.Bytes(m.Teed), display.Bytes(m.Copied), display.Bytes(m.Undelivered))
	for i := range m.Comparisons {
		k := &m.Comparisons[i]
		t.note("compared with %s%s: %s", k.To, matched(k.Route), comparisonLine(k))
	}
}

// mostSilent is how many mirrors in a row must be without an answer for a warning.
const mostSilent = 10

// silentMirrors warns of a mirror's endpoint that takes bytes and never answers while clients get answers.
func (t *statusText) silentMirrors(l *admin.Listener) {
	if m := l.Mirrors; m != nil && m.Silent >= mostSilent && l.Bytes.EndpointToClient.All() > 0 {
		t.note("WARNING: the last %d complete mirrors got no byte of an answer. Is the mirror's endpoint frozen?", m.Silent)
	}
}

// listensAt returns the addresses of a listener, with the lengths of their accept queues; a drained listener has none.
func listensAt(l *admin.Listener) string {
	list := slices.Clone(l.Addresses)
	for i, q := range l.Queues {
		if i >= len(list) {
			break
		}
		switch {
		case !q.Known:
			list[i] += " (accept queue unknown)"
		case q.Dropped > 0:
			list[i] += fmt.Sprintf(" (accept queue %d of %d, overflowed %d)", q.Length, q.Most, q.Dropped)
		case !q.DroppedKnown && !strings.HasPrefix(q.Address, "unix:"):
			list[i] += fmt.Sprintf(" (accept queue %d of %d, overflows unknown)", q.Length, q.Most)
		default:
			list[i] += fmt.Sprintf(" (accept queue %d of %d)", q.Length, q.Most)
		}
	}
	return when(len(list) > 0, "; "+strings.Join(list, ", "))
}

func matched(match string) string {
	return when(match != "", " ("+match+")")
}

func shares(to map[string]float64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(to)) {
		list = append(list, fmt.Sprintf("%s %v %%", name, to[name]))
	}
	return strings.Join(list, ", ")
}

func (t *statusText) upstream(u *admin.Upstream) {
	refused := byReason(u.Reasons)
	if refused != "" {
		refused = ", refused" + refused
	}
	held := when(u.Held > 0, fmt.Sprintf(", waited %d", u.Held))
	state := u.Balance
	state += when(u.Breaker != "" && u.Breaker != "closed", ", breaker "+u.Breaker)
	t.row("upstream", u.Name, state, fmt.Sprintf("%s, waiting %d%s%s, %s", active(max(u.Active, u.Connections), u.Most), u.Pending, held, refused, traffic(u.Bytes)))
	t.circuit(u.BreakerWhy, u.BreakerUntil)
	t.congestion(u.Congestion)
	t.noteIf(u.Unkeyed > 0, "hashed by their source, because they had no %s: %s", u.BalanceOn, plural(u.Unkeyed, "session", "sessions"))
	t.noteIf(u.EjectionsWithheld > 0, "not ejected because of max_ejected: %s", plural(u.EjectionsWithheld, "failure", "failures"))
	t.noteIf(u.Panic, "too few endpoints are healthy: all are used")
	t.discovery(u.Discovery)
	t.endpoints(u.Endpoints)
}

// maxListed is how many endpoints of an upstream have a row if endpoints are summed up.
const maxListed = 10

// endpoints writes the endpoints of an upstream, or sums them up and lists those with a problem or a change by hand.
func (t *statusText) endpoints(list []admin.Endpoint) {
	if !t.short {
		for i := range list {
			t.endpoint(&list[i])
		}
		return
	}
	states, weight, odd := make(map[string]int64), 0, []*admin.Endpoint{}
	for i := range list {
		e := &list[i]
		states[string(e.State)]++
		weight += e.Weight
		if e.Reason() != "" || e.Silence != nil || e.Failing != nil || e.Connecting != nil || len(e.ByHand) > 0 {
			odd = append(odd, e)
		}
	}
	t.row("  endpoints", strconv.Itoa(len(list)), "", fmt.Sprintf("%s; weight %d in all", listed(states), weight))
	for _, e := range odd[:min(len(odd), maxListed)] {
		t.endpoint(e)
	}
	if more := len(odd) - maxListed; more > 0 {
		t.note("... and %d more with a problem or a change by hand: penstock status --all lists all", more)
	}
}

func (t *statusText) circuit(why string, until time.Time) {
	switch {
	case why == "":
	case until.IsZero():
		t.note("breaker: %s", why)
	default:
		t.note("breaker open until %s: %s", t.until(until), why)
	}
}

// discovery notes where endpoints come from, and failures to look them up.
func (t *statusText) discovery(d *admin.Discovery) {
	if d == nil {
		return
	}
	found := fmt.Sprintf("%s from %s %s", count(d.Endpoints, "endpoint"), d.Kind, d.From)
	if d.LeftOut > 0 {
		found += fmt.Sprintf(" (%d cannot be used)", d.LeftOut)
	}
	if d.Error == "" {
		t.note("%s%s", found, when(d.Denied != "", ": "+d.Denied))
		return
	}
	last := "no answer has succeeded yet"
	if !d.Confirmed.IsZero() {
		last = fmt.Sprintf("the last successful answer was at %s, %v ago", d.Confirmed.Local().Format(time.DateTime), t.now.Sub(d.Confirmed).Round(time.Second))
	}
	t.note("%s: %s", found, last)
	t.note("failed %s: %s", count(d.Failures, "time"), strings.TrimPrefix(d.Error, "discovery: "+d.Kind+": "))
}

func (t *statusText) endpoint(e *admin.Endpoint) {
	state := string(e.State)
	state += when(e.Breaker != "", ", breaker "+e.Breaker)
	more := when(e.Backup, ", backup")
	more += when(e.Zone != "", ", zone "+e.Zone)
	t.row("  endpoint", e.Name, state, fmt.Sprintf("%s, total %d, failures %d%s, weight %d%s, %s", active(e.Active, e.Max), e.Total, e.Failures, unanswered(e), e.Weight, more, traffic(e.Bytes)))
	if e.State == admin.Ejected && !e.Until.IsZero() {
		t.note("%s until %s: %s", e.State, t.until(e.Until), e.Why)
	} else {
		t.noteIf(e.Why != "", "%s", e.Why)
		t.noteIf(!e.Until.IsZero() && e.Active > 0, "its sessions are reset at %s", t.until(e.Until))
	}
	t.noteIf(!e.SlowUntil.IsZero(), "less than its weight until %s: slow_start", t.until(e.SlowUntil))
	t.noteIf(len(e.ByHand) > 0, "%s", strings.Join(e.ByHand, "; "))
	t.circuit(e.BreakerWhy, e.BreakerUntil)
	if f := e.LastFailure; f != nil && !f.Over && (e.Why == "" || !strings.Contains(e.Why, strings.TrimPrefix(f.Cause, "connect failed: "))) {
		what, but := "failure", ""
		if strings.HasPrefix(f.Cause, "this machine cannot connect") {
			what, but = "attempt", ", not counted as a failure"
		}
		t.note("last %s %v ago%s: %s", what, max(t.now.Sub(f.Time), 0).Round(time.Second), but, f.Cause)
	}
}

// unanswered formats the number of clients that wait too long for an answer.
func unanswered(e *admin.Endpoint) string {
	if e.Unanswered == 0 {
		return ""
	}
	longest := time.Duration(max(e.UnansweredMs, 1)) * time.Millisecond
	if longest >= time.Second {
		longest = longest.Round(100 * time.Millisecond)
	}
	return fmt.Sprintf(", unanswered %d (for up to %v)", e.Unanswered, longest)
}

// congestion writes the congestion control of connections, if the file names one.
func (t *statusText) congestion(c *admin.Congestion) {
	switch {
	case c == nil:
	case c.Error != "":
		t.note("congestion control: %s in place of %s: %s", cmp.Or(c.Used, "an unknown one"), c.Configured, c.Error)
	case c.Refused > 0:
		t.note("congestion control: %s; for %s the kernel refused it", c.Used, plural(c.Refused, "connection", "connections"))
	default:
		t.note("congestion control: %s", c.Used)
	}
}

func (t *statusText) rewrites(r *admin.Rewrites) {
	if r == nil {
		return
	}
	t.note("rewritten: %s in %s, which is not zero-copy", display.Bytes(r.Bytes), plural(r.Sessions, "session", "sessions"))
	for _, m := range r.Modules {
		t.note("rewritten %s by %s (%s), with %s in use", m.Direction, m.File, m.Engine, plural(int64(m.Instances), "instance", "instances"))
	}
	t.noteIf(len(r.Modules) > 0, "modules: %s of %s, which made %s", plural(int64(r.Calls), "call", "calls"), mean(r.TimeUs, r.Calls), display.Bytes(r.BytesOut))
	t.noteIf(len(r.Reset) > 0, "sessions reset because their bytes could not be rewritten%s", byReason(r.Reset))
	t.noteIf(len(r.Passed) > 0, "sessions that went on unchanged because a module had failed%s", byReason(r.Passed))
}

func mean(us, calls int64) string {
	if calls == 0 {
		return "none"
	}
	return (time.Duration(us) * time.Microsecond / time.Duration(calls)).String()
}
