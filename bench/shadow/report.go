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
	Shadow  string         `json:"shadow"`
	About   string         `json:"about"`
	Rounds  []Round        `json:"rounds,omitempty"`
	Median  *Round         `json:"median,omitempty"`  // nil without rounds
	Ratios  []*Ratio       `json:"ratios,omitempty"`  // of this one's figures to those without a mirror
	Mirrors *admin.Mirrors `json:"mirrors,omitempty"` // all of them, at the end of the last round
}

// Ratio is a figure divided by the same without a mirror, round by round.
type Ratio struct {
	Figure string `json:"figure"`
	report.Band
}

// Round is one round of one shadow.
type Round struct {
	Bulk     report.Number `json:"bulk_bytes_per_second"`
	BulkCPU  report.Number `json:"bulk_cpu_seconds_per_gigabyte"` // of the process
	Messages report.Number `json:"messages_per_second"`
	P99      report.Number `json:"message_p99_seconds"`
}

// A figure is one of a Round's.
type figure struct {
	name string
	of   func(*Round) *report.Number
}

var figures = []figure{
	{"bulk_bytes_per_second", func(r *Round) *report.Number { return &r.Bulk }},
	{"bulk_cpu_seconds_per_gigabyte", func(r *Round) *report.Number { return &r.BulkCPU }},
	{"messages_per_second", func(r *Round) *report.Number { return &r.Messages }},
	{"message_p99_seconds", func(r *Round) *report.Number { return &r.P99 }},
}

// sum works out the medians, and the ratios to base, which has no mirror.
func (r *Row) sum(base *Row) {
	if len(r.Rounds) == 0 {
		return
	}
	r.Median = new(Round)
	for _, f := range figures {
		*f.of(r.Median) = report.Number(sample(r.Rounds, &f).Median())
		ratios := sample(r.Rounds, &f).Over(sample(base.Rounds, &f))
		if m := report.Number(ratios.Median()); r != base && m.Known() {
			low, high := ratios.Stray()
			r.Ratios = append(r.Ratios, &Ratio{f.name, report.Band{Median: m, Low: report.Number(low), High: report.Number(high), Values: len(ratios)}})
		}
	}
}

// Ratio returns that of a figure, nil if there is none.
func (r *Row) Ratio(name string) *report.Band {
	for _, x := range r.Ratios {
		if x.Figure == name {
			return &x.Band
		}
	}
	return nil
}

func sample(rounds []Round, f *figure) report.Sample {
	s := make(report.Sample, len(rounds))
	for i := range rounds {
		s[i] = float64(*f.of(&rounds[i]))
	}
	return s
}
