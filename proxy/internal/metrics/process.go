package metrics

import (
	"cmp"
	"maps"
	"os"
	"reflect"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/prometheus/client_golang/prometheus"
)

// A processFamily is a family of the whole process. collect calls emit for each series, with the values
// of the family's labels.
type processFamily struct {
	Family
	collect     func(s *Sample, emit emitter)
	description *prometheus.Desc // once described
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
	return cmp.Or(s.Process.SessionLog, &admin.SessionLog{})
}

// lane is that of the process; all are 0 if there is none.
func (s *Sample) lane() *admin.Lane { return cmp.Or(s.Process.Lane, &admin.Lane{}) }

// traces is the counts of spans; all are 0 if there were none.
func (s *Sample) traces() *admin.Traces { return cmp.Or(s.Process.Traces, &admin.Traces{}) }

// pageSize is the size of a page of a pipe.
var pageSize = int64(os.Getpagesize())

// processFamilies are those of the process, beside the ones of the status's fields.
var processFamilies = []processFamily{
	{Family: gauge("penstock_build_info", "1, with the version.", "version"), collect: func(s *Sample, emit emitter) { emit(1, s.Process.Version) }},
	{Family: gauge("penstock_draining", "1 while the process drains before its end."), collect: boolean(func(s *Sample) bool { return s.Process.State == admin.Draining })},
	{Family: counter("penstock_refused_total", "Clients that were refused. reason is the stage.", "reason"), collect: func(s *Sample, emit emitter) { emitAll(emit, s.Process.EveryRefusal) }},
	{Family: counter("penstock_left_total", "Clients that have gone before they had an endpoint."), collect: number(func(s *Sample) int64 { return s.Process.Connections.Left })},
	{Family: counter("penstock_bytes_total", "Bytes of all sessions, of those that run, too; "+byDirection, "direction", "engine"), collect: collectBytes},
	{Family: gauge("penstock_lane_on", "1 if sessions may leave user space."), collect: boolean(func(s *Sample) bool { return s.lane().State == admin.LaneOn })},
	{Family: counter("penstock_engine_changes_total", "Changes of a direction of a session: splice (from copying to splicing), copy (back), larger_pipe, mark_raised and mark_lowered (low-water mark of a socket).", "to"), collect: collectEngine},
	{Family: gauge("penstock_pipes", "Pipes now: leased (with bytes in flight) or idle.", "state"), collect: collectPipes},
	{Family: gauge("penstock_pipe_budget_bytes", "Memory that pipes may take now."), collect: number(func(s *Sample) int64 { return s.Process.Pipes.BudgetPages * pageSize })},
	{Family: gauge("penstock_pipe_budget_used_bytes", "Memory that pipes take."), collect: number(func(s *Sample) int64 { return s.Process.Pipes.UsedPages * pageSize })},
	{Family: counter("penstock_arena_residues_total", "Times that the bytes of a blocked destination were kept in it, or on the heap because there was no room.", "in"), collect: collectResidues},
	{Family: counter("penstock_health_transitions_total", "Changes of the state of endpoints and circuit breakers."), collect: named("transitions")},
	{Family: counter("penstock_hellos_missing_total", "Clients that were served without a ClientHello."), collect: named("hellos_missing")},
	{Family: counter("penstock_session_log_dropped_total", "Lines of the session log that were dropped. reason is ring (that of a loop was full), destination (it took no more) or rate (more than per_second).", "reason"), collect: func(s *Sample, emit emitter) { emitEach(emit, s.sessionLog().Dropped, "ring", "destination", "rate") }},
	{Family: counter("penstock_spans_dropped_total", "Spans that the collector does not have. reason is queue_full, refused (by the collector), unavailable (it was not reached) or shutdown.", "reason"), collect: func(s *Sample, emit emitter) {
		emitEach(emit, s.traces().Dropped, "queue_full", "refused", "unavailable", "shutdown")
	}},
	{Family: gauge("penstock_config_generation", "Number of the configuration in force."), collect: number(func(s *Sample) int64 { return int64(s.Config.Generation) })},
	{Family: gauge("penstock_config_unconfirmed", "1 while a reload waits to be confirmed."), collect: boolean(func(s *Sample) bool { return s.Config.Unconfirmed })},
	{Family: gauge("penstock_config_restart_keys", "Keys of the configuration whose values take effect when the process is started again."), collect: number(func(s *Sample) int64 { return int64(len(s.Process.Restart)) })},
	{Family: counter("penstock_config_reloads_total", "Attempts to reload by result: success, refused (nothing was changed) or rolled_back (after a success).", "result"), collect: collectReloads},
	{Family: gauge("penstock_config_last_reload_successful", "1 if the last attempt to load the configuration has succeeded."), collect: boolean(func(s *Sample) bool { return s.Config.LastOK })},
	{Family: gauge("penstock_config_last_reload_success_timestamp_seconds", "Time of the last load that has succeeded, since the epoch."), collect: one(func(s *Sample) float64 { return seconds(s.Config.LastSuccess) })},
	{Family: gauge("penstock_config_last_reload_seconds", "Duration of the last change by phase: prepare (beside the old configuration, which harms no client) and swap. 0: there was none.", "phase"), collect: collectPhases},
	{Family: gauge("penstock_config_file_state", "1 for the state of the file beside the running configuration: same, differs (a reload would change something), invalid (a reload would be refused) or unknown (not compared yet, or there is no file). It is compared at most every 15 seconds.", "state"), collect: collectFile},
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

func collectBytes(s *Sample, emit emitter) {
	b := s.Process.Bytes
	emit(float64(b.ClientToEndpoint.Spliced), "client_to_endpoint", "splice")
	emit(float64(b.ClientToEndpoint.Copied), "client_to_endpoint", "copy")
	emit(float64(b.ClientToEndpoint.Lane), "client_to_endpoint", "lane")
	emit(float64(b.EndpointToClient.Spliced), "endpoint_to_client", "splice")
	emit(float64(b.EndpointToClient.Copied), "endpoint_to_client", "copy")
	emit(float64(b.EndpointToClient.Lane), "endpoint_to_client", "lane")
}

func collectEngine(s *Sample, emit emitter) {
	n := s.Process.Engine
	emit(float64(n.Promotions), "splice")
	emit(float64(n.Demotions), "copy")
	emit(float64(n.PipeGrowths), "larger_pipe")
	emit(float64(n.MarksRaised), "mark_raised")
	emit(float64(n.MarksLowered), "mark_lowered")
}

func collectPipes(s *Sample, emit emitter) {
	emit(float64(s.Process.Pipes.Leased), "leased")
	emit(float64(s.Process.Pipes.Idle), "idle")
}

func collectResidues(s *Sample, emit emitter) {
	a := s.Process.Arena
	emit(float64(a.Residues), "arena")
	emit(float64(a.Refused), "heap")
}

func collectReloads(s *Sample, emit emitter) {
	emit(float64(s.Config.Reloads), "success")
	emit(float64(s.Config.Refused), "refused")
	emit(float64(s.Config.RolledBack), "rolled_back")
}

func collectPhases(s *Sample, emit emitter) {
	emit(float64(s.Process.Changes.PreparedUs)/1e6, "prepare")
	emit(float64(s.Process.Changes.SwappedUs)/1e6, "swap")
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

// Describe implements [prometheus.Collector].
func (*collector) Describe(to chan<- *prometheus.Desc) {
	for i := range families().process {
		to <- families().process[i].description
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for i := range families().process {
		f := &families().process[i]
		kind := prometheus.GaugeValue
		if f.Kind == Counter {
			kind = prometheus.CounterValue
		}
		f.collect(c.sample, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(f.description, kind, value, labels...)
		})
	}
}

// describedProcess returns the families of the process, with those of the status's fields.
func describedProcess() (list []processFamily) {
	for _, m := range measuresOf[admin.Status]("penstock_") {
		list = append(list, processFamily{Family: m.Family, collect: func(s *Sample, emit emitter) { m.collect(reflect.ValueOf(&s.Process.Status), emit) }})
	}
	list = append(list, processFamilies...)
	for i := range list {
		f := &list[i]
		f.description = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	}
	return list
}
