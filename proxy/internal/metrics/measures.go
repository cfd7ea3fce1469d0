package metrics

import (
	"cmp"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
)

// A measure is a field of a status that becomes a family of metrics, because it has a metric tag. The tag is the end
// of the family's name. A struct's tag comes before the tags of its fields, and the prefix of the object comes first,
// unless the tag begins with penstock_. After a comma, a tag has the label for the keys of a map, or the word
// nonzero: then 0 has no series. The comment on the field is the help.
type measure struct {
	Family
	path    []int  // of the field, through structs and pointers
	label   string // for the keys of a map; "" if the field is a number
	nonzero bool
}

// measuresOf returns the measures of a type of status. labels are the labels of their families.
func measuresOf[T any](prefix string, labels ...string) (list []measure) {
	help := admin.Comments()
	var walk func(t reflect.Type, prefix string, path []int)
	walk = func(t reflect.Type, prefix string, path []int) {
		for i := range t.NumField() {
			f := t.Field(i)
			tag, tagged := f.Tag.Lookup("metric")
			of, at := f.Type, append(slices.Clone(path), i)
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			switch {
			case of.Kind() == reflect.Struct && strings.HasPrefix(tag, "penstock_"):
				walk(of, tag, at)
			case of.Kind() == reflect.Struct && (tagged || f.Anonymous):
				walk(of, prefix+tag, at)
			case tagged:
				list = append(list, newMeasure(prefix, tag, help(t, f.Name), of.Kind() == reflect.Map, labels, at))
			}
		}
	}
	walk(reflect.TypeFor[T](), prefix, nil)
	return list
}

func newMeasure(prefix, tag, help string, counts bool, labels []string, path []int) measure {
	name, option, _ := strings.Cut(tag, ",")
	m := measure{Family: Family{prefix + name, Gauge, labels, help}, path: path, nonzero: option == "nonzero"}
	if strings.HasSuffix(name, "_total") {
		m.Kind = Counter
	}
	if counts {
		m.label, m.Labels = option, append(slices.Clone(labels), option)
	}
	return m
}

// of returns the field in a status, or false if the status does not have the part with the field.
func (m *measure) of(status reflect.Value) (field reflect.Value, there bool) {
	for _, i := range m.path {
		if status.Kind() == reflect.Pointer {
			if status.IsNil() {
				return status, false
			}
			status = status.Elem()
		}
		status = status.Field(i)
	}
	return status, true
}

// valueOf returns the value of a field that is not a map.
func valueOf(field reflect.Value) int64 {
	switch {
	case field.Kind() != reflect.Bool:
		return field.Int()
	case field.Bool():
		return 1
	}
	return 0
}

// write writes the series of a status, which is a pointer. If it lacks the part with the field, a number of the process is 0, and
// everything else has no series.
func (m *measure) write(e *encoder, status reflect.Value) {
	v, there := m.of(status)
	switch {
	case !there:
		if len(m.Labels) == 0 {
			e.int("", 0)
		}
	case m.label != "":
		e.listOf("", m.label, v.Interface().(map[string]int64))
	case !m.nonzero || valueOf(v) != 0:
		e.int("", valueOf(v))
	}
}

// statusFamilies returns the families of the measures of an object's status.
func statusFamilies[T, S any](of func(*T) *S, prefix string, labels ...string) (list []objectFamily[T]) {
	for _, m := range measuresOf[S](prefix, labels...) {
		list = append(list, objectFamily[T]{m.Family, func(e *encoder, object *T) { m.write(e, reflect.ValueOf(of(object))) }})
	}
	return list
}

// withZeros returns counts with a zero for each name without a count: a rate needs a first value.
func withZeros(counts map[string]int64, names ...string) map[string]int64 {
	all := make(map[string]int64, len(names))
	for _, name := range names {
		all[name] = 0
	}
	maps.Copy(all, counts)
	return all
}

// sessionLog returns the counts of the session log, all 0 if there is none.
func (s *Sample) sessionLog() *admin.SessionLog {
	return cmp.Or(s.Process.SessionLog, &admin.SessionLog{})
}

// lane returns the counts of the process's lane, all 0 if there is none.
func (s *Sample) lane() *admin.Lane { return cmp.Or(s.Process.Lane, &admin.Lane{}) }

