package write

import (
	"slices"

	"github.com/penstock/penstock/bench/report"
)

// Report is the result of a comparison, and the content of --json. A unit is part of the
// field's name; an unmeasured figure is null.
type Report struct {
	BatchBytes int   `json:"batch_bytes"`
	Rounds     int   `json:"rounds"`
	Turns      int   `json:"turns"`       // in each round
	TotalBytes int64 `json:"round_bytes"` // that each way writes in a round
	// SystemCallCounter is the tool that counted, empty if none did.
	SystemCallCounter string  `json:"system_call_counter,omitempty"`
	Groups            []Group `json:"groups"`
	// Nagle is nil if it was not asked for.
	Nagle     *NagleReport `json:"write_write_read,omitempty"`
	Standings []Standing   `json:"standings"`
}

// Group is one shape of batches.
type Group struct {
	Shape
	Rows []Row `json:"ways"`
	// Best is that of net.Buffers and bufio which is fastest beside net.Conn.Write;
	// empty if none was measured.
	Best string `json:"best,omitempty"`
	// Noise is the ratio of the throughput of net.Buffers to that of net.Buffers.
	Noise *report.Band `json:"noise_floor"`
}

// Row is one way to write them.
type Row struct {
	Way    string    `json:"way"`
	About  string    `json:"about"`
	Trials []Figures `json:"trials,omitempty"` // by round
	Turns  []Turn    `json:"turns,omitempty"`  // of every round
	// Median is of the rounds, nil without trials.
	Median *Figures `json:"median,omitempty"`
	// ToWrite and ToBest are the throughput's ratios to net.Conn.Write, and to the
	// Group's Best, of the same turn; nil of those themselves, and where one of the
	// two was not measured.
	ToWrite *report.Band `json:"throughput_to_write"`
	ToBest  *report.Band `json:"throughput_to_best"`
	// Objects is how many objects of the heap were allocated in a turn, the median: a
	// new thread of the runtime's is a few now and then, and none of the way's.
	Objects report.Number `json:"allocated_objects_per_turn"`
	// The calls are of a trial of its own, under the tool that counts; CallsFailed is the
	// reason why there is none. CallsPerSecond is their number for each byte times the median
	// of the throughput, because a tool that counts slows down the process. MissesPerBatch are
	// cache misses.
	CallsPerMB     report.Number `json:"system_calls_per_mb"`
	CallsPerSecond report.Number `json:"system_calls_per_second"`
	CallsPerBatch  report.Number `json:"system_calls_per_batch"`
	CallsFailed    string        `json:"system_calls_failed,omitempty"`
	MissesPerBatch report.Number `json:"cache_misses_per_batch"`
}

// Turn is the result of one turn of a way.
type Turn struct {
	BitsPerSecond report.Number `json:"bits_per_second"`
	Objects       report.Number `json:"allocated_objects"`
}

// objects is the median of those of the turns.
func (r *Row) objects() report.Number {
	return report.Number(report.SampleOf(r.Turns, func(t *Turn) report.Number { return t.Objects }).Median())
}

// sum works out the medians and the ratios.
func (g *Group) sum() {
	for i := range g.Rows {
		r := &g.Rows[i]
		if len(r.Trials) > 0 {
			r.Median = median(r.Trials)
		}
		r.Objects = r.objects()
		r.ToWrite = r.over(g.row(wayWrite))
	}
	g.Best = g.best()
	g.Noise = g.row(wayAgain).over(g.row(wayBuffers))
	for i := range g.Rows {
		g.Rows[i].ToBest = g.Rows[i].over(g.row(g.Best))
	}
}

// best finds the rival that is fastest beside net.Conn.Write, turn by turn.
func (g *Group) best() (name string) {
	var most report.Number
	for _, rival := range rivals {
		if r := g.row(rival); r != nil && r.ToWrite != nil && r.ToWrite.Median > most {
			name, most = rival, r.ToWrite.Median
		}
	}
	return name
}

// row returns that of a way, nil if there is none.
func (g *Group) row(way string) *Row {
	i := slices.IndexFunc(g.Rows, func(r Row) bool { return r.Way == way })
	if i < 0 {
		return nil
	}
	return &g.Rows[i]
}

// over is the ratio of the throughput to base's, turn by turn.
func (r *Row) over(base *Row) *report.Band {
	if base == nil || base.Way == r.Way {
		return nil
	}
	ratios := make(report.Sample, min(len(r.Turns), len(base.Turns)))
	for i := range ratios {
		ratios[i] = float64(r.Turns[i].BitsPerSecond / base.Turns[i].BitsPerSecond)
	}
	if len(ratios) == 0 {
		return nil
	}
	low, high := ratios.Stray()
	return &report.Band{
		Median: report.Number(ratios.Median()), Low: report.Number(low), High: report.Number(high), Values: len(ratios),
	}
}

// NagleReport is the result of Nagle: the time of an exchange that is written in two pieces,
// by two Writes under Nagle's algorithm and by one gathered write.
type NagleReport struct {
	Exchanges int     `json:"exchanges"`
	Before    Seconds `json:"before"`
	After     Seconds `json:"after"`
}

// Seconds is a Latency in seconds.
type Seconds struct {
	P50 report.Number `json:"p50_seconds"`
	P99 report.Number `json:"p99_seconds"`
	Max report.Number `json:"max_seconds"`
}

func (l *Latency) seconds() Seconds {
	return Seconds{report.Number(l.P50.Seconds()), report.Number(l.P99.Seconds()), report.Number(l.Max.Seconds())}
}
