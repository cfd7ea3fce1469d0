package claims

import (
	"context"
	"strings"
	"testing"
)

// A measurement is a row of docs/claims.md that is measured here, by the name of its section. It ends early with the cause of its
// context.
type measurement struct {
	id      string
	measure func(context.Context) (Result, error)
}

var measurements = []measurement{
	{"stop-timer", measureStopTimer},
	{"one-connection", measureConnection},
	{"one-flow", measureFlow},
	{"gathered-writes", measureWrites},
	{"gathered-references", measureReferences},
	{"ten-thousand-connections", measureConnections},
	{"slice-headers", measureHeaders},
	{"million-connections", measureMillion},
	{"one-call", measureGathered},
	{"iovec-limit", measureLimit},
	{"splice-move", measureMove},
	{"busy-polling", measureBusyPoll},
	{"nagle", measureNagle},
}

// BenchmarkClaim measures a row in each of its benchmarks. An iteration is a whole measurement, some seconds usually,
// in which the contestants take turns: -benchtime 1x is one. The figures of the last turn are its metrics, and its row.
func BenchmarkClaim(b *testing.B) {
	for _, m := range measurements {
		b.Run(m.id, func(b *testing.B) {
			var r Result
			for b.Loop() {
				var err error
				if r, err = m.measure(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op") // of the whole measurement
			for _, f := range r {
				b.ReportMetric(f.Value, f.metric())
			}
			b.Log(r)
		})
	}
}

// metric returns the name of the figure's metric in a benchmark: it has no spaces.
func (f Figure) metric() string {
	name := strings.Trim(strings.Join([]string{f.Of, f.Name}, ": "), ": ")
	unit, _, _ := strings.Cut(string(f.Unit), ",")
	return strings.ReplaceAll(name+" "+unit, " ", "-")
}