// traces returns the counts of spans, all 0 if there are no traces.
func (s *Sample) traces() *admin.Traces { return cmp.Or(s.Process.Traces, &admin.Traces{}) }

// pageSize is the size of a page of a pipe.
var pageSize = int64(os.Getpagesize())

// processFamilies are the families of the process that are not fields of its status.
var processFamilies = []objectFamily[Sample]{
	{gauge("penstock_build_info", "1, with the version.", "version"), func(e *encoder, s *Sample) { e.int(label("version", s.Process.Version), 1) }},
	{gauge("penstock_draining", "1 while the process drains."), func(e *encoder, s *Sample) { e.bool("", s.Process.State == admin.Draining) }},
	{counter("penstock_refused_total", "Refused clients of all listeners, by the reasons of penstock_listener_refused_total.", "reason"), func(e *encoder, s *Sample) { e.list("reason", s.Process.Refusals) }},
	{counter("penstock_left_total", "Clients that left before they had an endpoint."), func(e *encoder, s *Sample) { e.int("", s.Process.Connections.Left) }},
	{counter("penstock_bytes_total", "Bytes of all sessions and responses (fallback), by direction and engine.", "direction", "engine"), func(e *encoder, s *Sample) { e.bytes(&s.Process.Bytes) }},
	{gauge("penstock_lane_on", "1 if sessions may leave user space."), func(e *encoder, s *Sample) { e.bool("", s.lane().State == admin.LaneOn) }},
	{counter("penstock_engine_changes_total", "Changes of a session's direction: splice, copy, larger_pipe, mark_raised, mark_lowered (low-water mark).", "to"), func(e *encoder, s *Sample) {
		n := &s.Process.Engine
		e.each("to", []string{"splice", "copy", "larger_pipe", "mark_raised", "mark_lowered"}, n.Promotions, n.Demotions, n.PipeGrowths, n.MarksRaised, n.MarksLowered)
	}},
	{gauge("penstock_pipes", "Pipes now: leased (with bytes in flight) or idle.", "state"), func(e *encoder, s *Sample) {
		e.each("state", []string{"leased", "idle"}, s.Process.Pipes.Leased, s.Process.Pipes.Idle)
	}},
	{gauge("penstock_pipe_budget_bytes", "Memory that pipes may take now."), func(e *encoder, s *Sample) { e.int("", s.Process.Pipes.BudgetPages*pageSize) }},
	{gauge("penstock_pipe_budget_used_bytes", "Memory that pipes take."), func(e *encoder, s *Sample) { e.int("", s.Process.Pipes.UsedPages*pageSize) }},
	{counter("penstock_arena_residues_total", "How many times the bytes of a blocked destination were kept, in the arena or on the heap.", "in"), func(e *encoder, s *Sample) {
		e.each("in", []string{"arena", "heap"}, s.Process.Arena.Residues, s.Process.Arena.HeapResidues)
	}},
	{counter("penstock_health_transitions_total", "Changes of the state of endpoints and circuit breakers."), func(e *encoder, s *Sample) { e.int("", s.Process.Counters["transitions"]) }},
	{counter("penstock_hellos_missing_total", "Clients that were served without a ClientHello."), func(e *encoder, s *Sample) { e.int("", s.Process.Counters["hellos_missing"]) }},
	{counter("penstock_session_log_dropped_total", "Dropped lines of the session log: queue (the queue of a loop was full), destination (it accepted no more) or rate (per_second).", "reason"), func(e *encoder, s *Sample) {
		e.listOf("", "reason", withZeros(s.sessionLog().Dropped, "queue", "destination", "rate"))
	}},
	{gauge("penstock_session_log_stuck_timestamp_seconds", "When waiting lines got stuck, since the epoch, or 0."), func(e *encoder, s *Sample) {
		if at := s.sessionLog().StuckSince; at.IsZero() {
			e.int("", 0)
		} else {
			e.timestamp("", at)
		}
	}},
	{counter("penstock_spans_dropped_total", "Spans that did not reach the collector, by reason: queue_full, refused, unavailable or shutdown.", "reason"), func(e *encoder, s *Sample) {
		e.listOf("", "reason", withZeros(s.traces().Dropped, "queue_full", "refused", "unavailable", "shutdown"))
	}},
	{gauge("penstock_config_generation", "Number of the configuration in force."), func(e *encoder, s *Sample) { e.int("", int64(s.Config.Generation)) }},
	{gauge("penstock_config_unconfirmed", "1 while a reload waits to be confirmed."), func(e *encoder, s *Sample) { e.bool("", s.Config.Unconfirmed) }},
	{gauge("penstock_config_restart_keys", "Changed keys that wait for a restart."), func(e *encoder, s *Sample) { e.int("", int64(len(s.Process.Restart))) }},
	{counter("penstock_config_reloads_total", "Reloads by result: success, refused or rolled_back (after a success).", "result"), func(e *encoder, s *Sample) {
		e.each("result", []string{"success", "refused", "rolled_back"}, s.Config.Reloads, s.Config.Refused, s.Config.RolledBack)
	}},
	{gauge("penstock_config_last_reload_successful", "1 if the last load has succeeded."), func(e *encoder, s *Sample) { e.bool("", s.Config.LastOK) }},
	{gauge("penstock_config_last_reload_success_timestamp_seconds", "Time of the last good load, since the epoch."), func(e *encoder, s *Sample) { e.timestamp("", s.Config.LastSuccess) }},
	{gauge("penstock_config_last_reload_seconds", "Duration of the last change by phase: prepare and swap.", "phase"), func(e *encoder, s *Sample) {
		e.float(label("phase", "prepare"), float64(s.Process.Changes.PreparedUs)/1e6)
		e.float(label("phase", "swap"), float64(s.Process.Changes.SwappedUs)/1e6)
	}},
	{gauge("penstock_config_file_state", "1 for the configuration file's state: same, differs, invalid (a reload would be refused) or unknown.", "state"), func(e *encoder, s *Sample) {
		for _, state := range []FileState{FileSame, FileDiffers, FileInvalid, FileUnknown} {
			e.bool(label("state", string(state)), cmp.Or(s.Config.File, FileUnknown) == state)
		}
	}},
}

