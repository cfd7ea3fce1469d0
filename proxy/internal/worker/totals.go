package worker

import (
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// Moved are bytes by engine.
type Moved struct{ Spliced, Copied, Lane int64 }

// All returns the bytes of all engines.
func (m Moved) All() int64 { return m.Spliced + m.Copied + m.Lane }

func (m *Moved) add(n Moved) {
	m.Spliced += n.Spliced
	m.Copied += n.Copied
	m.Lane += n.Lane
}

// movedBy are the bytes of a direction.
func movedBy(f *relay.Flow) Moved { return Moved{f.Spliced, f.Copied, f.Carried} }

// Totals are sums over sessions.
type Totals struct {
	ClientToEndpoint, EndpointToClient Moved
	Lost                               int64
	Fallbacks                          relay.Fallbacks
}

// Add adds the result of a session; its a is the client.
func (t *Totals) Add(r relay.Result) {
	t.ClientToEndpoint.add(movedBy(&r.AToB))
	t.EndpointToClient.add(movedBy(&r.BToA))
	t.Lost += r.AToB.Lost + r.BToA.Lost
	for i := range t.Fallbacks {
		t.Fallbacks[i] += r.AToB.Fallbacks[i] + r.BToA.Fallbacks[i]
	}
}

func (t *Totals) merge(u *Totals) {
	t.ClientToEndpoint.add(u.ClientToEndpoint)
	t.EndpointToClient.add(u.EndpointToClient)
	t.Lost += u.Lost
	for i, n := range u.Fallbacks {
		t.Fallbacks[i] += n
	}
}

// Summary is the counters and the resources of workers.
type Summary struct {
	Accepted, Active, Refused, Canceled int64 // clients
	Left                                int64 // clients that have gone before they were joined
	Refusals                            Refusals
	Totals                              Totals
	Loops                               []Load
	Arena                               arena.Stats // of all loops
}

// TimeBuckets is how many there are in [Load.Lag] and [Load.TimerLate].
const TimeBuckets = len(loop.Stats{}.Lag)

// Load is the counters and the resources of one loop.
type Load struct {
	Active, Accepted int64 // clients that it serves, and has served
	HandedOver       int64 // clients that it accepted for others
	Peeks            int64 // looks at clients' first bytes, see [Preread]
	Taken            int64 // bytes that were taken instead of peeked at
	HellosMissing    int64 // clients that were served without one, see [Preread.AnyHello]
	// Fields of [loop.Stats] of the same name.
	Turns, Blocked, Gathers, BusyPollHits, Batches, BatchRefused, Overruns int64
	// LagP99 and LagMax are the times of turns, see [loop.Stats]: LagP99 is an upper bound for
	// 99 % of them. TimerLateP99 and TimerLateMax are the same of the delays of timers.
	LagP99, LagMax, TimerLateP99, TimerLateMax time.Duration
	LongTurns                                  int64 // turns of 1,024 µs and more
	// Lag and TimerLate are those of [loop.Stats].
	Lag, TimerLate [TimeBuckets]int64
}

func (s *Summary) merge(o *Summary) {
	s.Accepted += o.Accepted
	s.Active += o.Active
	s.Refused += o.Refused
	s.Canceled += o.Canceled
	s.Left += o.Left
	s.Refusals.merge(&o.Refusals)
	s.Totals.merge(&o.Totals)
	s.Loops = append(s.Loops, o.Loops...)
}
