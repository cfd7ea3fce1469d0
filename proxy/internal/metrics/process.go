package metrics

import (
	"cmp"
	"maps"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/prometheus/client_golang/prometheus"
)

// A processFamily is a family of the whole process. collect calls emit for each series, with the values
// of the family's labels.
type processFamily struct {
	Family
	collect func(s *Sample, emit emitter)
}

type emitter func(value float64, labels ...string)

// one is collect for a single series.
func one(value func(s *Sample) float64) func(s *Sample, emit emitter) {
	return func(s *Sample, emit emitter) { emit(value(s)) }
}

// number is one for whole numbers.
func number(value func(s *Sample) int64) func(s *Sample, emit emitter) {
	return one(func(s *Sample) float64 { return float64(value(s)) })
}

// named is one for a counter of the status.
func named(counter string) func(s *Sample, emit emitter) {
	return number(func(s *Sample) int64 { return s.Process.Counters[counter] })
}

func boolean(value func(s *Sample) bool) func(s *Sample, emit emitter) {
	return one(func(s *Sample) float64 { return oneIf(value(s)) })
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func emitAll(emit emitter, counts map[string]int64) {
	for _, name := range sorted(counts) {
		emit(float64(counts[name]), name)
	}
}

// emitEach is emitAll with those of names that did not occur: a rate needs a beginning.
func emitEach(emit emitter, counts map[string]int64, names ...string) {
	all := make(map[string]int64, len(names))
	for _, name := range names {
		all[name] = 0
	}
	maps.Copy(all, counts)
	emitAll(emit, all)
}

// sessionLog is the counts of the session log; all are 0 if there was none.
func (s *Sample) sessionLog() *admin.SessionLog {
	return cmp.Or(s.Process.Summary.SessionLog, &admin.SessionLog{})
}

// collectAdopted is the bytes of adopted sessions.
func collectAdopted(s *Sample, emit emitter) {
	emit(float64(s.lane().AdoptedToEndpoint), "client_to_endpoint")
	emit(float64(s.lane().AdoptedToClient), "endpoint_to_client")
}

// lane is that of the process; all are 0 if there is none.
func (s *Sample) lane() *admin.Lane { return cmp.Or(s.Process.Summary.Lane, &admin.Lane{}) }

// traces is the counts of spans; all are 0 if there were none.
func (s *Sample) traces() *admin.Traces { return cmp.Or(s.Process.Traces, &admin.Traces{}) }

var processFamilies = []processFamily{
	{gauge("penstock_build_info", "1, with the version.", "version"), func(s *Sample, emit emitter) { emit(1, s.Process.Version) }},
	{gauge("penstock_draining", "1 while the process drains before its end."), boolean(func(s *Sample) bool { return s.Process.Draining })},
	{counter("penstock_accepted_total", "Clients that were accepted."), number(func(s *Sample) int64 { return s.Process.Summary.Connections.Accepted })},
	{gauge("penstock_connections", "Clients that are served now."), number(func(s *Sample) int64 { return s.Process.Summary.Connections.Active })},
	{gauge("penstock_connections_limit", "Limit of concurrent clients."), number(func(s *Sample) int64 { return s.Process.ConnectionsMost })},
	{counter("penstock_refused_total", "Clients that were refused. reason is the stage.", "reason"), func(s *Sample, emit emitter) { emitAll(emit, s.Process.Refused) }},
	{counter("penstock_left_total", "Clients that have gone before they had an endpoint."), number(func(s *Sample) int64 { return s.Process.Summary.Connections.Left })},
	{counter("penstock_accept_pauses_total", "Times that accepting failed, for lack of descriptors or memory as a rule, and was tried again later."), number(func(s *Sample) int64 { return s.Process.Summary.AcceptPauses })},
	{counter("penstock_bytes_total", "Bytes of all sessions, of those that run, too; "+byDirection, "direction", "engine"), collectBytes},
	{counter("penstock_bytes_lost_total", "Bytes that had arrived and that the other side did not take."), number(func(s *Sample) int64 { return s.Process.Summary.Lost })},
	{counter("penstock_splice_fallbacks_total", "Departures from splicing. Reasons that did not occur are left out.", "reason"), func(s *Sample, emit emitter) { emitAll(emit, s.Process.Summary.Fallbacks) }},
	{gauge("penstock_lane_sessions", "Sessions of this process that have left user space now. With lane.leave those that go on without it are none of them as it drains."), number(func(s *Sample) int64 { return s.lane().Active })},
	{gauge("penstock_lane_sessions_limit", "Places for sessions that leave user space, of the table in force: one that was adopted keeps its size."), number(func(s *Sample) int64 { return s.lane().Most })},
	{gauge("penstock_lane_on", "1 if sessions may leave user space."), boolean(func(s *Sample) bool { return s.lane().State == admin.LaneOn })},
	{gauge("penstock_lane_wanted", "1 if a listener has lane: auto or require."), boolean(func(s *Sample) bool { return s.lane().Wanted })},
	{counter("penstock_lane_left_total", "Sessions that have left user space."), number(func(s *Sample) int64 { return s.lane().Left })},
	{counter("penstock_lane_returned_total", "Sessions that have come back to user space."), number(func(s *Sample) int64 { return s.lane().Returned })},
	{counter("penstock_lane_unrestored_total", "Sessions that could not come back and were reset, by reason. Reasons that did not occur are left out.", "reason"), func(s *Sample, emit emitter) { emitAll(emit, s.lane().Unrestored) }},
	{gauge("penstock_lane_adopted_sessions", "Sessions in the lane that a process before this one had: the sessions of their listeners and endpoints have them, too."), number(func(s *Sample) int64 { return s.lane().AdoptedActive })},
	{counter("penstock_lane_adopted_total", "Sessions in the lane that were adopted from a process before this one."), number(func(s *Sample) int64 { return s.lane().Adopted })},
	{counter("penstock_lane_ended_total", "Sessions with a place in the lane that have ended, those that were prepared and never left user space included."), number(func(s *Sample) int64 { return s.lane().Ended })},
	{counter("penstock_lane_reset_total", "Of the sessions of penstock_lane_ended_total, those that were reset."), number(func(s *Sample) int64 { return s.lane().Reset })},
	{counter("penstock_lane_gaps_total", "Times that the windows of a flow without a gap were shut, so that it could leave user space."), number(func(s *Sample) int64 { return s.lane().Gaps })},
	{counter("penstock_lane_adopted_bytes_total", "Bytes of adopted sessions since their adoption; they are in no other series.", "direction"), collectAdopted},
	{counter("penstock_lane_stays_total", "Sessions that stay in user space though their listener has lane, by reason; those that could not leave at an attempt each time. Reasons that did not occur are left out.", "reason"), func(s *Sample, emit emitter) { emitAll(emit, s.lane().Stays) }},
	{counter("penstock_engine_changes_total", "Changes of a direction of a session: splice (from copying to splicing), copy (back), larger_pipe, mark_raised and mark_lowered (low-water mark of a socket).", "to"), collectEngine},
	{counter("penstock_turns_cut_total", "Turns of a session that ended with more to be moved, for the sake of other sessions."), number(func(s *Sample) int64 { return s.Process.Summary.Engine.TurnsCut })},
	{gauge("penstock_pipes", "Pipes now: leased (with bytes in flight) or idle.", "state"), collectPipes},
	{counter("penstock_pipes_made_total", "Pipes that were opened."), number(func(s *Sample) int64 { return s.Process.Summary.Pipes.Made })},
	{counter("penstock_pipes_reused_total", "Leases that were served by an idle pipe."), number(func(s *Sample) int64 { return s.Process.Summary.Pipes.Reused })},
	{counter("penstock_pipes_denied_total", "Leases that were denied because the budget was spent."), number(func(s *Sample) int64 { return s.Process.Pipes.Denied })},
	{gauge("penstock_pipe_budget_bytes", "Memory that pipes may take now."), number(func(s *Sample) int64 { return s.Process.Pipes.Bytes })},
	{gauge("penstock_pipe_budget_used_bytes", "Memory that pipes take."), number(func(s *Sample) int64 { return s.Process.Pipes.UsedBytes })},
	{gauge("penstock_arena_size_bytes", "Memory in which loops keep the bytes that slow destinations have not taken."), number(func(s *Sample) int64 { return s.Process.Summary.Arena.Size })},
	{gauge("penstock_arena_used_bytes", "The part that loops have now."), number(func(s *Sample) int64 { return s.Process.Summary.Arena.Used })},
	{gauge("penstock_arena_peak_bytes", "The most that they have had."), number(func(s *Sample) int64 { return s.Process.Summary.Arena.Peak })},
	{gauge("penstock_arena_huge_bytes", "Huge pages among it."), number(func(s *Sample) int64 { return s.Process.Summary.Arena.Huge })},
	{counter("penstock_arena_residues_total", "Times that the bytes of a blocked destination were kept in it, or on the heap because there was no room.", "in"), collectResidues},
	{gauge("penstock_tls_sessions", "Sessions with TLS in the process."), number(func(s *Sample) int64 { return s.Process.TLSActive })},
	{gauge("penstock_tls_sessions_limit", "Limit of these; more are refused."), number(func(s *Sample) int64 { return s.Process.TLSMost })},
	{counter("penstock_health_transitions_total", "Changes of the state of endpoints and circuit breakers."), named("transitions")},
	{counter("penstock_hellos_missing_total", "Clients that were served without a ClientHello."), named("hellos_missing")},
	{counter("penstock_session_log_lines_total", "Lines of the session log that were written."), number(func(s *Sample) int64 { return s.sessionLog().Lines })},
	{counter("penstock_session_log_dropped_total", "Lines of the session log that were dropped. reason is ring (that of a loop was full), destination (it took no more) or rate (more than per_second).", "reason"), func(s *Sample, emit emitter) { emitEach(emit, s.sessionLog().Dropped, "ring", "destination", "rate") }},
	{counter("penstock_session_log_filtered_total", "Sessions without a line, because of only, slower_than or share."), number(func(s *Sample) int64 { return s.sessionLog().Filtered })},
	{counter("penstock_spans_sampled_total", "Sessions that were sampled for traces."), number(func(s *Sample) int64 { return s.traces().Sampled })},
	{counter("penstock_spans_exported_total", "Spans that the collector has confirmed."), number(func(s *Sample) int64 { return s.traces().Exported })},
	{counter("penstock_spans_unconfirmed_total", "Spans that were sent and had no answer: the collector may have them."), number(func(s *Sample) int64 { return s.traces().Unconfirmed })},
	{counter("penstock_spans_dropped_total", "Spans that the collector does not have. reason is queue_full, refused (by the collector), unavailable (it was not reached) or shutdown.", "reason"), func(s *Sample, emit emitter) {
		emitEach(emit, s.traces().Dropped, "queue_full", "refused", "unavailable", "shutdown")
	}},
	{gauge("penstock_spans_queued", "Spans that wait to be sent, or are being sent."), number(func(s *Sample) int64 { return s.traces().Queued })},
	{gauge("penstock_config_generation", "Number of the configuration in force."), number(func(s *Sample) int64 { return int64(s.Config.Generation) })},
	{gauge("penstock_config_unconfirmed", "1 while a reload waits to be confirmed."), boolean(func(s *Sample) bool { return s.Config.Unconfirmed })},
	{gauge("penstock_config_restart_keys", "Keys of the configuration whose values take effect when the process is started again."), number(func(s *Sample) int64 { return int64(s.Config.Restart) })},
	{counter("penstock_config_reloads_total", "Attempts to reload by result: success, refused (nothing was changed) or rolled_back (after a success).", "result"), collectReloads},
	{gauge("penstock_config_last_reload_successful", "1 if the last attempt to load the configuration has succeeded."), boolean(func(s *Sample) bool { return s.Config.LastOK })},
	{gauge("penstock_config_last_reload_success_timestamp_seconds", "Time of the last load that has succeeded, since the epoch."), one(func(s *Sample) float64 { return seconds(s.Config.LastSuccess) })},
	{gauge("penstock_config_last_reload_seconds", "Duration of the last change by phase: prepare (beside the old configuration, which harms no client) and swap. 0: there was none.", "phase"), collectPhases},
	{gauge("penstock_config_file_state", "1 for the state of the file beside the running configuration: same, differs (a reload would change something), invalid (a reload would be refused) or unknown (not compared yet, or there is no file). It is compared at most every 15 seconds.", "state"), collectFile},
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

func collectBytes(s *Sample, emit emitter) {
	b := s.Process.Summary.Bytes
	emit(float64(b.ClientToEndpoint.Spliced), "client_to_endpoint", "splice")
	emit(float64(b.ClientToEndpoint.Copied), "client_to_endpoint", "copy")
	emit(float64(b.ClientToEndpoint.Lane), "client_to_endpoint", "lane")
	emit(float64(b.EndpointToClient.Spliced), "endpoint_to_client", "splice")
	emit(float64(b.EndpointToClient.Copied), "endpoint_to_client", "copy")
	emit(float64(b.EndpointToClient.Lane), "endpoint_to_client", "lane")
}

func collectEngine(s *Sample, emit emitter) {
	n := s.Process.Summary.Engine
	emit(float64(n.Promotions), "splice")
	emit(float64(n.Demotions), "copy")
	emit(float64(n.PipeGrowths), "larger_pipe")
	emit(float64(n.MarksRaised), "mark_raised")
	emit(float64(n.MarksLowered), "mark_lowered")
}

func collectPipes(s *Sample, emit emitter) {
	emit(float64(s.Process.Summary.Pipes.Leased), "leased")
	emit(float64(s.Process.Summary.Pipes.Idle), "idle")
}

func collectResidues(s *Sample, emit emitter) {
	a := s.Process.Summary.Arena
	emit(float64(a.Residues), "arena")
	emit(float64(a.Refused), "heap")
}

func collectReloads(s *Sample, emit emitter) {
	emit(float64(s.Config.Reloads), "success")
	emit(float64(s.Config.Refused), "refused")
	emit(float64(s.Config.RolledBack), "rolled_back")
}

func collectPhases(s *Sample, emit emitter) {
	emit(s.Config.Prepared.Seconds(), "prepare")
	emit(s.Config.Swapped.Seconds(), "swap")
}

func collectFile(s *Sample, emit emitter) {
	is := s.Config.File
	if is == "" {
		is = FileUnknown
	}
	for _, state := range []FileState{FileSame, FileDiffers, FileInvalid, FileUnknown} {
		emit(oneIf(is == state), string(state))
	}
}

// A collector is the series of the process, of one sample.
type collector struct{ sample *Sample }

var descriptions = func() (list []*prometheus.Desc) {
	for _, f := range processFamilies {
		list = append(list, prometheus.NewDesc(f.Name, f.Help, f.Labels, nil))
	}
	return list
}()

// Describe implements [prometheus.Collector].
func (*collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for i, f := range processFamilies {
		kind := prometheus.GaugeValue
		if f.Kind == Counter {
			kind = prometheus.CounterValue
		}
		f.collect(c.sample, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(descriptions[i], kind, value, labels...)
		})
	}
}