// loopFamilies are the families with the label loop.
var loopFamilies = []objectFamily[Loop]{
	{counter("penstock_loop_overruns_total", "Turns that used a millisecond of CPU time, with --turn-cpu.", "loop"), func(e *encoder, l *Loop) {
		if l.Measured {
			e.int("", l.Overruns)
		}
	}},
	{histogram("penstock_loop_turn_seconds", "Duration of turns (loop lag). There is no sum.", "loop"), func(e *encoder, l *Loop) { e.powers(l.Lag) }},
	{histogram("penstock_loop_timer_late_seconds", "Lateness of timers. There is no sum.", "loop"), func(e *encoder, l *Loop) { e.powers(l.TimerLate) }},
}

// powerBounds are the bounds of the buckets that are shown, as exponents of two: 16 us to a second. The counts have a
// bucket for each power of two of a microsecond.
var powerBounds = [...]int{4, 6, 8, 10, 12, 14, 16, 18, 20}

// filterBounds are the bounds for calls of filters: 1 us to 65 ms.
var filterBounds = [...]int{0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16}

var powerLabels, filterLabels = powersLabels(powerBounds[:]), powersLabels(filterBounds[:])

func powersLabels(bounds []int) (labels [][2]string) {
	for _, bound := range bounds {
		labels = append(labels, leLabels(float64(int64(1)<<bound)/1e6))
	}
	return labels
}

// powers writes the buckets of times. counts[i] is the number of times from half of 2^i to less than 2^i
// microseconds.
func (e *encoder) powers(counts []int64) { e.powersOf("", powerBounds[:], powerLabels, counts) }

// powersOf is powers with its own bounds and more labels.
func (e *encoder) powersOf(extra string, bounds []int, labels [][2]string, counts []int64) {
	sum, next := int64(0), 0
	for i, bound := range bounds {
		for ; next <= bound && next < len(counts); next++ {
			sum += counts[next]
		}
		e.name("_bucket", extra+labels[i][e.dialect()])
		e.buf = strconv.AppendInt(e.buf, sum, 10)
		e.end()
	}
	for ; next < len(counts); next++ {
		sum += counts[next]
	}
	e.name("_bucket", extra+`,le="+Inf"`)
	e.buf = strconv.AppendInt(e.buf, sum, 10)
	e.end()
}

// answerBounds are the bounds for the first answers of endpoints: 256 us to 4 s.
var answerBounds = [...]int{8, 10, 12, 14, 16, 18, 20, 22}

