package write

import "github.com/penstock/penstock/bench/report"

// The bounds for gathered writes, at the size at which 125,000 writes a second were published
// to be 1.3 Gbit/s.
const (
	heldSize       = 1300
	mustThroughput = 6.3
	mustCalls      = 1.0 / 15
	mustUser       = 0.45
	mustBest       = 0.97  // of net.Buffers and bufio, at every size
	mustBits       = 8.2e9 // a second, over one connection, at the best size
)

// Standing is how one of Penstock's ways stands to a bound, in this run.
type Standing struct {
	Figure string `json:"figure"` // with its size: "throughput at 1,300 B"
	Way    string `json:"way"`
	Beside string `json:"beside,omitempty"` // the way that it is divided by; empty for an absolute bound
	// Value is the figure or the ratio, and Must its bound: the least if More is better, else
	// the greatest. Turns is the spread of the turns of which Value is the median; nil for
	// other figures.
	Value report.Number `json:"value"`
	Turns *report.Band  `json:"turns,omitempty"`
	Must  report.Number `json:"must"`
	More  bool          `json:"more_is_better"`
	// Unit is "bit/s", "objects", or empty for a ratio.
	Unit    string         `json:"unit,omitempty"`
	Verdict report.Verdict `json:"verdict"`
}

// judge fills in the standings to all bounds.
func (r *Report) judge() {
	for _, way := range own {
		for i := range r.Groups {
			if g := &r.Groups[i]; g.Size == heldSize {
				r.stand(g.toWrite(way)...)
			}
		}
		for i := range r.Groups {
			if g := &r.Groups[i]; g.Size > 0 {
				r.stand(g.throughput(way, g.Best, g.row(way).ToBest, mustBest))
			}
		}
		r.stand(r.absolute(way)...)
	}
}

func (r *Report) stand(all ...Standing) {
	for _, s := range all {
		s.Verdict = report.Missed
		switch {
		case !s.Value.Known():
			s.Verdict = report.Unjudged
		case s.More && s.Value >= s.Must, !s.More && s.Value <= s.Must:
			s.Verdict = report.MustReached
		}
		r.Standings = append(r.Standings, s)
	}
}

// toWrite are the bounds beside net.Conn.Write.
func (g *Group) toWrite(way string) []Standing {
	r, base := g.row(way), g.row(wayWrite)
	user, calls := report.Unmeasured(), r.CallsPerMB/base.CallsPerMB
	if r.Median != nil && base.Median != nil {
		user = r.Median.UserPerGB / base.Median.UserPerGB
	}
	return []Standing{
		g.throughput(way, wayWrite, r.ToWrite, mustThroughput),
		{Figure: "system calls/MB at " + g.Name, Way: way, Beside: wayWrite, Value: calls, Must: mustCalls},
		{Figure: "user CPU/GB at " + g.Name, Way: way, Beside: wayWrite, Value: user, Must: mustUser},
	}
}

// throughput is a bound of a ratio of throughputs, nil if there is none.
func (g *Group) throughput(way, beside string, ratio *report.Band, must report.Number) Standing {
	s := Standing{
		Figure: "throughput at " + g.Name, Way: way, Beside: beside,
		Value: report.Unmeasured(), Turns: ratio, Must: must, More: true,
	}
	if ratio != nil {
		s.Value = ratio.Median
	}
	return s
}

// absolute returns the standings to the absolute bounds.
func (r *Report) absolute(way string) []Standing {
	most, objects := report.Unmeasured(), report.Unmeasured()
	for i := range r.Groups {
		row := r.Groups[i].row(way)
		if row.Median == nil {
			continue
		}
		if !most.Known() || row.Median.BitsPerSecond > most {
			most = row.Median.BitsPerSecond
		}
		if !objects.Known() || row.Objects > objects {
			objects = row.Objects
		}
	}
	return []Standing{
		{Figure: "objects allocated in a turn", Way: way, Value: objects, Must: 0, Unit: "objects"},
		{Figure: "one connection, best size", Way: way, Value: most, Must: mustBits, More: true, Unit: "bit/s"},
	}
}
