package shadow

import (
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/admin"
)

// Report is the result of a comparison, and the content of --json. A unit is part of the field's name; an unmeasured
// figure is null.
type Report struct {
	Rounds int           `json:"rounds"`
	Trial  report.Number `json:"trial_seconds"`
	Rows   []Row         `json:"shadows"`
}

// Row is one kind of shadow.
type Row struct {
	Shadow  string              `json:"shadow"`
	About   string              `json:"about"`
	Rounds  []Round             `json:"rounds,omitempty"`
	Median  *Round              `json:"median,omitempty"`  // nil without rounds
	Ratios  report.FigureRatios `json:"ratios,omitempty"`  // of this one's figures to those without a mirror
	Mirrors *admin.Mirrors      `json:"mirrors,omitempty"` // all of them, at the end of the last round
}

// Round is one round of one shadow.
type Round struct {
	Bulk     report.Number `json:"bulk_bytes_per_second"`
	BulkCPU  report.Number `json:"bulk_cpu_seconds_per_gigabyte"` // of the process
	Messages report.Number `json:"messages_per_second"`
	P99      report.Number `json:"message_p99_seconds"`
}

var figures = []report.RoundFigure[Round]{
	{Name: "bulk_bytes_per_second", Of: func(r *Round) *report.Number { return &r.Bulk }},
	{Name: "bulk_cpu_seconds_per_gigabyte", Of: func(r *Round) *report.Number { return &r.BulkCPU }},
	{Name: "messages_per_second", Of: func(r *Round) *report.Number { return &r.Messages }},
	{Name: "message_p99_seconds", Of: func(r *Round) *report.Number { return &r.P99 }},
}

// sum works out the medians, and the ratios to base, which has no mirror.
func (r *Row) sum(base *Row) {
	if len(r.Rounds) == 0 {
		return
	}
	r.Median = report.Medians(figures, r.Rounds)
	if r != base {
		r.Ratios = report.RoundRatios(figures, r.Rounds, base.Rounds, nil)
	}
}