var answerLabels = powersLabels(answerBounds[:])

func (e *encoder) filterTimes(f *admin.Filter) {
	extra := e.cached("filter", f.Name)
	e.powersOf(extra, filterBounds[:], filterLabels, f.Times)
	e.sumAndCount(extra, float64(f.TimeUs)/1e6, f.Calls)
}

func (e *encoder) answers(p *Endpoint) {
	made := int64(0)
	for _, n := range p.AnswerTimes {
		made += n
	}
	e.powersOf("", answerBounds[:], answerLabels, p.AnswerTimes)
	e.sumAndCount("", p.Answered.Seconds(), made)
}

// sumAndCount writes the sum and the count, the end of a histogram.
func (e *encoder) sumAndCount(extra string, seconds float64, n int64) {
	e.name("_sum", extra)
	e.buf = strconv.AppendFloat(e.buf, seconds, 'g', -1, 64)
	e.end()
	e.name("_count", extra)
	e.buf = strconv.AppendInt(e.buf, n, 10)
	e.end()
}

// An objectFamily is a family of the series of the process, or of loops, listeners, upstreams or endpoints.
type objectFamily[T any] struct {
	Family
	write func(e *encoder, of *T)
}

const (
	bytesOfSessions = "Bytes of sessions, by direction and engine."
	closes          = "Sessions that have ended, by reason and by the side that ended them."
	connects        = "Time to connect to an endpoint, with name look-up and TLS handshake; failures are not counted."
	limited         = "Time of ended sessions of 100 ms or more, by the cause that limited them (docs/seeing.md)."
	lasted          = "Duration of sessions that have ended."
)

