package rolling

import (
	"slices"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/report"
)

// sources is the number of addresses from which clients connect in turn. It is coprime to two and three endpoints,
// so that each address comes to each endpoint.
const sources = 17

// moment is an event between two times, which are relative to the beginning of the load.
type moment struct{ from, to time.Duration }

// sum adds up the clients of a contestant.
func sum(clients []endpoint.Outcome, failures []moment) *Figures {
	f := &Figures{Clients: int64(len(clients)), Reasons: make(map[string]int64)}
	var waits report.Sample
	for _, c := range clients {
		switch {
		case c.Lost == "":
			waits = append(waits, c.First.Seconds())
		case slices.ContainsFunc(failures, func(m moment) bool { return c.Began <= m.to && c.Ended >= m.from }):
			f.UnderWay++
		default:
			f.Lost++
			f.Reasons[c.Lost]++
		}
	}
	f.P50, f.P99, f.Longest = report.Number(waits.At(0.5)), report.Number(waits.At(0.99)), report.Number(waits.At(1))
	return f
}
