package handshake

import (
	"math"

	"github.com/penstock/penstock/bench/report"
)

// Report is the result of a comparison, and the content of --json. A field's name has the unit. A figure that was
// not measured is null.
type Report struct {
	Rounds  int           `json:"rounds"`
	Trial   report.Number `json:"trial_seconds"`
	Workers int           `json:"clients"`
	Rows    []Row         `json:"contestants"`
}

// Row has the figures of one contestant.
type Row struct {
	Contestant string              `json:"contestant"`
	About      string              `json:"about"`
	Agreed     string              `json:"agreed,omitempty"` // version and cipher suite
	Rounds     []Round             `json:"rounds,omitempty"`
	Median     *Round              `json:"median,omitempty"` // nil without rounds
	Ratios     report.FigureRatios `json:"ratios,omitempty"` // Penstock's figures divided by this contestant's; Penstock itself has none
	Failed     string              `json:"failed,omitempty"`
}

// Round has the figures of one contestant in one round.
type Round struct {
	New         report.Number `json:"new_handshakes_per_second"`
	NewCPU      report.Number `json:"new_cpu_seconds"` // the proxy's CPU for each handshake
	Resumed     report.Number `json:"resumed_handshakes_per_second"`
	ResumedCPU  report.Number `json:"resumed_cpu_seconds"`
	Share       report.Number `json:"resumed_share"` // share of the handshakes that could be resumed
	Plain       report.Number `json:"plain_connections_per_second"`
	PlainCPU    report.Number `json:"plain_cpu_seconds"`
	Message     report.Number `json:"message_seconds"` // median time of a message there and back, in TLS
	MessageP99  report.Number `json:"message_p99_seconds"`
	Unsealed    report.Number `json:"plain_message_seconds"`
	Added       report.Number `json:"added_seconds"` // Message minus Unsealed
	MessagesCPU report.Number `json:"message_cpu_seconds"`
	UnsealedCPU report.Number `json:"plain_message_cpu_seconds"`
	Many        report.Number `json:"many_messages_per_second"` // with manyConnections connections at once, in TLS
	ManyCPU     report.Number `json:"many_message_cpu_seconds"`
	ManyP99     report.Number `json:"many_message_p99_seconds"`
	ManyOpen    report.Number `json:"many_plain_messages_per_second"`
	ManyOpenCPU report.Number `json:"many_plain_message_cpu_seconds"`
}

// sum computes the medians, and the ratios to base, which is Penstock.
func (r *Row) sum(base *Row) {
	if len(r.Rounds) == 0 {
		return
	}
	r.Median = report.Over(r.Rounds, report.Sample.Median)
	if r != base {
		r.Ratios = report.RoundRatios(base.Rounds, r.Rounds, above)
	}
}

// above removes the values that are not above 0, because there is no ratio to them. Only a difference of noisy
// values can be 0 or less.
func above(s report.Sample) report.Sample {
	for i := range s {
		if s[i] <= 0 {
			s[i] = math.NaN()
		}
	}
	return s
}