// listenerFamilies are the families with the label listener that are not fields of the listener's status.
var listenerFamilies = []objectFamily[Listener]{
	{gauge("penstock_listener_state", "1 for the present state: serving, paused (at a limit) or draining.", "listener", "state"), func(e *encoder, l *Listener) {
		for _, state := range []admin.State{admin.Serving, admin.Paused, admin.Draining} {
			e.bool(e.cached("state", string(state)), l.State == state)
		}
	}},
	{counter("penstock_listener_refused_total", "Refused clients, by the first cause. upstream means that no endpoint took the client.", "listener", "reason"), func(e *encoder, l *Listener) { e.list("reason", l.Refused) }},
	{counter("penstock_listener_limited_seconds_total", limited, "listener", "verdict"), func(e *encoder, l *Listener) { e.limited(&l.Seconds) }},
	{counter("penstock_listener_bytes_total", "Bytes of sessions and responses, by direction and engine.", "listener", "direction", "engine"), func(e *encoder, l *Listener) { e.bytes(&l.Bytes) }},
	{counter("penstock_listener_closes_total", closes, "listener", "reason", "by"), func(e *encoder, l *Listener) { e.closes(&l.Tally) }},
	{histogram("penstock_listener_connect_seconds", connects+" Original destinations (transparent) are not counted.", "listener"), func(e *encoder, l *Listener) { e.histogram(&connectLabels, &l.Tally.Connects) }},
	{histogram("penstock_listener_session_seconds", lasted, "listener"), func(e *encoder, l *Listener) { e.histogram(&sessionLabels, &l.Tally.Sessions) }},
	{gauge("penstock_listener_accept_queue", "Connections that wait in the kernel to be accepted.", "listener", "address"), func(e *encoder, l *Listener) {
		l.queues(e, func(q *admin.Queue) (int64, bool) { return q.Length, q.Known })
	}},
	{gauge("penstock_listener_accept_queue_limit", "Length at which the accept queue overflows.", "listener", "address"), func(e *encoder, l *Listener) {
		l.queues(e, func(q *admin.Queue) (int64, bool) { return q.Most, q.Known })
	}},
	{counter("penstock_listener_accept_queue_overflows_total", "Overflows of the accept queue; clients have to try again.", "listener", "address"), func(e *encoder, l *Listener) {
		l.queues(e, func(q *admin.Queue) (int64, bool) { return q.Dropped, q.DroppedKnown })
	}},
	{gauge("penstock_listener_certificate_not_after_seconds", "End of a certificate shown to clients, since the epoch.", "listener", "path"), func(e *encoder, l *Listener) { e.certificates(l.Certificates, endOf) }},
	{gauge("penstock_listener_certificate_due_seconds", "When the status begins to warn about a certificate shown to clients, since the epoch.", "listener", "path"), func(e *encoder, l *Listener) {
		e.certificates(l.Certificates, (*admin.Certificate).Due)
	}},
	{counter("penstock_listener_tls_handshakes_total", "Completed TLS handshakes with clients; resumed is true with a session ticket.", "listener", "resumed"), func(e *encoder, l *Listener) { e.handshakes(l.Handshakes) }},
	{counter("penstock_listener_tls_handshake_failures_total", "Failed TLS handshakes with clients, by cause.", "listener", "cause"), func(e *encoder, l *Listener) { e.handshakeFailures(l.Handshakes) }},
	{counter("penstock_listener_keyed_sessions_total", "Sessions by a property of their clients (metrics_by).", "listener", "by", "value"), func(e *encoder, l *Listener) {
		for i := range l.Keyed {
			e.int(l.keyLabels(i), l.Keyed[i].Sessions)
		}
	}},
	{counter("penstock_listener_keyed_bytes_total", "Bytes of sessions by a property of their clients (metrics_by), by direction and engine.", "listener", "by", "value", "direction", "engine"), func(e *encoder, l *Listener) {
		for i := range l.Keyed {
			e.bytesOf(l.keyLabels(i), &l.Keyed[i].Bytes)
		}
	}},
	{counter("penstock_filter_answers_total", "Clients by the filter's answer: allow, deny, route, next, more or overload (docs/filters.md).", "listener", "filter", "answer"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			e.listOf(e.cached("filter", l.Filters[i].Name), "answer", l.Filters[i].Answers)
		}
	}},
	{counter("penstock_filter_failures_total", "Clients about whom the filter gave no answer, by reason (docs/filters.md).", "listener", "filter", "reason"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			e.listOf(e.cached("filter", l.Filters[i].Name), "reason", l.Filters[i].Failures)
		}
	}},
	{gauge("penstock_filter_waiting", "Clients that wait for a filter.", "listener", "filter"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			e.int(e.cached("filter", l.Filters[i].Name), int64(l.Filters[i].Waiting))
		}
	}},
	{histogram("penstock_filter_duration_seconds", "Duration of a filter's calls, each about one client.", "listener", "filter"), func(e *encoder, l *Listener) {
		for i := range l.Filters {
			e.filterTimes(&l.Filters[i])
		}
	}},
	{counter("penstock_listener_cancels_total", "Cancel requests that were sent, or could not be sent, to an endpoint.", "listener", "result"), func(e *encoder, l *Listener) {
		if c := l.Cancels; c != nil {
			e.each("result", []string{"sent", "failed"}, c.Sent, c.Failed)
		}
	}},
	{counter("penstock_mirror_bytes_total", "Bytes of mirrors: teed or copied (taken by the mirror's endpoint), undelivered, or answered (and thrown away).", "listener", "to"), func(e *encoder, l *Listener) {
		if m := l.Mirrors; m != nil {
			e.each("to", []string{"teed", "copied", "undelivered", "answered"}, m.Teed, m.Copied, m.Undelivered, m.Answered)
		}
	}},
	{counter("penstock_mirror_compared_total", "Compared answers: equal, different, masked (not compared) or unsettled (cut short). Reset with the report.", "listener", "result"), func(e *encoder, l *Listener) {
		l.comparisons(func(k *admin.Comparison) {
			e.each("result", []string{"equal", "different", "masked", "unsettled"}, k.Equal, k.Different, k.Masked, k.Unsettled)
		})
	}},
	{counter("penstock_mirror_timed_total", "Complete answers, by whether the mirror's answer was slower, faster or alike (within a microsecond).", "listener", "shadow"), func(e *encoder, l *Listener) {
		l.comparisons(func(k *admin.Comparison) {
			e.each("shadow", []string{"slower", "faster", "alike"}, k.Lag.Slower, k.Lag.Faster, k.Lag.Alike)
		})
	}},
	{counter("penstock_mirror_compare_stopped_total", "Sessions without a full comparison, by reason (docs/mirror.md).", "listener", "reason"), func(e *encoder, l *Listener) {
		l.comparisons(func(k *admin.Comparison) { e.listOf("", "reason", k.Stopped) })
	}},
	{counter("penstock_rewrite_reset_total", "Sessions that were reset because their bytes could not be rewritten, by reason (docs/filters.md).", "listener", "reason"), func(e *encoder, l *Listener) {
		if r := l.Rewrites; r != nil {
			e.listOf("", "reason", r.Reset)
		}
	}},
	{counter("penstock_rewrite_module_calls_total", "Calls of modules, each about a chunk of bytes.", "listener"), func(e *encoder, l *Listener) {
		if r := l.Rewrites; r != nil && len(r.Modules) > 0 {
			e.int("", r.Calls)
		}
	}},
	{counter("penstock_rewrite_module_seconds_total", "Time of the modules' calls.", "listener"), func(e *encoder, l *Listener) {
		if r := l.Rewrites; r != nil && len(r.Modules) > 0 {
			e.float("", float64(r.TimeUs)/1e6)
		}
	}},
}

