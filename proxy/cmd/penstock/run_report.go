package main

import (
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/admin"
)

// report examines this process.
func (r *daemon) report() *doctor.Report {
	s := r.Status()
	report := doctor.ExamineProcess(runningOf(&s))
	if c, there := checkRunningLane(s.Lane); there {
		report.Checks = append(report.Checks, c)
	}
	return report
}

// runningOf returns the counters of a status that limits show in.
func runningOf(s *admin.Status) *doctor.Running {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	r := &doctor.Running{
		Sessions: s.Connections.Active, MaxSessions: s.Connections.Most, AcceptPauses: s.AcceptPauses,
		Spliced:   s.Bytes.ClientToEndpoint.Spliced + s.Bytes.EndpointToClient.Spliced,
		Copied:    s.Bytes.ClientToEndpoint.Copied + s.Bytes.EndpointToClient.Copied,
		Fallbacks: s.Fallbacks, LocalFaults: make(map[string]int64),
		Pipes: doctor.RunningPipes{
			Leased: s.Pipes.Leased, Idle: s.Pipes.Idle, Degraded: s.Pipes.TooSmall, Refused: s.Pipes.Refused, Denied: s.Pipes.Denied,
			BudgetPages: s.Pipes.BudgetPages, LinePages: s.Pipes.MostPages, UsedPages: s.Pipes.UsedPages,
		},
		ArenaSize: s.Arena.Size, ArenaHuge: s.Arena.Huge, ArenaFallback: s.Arena.Fallback, ArenaRefused: s.Arena.Refused,
	}
	for _, l := range s.Loops {
		r.Loops = append(r.Loops, doctor.RunningLoop{LagP99: us(l.LagP99Us), LagMax: us(l.LagMaxUs), TimerLateP99: us(l.TimerLateP99Us), Turns: l.Turns, LongTurns: l.LongTurns})
	}
	for i := range s.Listeners {
		for _, q := range s.Listeners[i].Queues {
			r.Queues = append(r.Queues, doctor.RunningQueue{
				Address: q.Address, Length: q.Length, Most: q.Most, Dropped: q.Dropped, Known: q.Known, DroppedKnown: q.DroppedKnown,
			})
		}
	}
	for i := range s.Upstreams {
		for cause, n := range s.Upstreams[i].LocalFaults {
			r.LocalFaults[cause] += n
		}
	}
	return r
}
