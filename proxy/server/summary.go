package server

import (
	"math"
	"runtime"
	"runtime/metrics"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// Summary returns the counters and resources.
func (s *Server) Summary() admin.Summary {
	total := s.group.Summary()
	return s.summarize(&total)
}

// summarize adds the relay's and the process's counters to those of the workers.
func (s *Server) summarize(total *worker.Summary) admin.Summary {
	stats := s.relay.Stats()
	fallbacks := make(map[string]int64)
	for reason, n := range total.Totals.Fallbacks.All() {
		fallbacks[reason.String()] = n
	}
	pipes, chose := stats.Pipes, stats.Drivers
	sum := admin.Summary{
		Connections: admin.Connections{Accepted: total.Accepted, Active: total.Active, Refused: total.Refused, Left: total.Left},
		RefusedBy:   total.Refusals.Counts(),
		Bytes:       bytesOf(worker.Bytes{ClientToEndpoint: total.Totals.ClientToEndpoint, EndpointToClient: total.Totals.EndpointToClient}, worker.Bytes{}),
		Lost:        total.Totals.Lost,
		Fallbacks:   fallbacks,
		Lane:        s.laneStatus(),
		Pipes: admin.Pipes{
			Made: pipes.Made, Reused: pipes.Reused, Leased: pipes.Leased, Idle: pipes.Idle,
			TooSmall: pipes.Degraded, Refused: pipes.Refused, Denied: pipes.Denied,
			UsedPages: pipes.UsedPages, BudgetPages: pipes.BudgetPages, MostPages: pipes.LinePages,
		},
		Pauses: gcPauses(),

		AcceptPauses: s.paused.Load(), Goroutines: int64(runtime.NumGoroutine()),
		Engine: admin.Engine{
			Promotions: chose.Promotions, Demotions: chose.Demotions, PipeGrowths: chose.PipeGrowths,
			MarksRaised: chose.MarksRaised, MarksLowered: chose.MarksLowered, TurnsCut: chose.TurnsCut,
		},
	}
	if sum.Lane != nil {
		sum.Connections.Active += sum.Lane.AdoptedActive
	}
	sum.CPUs, sum.SessionLog = allowedCPUs(), s.sessionLogCounts()
	sum.Arena = admin.Arena{
		Size: total.Arena.Budget, Used: total.Arena.Used, Peak: total.Arena.Peak,
		Residues: chose.Residues, Refused: chose.HeapResidues,
		Huge: total.Arena.Huge,
	}
	describeMemory(&sum.Arena, s.group.Memory())
	for i := range total.Loops {
		l := &total.Loops[i]
		sum.Loops = append(sum.Loops, admin.Loop{
			Index: i, Lag: occurred(l.Lag[:]), TimerLate: occurred(l.TimerLate[:]),
			Active: l.Active, Accepted: l.Accepted, HandedOver: l.HandedOver, Turns: l.Turns,
			Blocked: l.Blocked, Gathers: l.Gathers, BusyPollHits: l.BusyPollHits,
			Batches: l.Batches, BatchRefused: l.BatchRefused,
			LagP99Us: l.LagP99.Microseconds(), LagMaxUs: l.LagMax.Microseconds(), LongTurns: l.LongTurns, Overruns: l.Overruns,
			TimerLateP99Us: l.TimerLateP99.Microseconds(), TimerLateMaxUs: l.TimerLateMax.Microseconds(),
		})
	}
	return sum
}

// occurred returns counts without the zeros at their end, never nil.
func occurred(counts []int64) []int64 {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	return append([]int64{}, counts...)
}

// gcPauses reads the runtime's histogram of pauses. The maximum is the upper end of the last
// bucket that is not empty.
func gcPauses() (p admin.Pauses) {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return p
	}
	h := sample[0].Value.Float64Histogram()
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		p.GC += int64(n)
		most := h.Buckets[i+1]
		if math.IsInf(most, 1) {
			most = h.Buckets[i]
		}
		p.GCMaxUs = int64(math.Ceil(most * 1e6))
	}
	return p
}