// comparisons calls see with the sum of the listener's comparisons, if it has any.
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

func (l *Listener) keyLabels(i int) string {
	return label("by", l.KeyedBy) + label("value", l.Keyed[i].Value)
}

// queues writes the known values of queues, once for each address.
func (l *Listener) queues(e *encoder, value func(q *admin.Queue) (n int64, known bool)) {
	for i := range l.Queues {
		at := l.Queues[i].Address
		n, known := value(&l.Queues[i])
		if known && !slices.ContainsFunc(l.Queues[:i], func(q admin.Queue) bool { return q.Address == at }) {
			e.int(label("address", at), n)
		}
	}
}

func sorted(m map[string]int64) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

var breakerStates = []string{"closed", "open", "half-open"}

var endpointStates = []admin.State{admin.Up, admin.Down, admin.Standby, admin.Ejected, admin.Draining, admin.Maint}

// upstreamFamilies are the families with the label upstream.
var upstreamFamilies = []objectFamily[Upstream]{
	{counter("penstock_upstream_refused_total", "Clients that got no endpoint, by reason.", "upstream", "reason"), func(e *encoder, u *Upstream) { e.list("reason", u.Refused) }},
	{gauge("penstock_upstream_endpoints", "Endpoints by state. Circuit breakers are not considered.", "upstream", "state"), func(e *encoder, u *Upstream) {
		for _, state := range endpointStates {
			e.int(e.cached("state", string(state)), u.States[state])
		}
	}},
	{gauge("penstock_upstream_fallback_serves", "1 if the upstream's fallback, or its own fallback, responds or has a usable endpoint with room; no series without a fallback.", "upstream"), func(e *encoder, u *Upstream) {
		if u.FallbackServes != nil {
			e.bool("", *u.FallbackServes)
		}
	}},
	{gauge("penstock_upstream_routed", "0 if no listener sends clients to the upstream: splits give it 0 %, and it is no mirror or fallback of others.", "upstream"), func(e *encoder, u *Upstream) { e.bool("", u.Routed) }},
	{gauge("penstock_upstream_breaker_state", "1 for the circuit breaker's state: closed, open or half-open.", "upstream", "state"), func(e *encoder, u *Upstream) {
		if u.Breaker == "" {
			return
		}
		for _, state := range breakerStates {
			e.bool(e.cached("state", state), u.Breaker == state)
		}
	}},
	{counter("penstock_upstream_breaker_opened_total", "Times that the circuit breaker has opened.", "upstream"), func(e *encoder, u *Upstream) {
		if u.Breaker != "" {
			e.int("", u.Opened)
		}
	}},
	{gauge("penstock_upstream_breaker_load", "Connections that count towards a limit of circuit_breaker: connections or pending.", "upstream", "limit"), func(e *encoder, u *Upstream) {
		u.limits(e, u.Connections, u.Connecting)
	}},
	{gauge("penstock_upstream_breaker_limit", "Limit of circuit_breaker: connections or pending.", "upstream", "limit"), func(e *encoder, u *Upstream) { u.limits(e, u.Most, u.MostConnecting) }},
	{counter("penstock_upstream_limited_seconds_total", limited, "upstream", "verdict"), func(e *encoder, u *Upstream) { e.limited(&u.Seconds) }},
	{counter("penstock_upstream_bytes_total", bytesOfSessions, "upstream", "direction", "engine"), func(e *encoder, u *Upstream) { e.bytes(&u.Bytes) }},
	{counter("penstock_upstream_closes_total", closes, "upstream", "reason", "by"), func(e *encoder, u *Upstream) { e.closes(&u.Tally) }},
	{histogram("penstock_upstream_connect_seconds", connects, "upstream"), func(e *encoder, u *Upstream) { e.histogram(&connectLabels, &u.Tally.Connects) }},
	{histogram("penstock_upstream_session_seconds", lasted, "upstream"), func(e *encoder, u *Upstream) { e.histogram(&sessionLabels, &u.Tally.Sessions) }},
	{gauge("penstock_upstream_discovery_confirmed_timestamp_seconds", "Time of the last good answer of discovery (dns or file), since the epoch.", "upstream", "kind"), func(e *encoder, u *Upstream) {
		if d := u.Discovery; d != nil {
			e.timestamp(label("kind", d.Kind), d.Confirmed)
		}
	}},
	{gauge("penstock_upstream_discovery_failures", "Failed look-ups since none failed.", "upstream", "kind"), func(e *encoder, u *Upstream) {
		if d := u.Discovery; d != nil {
			e.int(label("kind", d.Kind), int64(d.Failures))
		}
	}},
	{gauge("penstock_upstream_discovery_stale", "1 while the endpoints are older than their source allows.", "upstream", "kind"), func(e *encoder, u *Upstream) {
		if d := u.Discovery; d != nil {
			e.bool(label("kind", d.Kind), d.Stale)
		}
	}},
	{gauge("penstock_upstream_certificate_not_after_seconds", "End of a certificate shown to endpoints, since the epoch.", "upstream", "path"), func(e *encoder, u *Upstream) { e.certificates(u.Certificates, endOf) }},
	{gauge("penstock_upstream_certificate_due_seconds", "When the status begins to warn about a certificate shown to endpoints, since the epoch.", "upstream", "path"), func(e *encoder, u *Upstream) {
		e.certificates(u.Certificates, (*admin.Certificate).Due)
	}},
	{counter("penstock_upstream_tls_handshakes_total", "Completed TLS handshakes with endpoints; resumed is true with a session ticket.", "upstream", "resumed"), func(e *encoder, u *Upstream) { e.handshakes(u.Handshakes) }},
	{counter("penstock_upstream_tls_handshake_failures_total", "Failed TLS handshakes with endpoints, by cause.", "upstream", "cause"), func(e *encoder, u *Upstream) { e.handshakeFailures(u.Handshakes) }},
}

