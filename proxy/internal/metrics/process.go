package metrics

import (
	"time"

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
	emit(float64(b.EndpointToClient.Spliced), "endpoint_to_client", "splice")
	emit(float64(b.EndpointToClient.Copied), "endpoint_to_client", "copy")
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
