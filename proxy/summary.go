package proxy

import (
	"math"
	"runtime"
	"runtime/metrics"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/relay"
)

// Summary is what a [Server] has done and holds. Sessions that still run are in
// it with what they have moved so far. Its JSON form is part of the interface of
// the program.
type Summary struct {
	Connections Connections      `json:"connections"`
	RefusedBy   map[string]int64 `json:"refused_by,omitempty"` // by [core.Refusal], those that occurred
	Bytes       Bytes            `json:"bytes"`
	Lost        int64            `json:"lost"`      // bytes, see [relay.Flow]
	Fallbacks   map[string]int64 `json:"fallbacks"` // by [relay.Fallback], those that occurred
	Pipes       Pipes            `json:"pipes"`
	Pauses      Pauses           `json:"pauses"`
	// AcceptPauses is how often accepting failed, for want of descriptors or memory as
	// a rule, and was tried again later.
	AcceptPauses int64  `json:"accept_pauses"`
	Goroutines   int64  `json:"goroutines"` // of the whole process, now
	Engine       Engine `json:"engine"`
	Arena        *Arena `json:"arena,omitempty"` // nil where there are goroutines
	Loops        []Loop `json:"loops,omitempty"` // none where there are goroutines
}

// Connections are counts of clients.
type Connections struct {
	Accepted int64 `json:"accepted"` // ever
	Active   int64 `json:"active"`   // now: being connected to a target, or joined
	Refused  int64 `json:"refused"`  // reset, as a rule because no target could be reached
}

// Bytes are what destinations took, by direction.
type Bytes struct {
	ClientToEndpoint Moved `json:"client_to_endpoint"`
	EndpointToClient Moved `json:"endpoint_to_client"`
}

// Moved are bytes by engine.
type Moved struct {
	Spliced int64 `json:"spliced"`
	Copied  int64 `json:"copied"`
}

// Pipes are counts of pipes.
type Pipes struct {
	Made   int64 `json:"made"`   // ever
	Reused int64 `json:"reused"` // leases that were served by an idle pipe
	Leased int64 `json:"leased"` // now
	Idle   int64 `json:"idle"`   // now
}

// Pauses are the times for which the collector stopped everything, since the
// program began.
type Pauses struct {
	GC      int64 `json:"gc"`        // how many
	GCMaxUs int64 `json:"gc_max_us"` // the longest, in microseconds, rounded up to what the runtime tells apart
}

// Engine is what the directions of sessions chose, see [relay.DriverStats].
type Engine struct {
	Promotions   int64 `json:"promotions"`    // from copying to splicing
	Demotions    int64 `json:"demotions"`     // and back
	PipeGrowths  int64 `json:"pipe_growths"`  // larger pipes were asked for
	MarksRaised  int64 `json:"marks_raised"`  // low-water marks of sockets, for bulk
	MarksLowered int64 `json:"marks_lowered"` // because too little came
	TurnsCut     int64 `json:"turns_cut"`     // ended with more to be moved, for the sake of others
}

// Arena is the memory in which loops keep what slow destinations have not taken.
type Arena struct {
	Size     int64 `json:"size"`     // bytes
	Used     int64 `json:"used"`     // bytes that the loops have now, what they read into included
	Peak     int64 `json:"peak"`     // the most that they have had
	Residues int64 `json:"residues"` // ever kept in it, one for each time that a destination blocked
	Refused  int64 `json:"refused"`  // those for which it had no room: they were kept on the heap
}

// A Loop is what one event loop has done and holds.
type Loop struct {
	Active       int64 `json:"active"`      // clients now
	Accepted     int64 `json:"accepted"`    // clients ever
	HandedOver   int64 `json:"handed_over"` // clients that it gave to other loops
	Turns        int64 `json:"turns"`
	Blocked      int64 `json:"blocked"`        // times that it slept until something happened
	Gathers      int64 `json:"gathers"`        // times that it let bytes gather
	BusyPollHits int64 `json:"busy_poll_hits"` // times that busy polling spared it to sleep
	Batches      int64 `json:"batches"`        // times that it took to SCHED_BATCH
	BatchRefused int64 `json:"batch_refused"`  // threads that could not be given that
	LagP99Us     int64 `json:"lag_p99_us"`     // how long turns took, see [core.Load]
	LagMaxUs     int64 `json:"lag_max_us"`
	LongTurns    int64 `json:"long_turns"` // those that took 1,024 µs or more
	Overruns     int64 `json:"overruns"`   // those that used 1,000 µs of CPU time, if that is measured

	TimerLateP99Us int64 `json:"timer_late_p99_us"` // how late timers fired
	TimerLateMaxUs int64 `json:"timer_late_max_us"`
}

// Summary returns what the server has done until now. It may be called at any
// time by any goroutine, also after Serve has returned.
func (s *Server) Summary() Summary {
	return Summarize(s.driver.summary(), s.relay.Stats(), s.paused.Load())
}

// Summarize puts together what cores and a relay have done, and how often accepting has
// failed.
func Summarize(done core.Summary, stats relay.Stats, acceptPauses int64) Summary {
	fallbacks := make(map[string]int64)
	for reason, n := range done.Totals.Fallbacks.All() {
		fallbacks[reason.String()] = n
	}
	pipes, chose := stats.Pipes, stats.Drivers
	sum := Summary{
		Connections: Connections{Accepted: done.Accepted, Active: done.Active, Refused: done.Refused},
		RefusedBy:   done.Refusals.Counts(),
		Bytes:       Bytes{Moved(done.Totals.ClientToEndpoint), Moved(done.Totals.EndpointToClient)},
		Lost:        done.Totals.Lost,
		Fallbacks:   fallbacks,
		Pipes:       Pipes{Made: pipes.Made, Reused: pipes.Reused, Leased: pipes.Leased, Idle: pipes.Idle},
		Pauses:      gcPauses(),

		AcceptPauses: acceptPauses, Goroutines: int64(runtime.NumGoroutine()),
		Engine: Engine{
			Promotions: chose.Promotions, Demotions: chose.Demotions, PipeGrowths: chose.PipeGrowths,
			MarksRaised: chose.MarksRaised, MarksLowered: chose.MarksLowered, TurnsCut: chose.TurnsCut,
		},
	}
	if done.Loops != nil {
		sum.Arena = &Arena{
			Size: done.Arena.Budget, Used: done.Arena.Used, Peak: done.Arena.Peak,
			Residues: chose.Residues, Refused: chose.HeapResidues,
		}
	}
	for _, l := range done.Loops {
		sum.Loops = append(sum.Loops, Loop{
			Active: l.Active, Accepted: l.Accepted, HandedOver: l.HandedOver, Turns: l.Turns,
			Blocked: l.Blocked, Gathers: l.Gathers, BusyPollHits: l.BusyPollHits,
			Batches: l.Batches, BatchRefused: l.BatchRefused,
			LagP99Us: l.LagP99.Microseconds(), LagMaxUs: l.LagMax.Microseconds(), LongTurns: l.LongTurns, Overruns: l.Overruns,
			TimerLateP99Us: l.TimerLateP99.Microseconds(), TimerLateMaxUs: l.TimerLateMax.Microseconds(),
		})
	}
	return sum
}

// gcPauses reads the runtime's histogram of pauses, of which the upper end of the
// last bucket that is not empty is told.
func gcPauses() (p Pauses) {
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