func (u *Upstream) limits(e *encoder, connections, pending int64) {
	if u.Most > 0 {
		e.int(`,limit="connections"`, connections)
	}
	if u.MostConnecting > 0 {
		e.int(`,limit="pending"`, pending)
	}
}

// endpointFamilies are the families with the labels upstream and endpoint. Only the first endpoints have the three
// last families, see [Limits].
var endpointFamilies = []objectFamily[Endpoint]{
	{gauge("penstock_endpoint_up", "1 if the endpoint's state is up and its circuit breaker is closed.", "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.bool("", p.up()) }},
	{gauge("penstock_endpoint_state", "1 for the present state: up, down, standby, ejected, draining or maint.", "upstream", "endpoint", "state"), func(e *encoder, p *Endpoint) { e.int(e.cached("state", string(p.State)), 1) }},
	{counter("penstock_endpoint_limited_seconds_total", limited, "upstream", "endpoint", "verdict"), func(e *encoder, p *Endpoint) { e.limited(&p.Seconds) }},
	{counter("penstock_endpoint_bytes_total", bytesOfSessions, "upstream", "endpoint", "direction", "engine"), func(e *encoder, p *Endpoint) { e.bytes(&p.Bytes) }},
	{counter("penstock_endpoint_closes_total", closes, "upstream", "endpoint", "reason", "by"), func(e *encoder, p *Endpoint) { e.closes(&p.Tally) }},
	{histogram("penstock_endpoint_connect_seconds", connects, "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.histogram(&connectLabels, &p.Tally.Connects) }},
	{histogram("penstock_endpoint_answer_seconds", "Time to the endpoint's first byte, from the client's last byte, or from the connect if the client sent nothing.", "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.answers(p) }},
	{histogram("penstock_endpoint_session_seconds", lasted, "upstream", "endpoint"), func(e *encoder, p *Endpoint) { e.histogram(&sessionLabels, &p.Tally.Sessions) }},
}
