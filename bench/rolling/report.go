package rolling

import (
	"math"
	"strings"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
)

// Report is the result of a run, and the content of --json. A field's name has the unit. A figure that was not
// measured is null.
type Report struct {
	ClientsPerS    float64       `json:"clients_per_second"` // clients of each contestant
	AwaySeconds    report.Number `json:"away_seconds"`
	TimeoutSeconds report.Number `json:"timeout_seconds"`
	Rounds         int           `json:"rounds"`
	// Contestants are the contestants that took part, in the order of the cells.
	Contestants []Contestant `json:"contestants"`
	// Missing says why other contestants did not take part.
	Missing   []string   `json:"missing,omitempty"`
	Scenarios []Result   `json:"scenarios"`
	Standings []Standing `json:"standings"`
}

// Contestant is a proxy, as it was started.
type Contestant struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Version string `json:"version,omitempty"`
	Config  string `json:"config"`
}

// Result has one scenario with all contestants.
type Result struct {
	Scenario  string        `json:"scenario"`
	About     string        `json:"about"`
	Endpoints int           `json:"endpoints"`
	Seconds   report.Number `json:"seconds"`
	Cells     []Cell        `json:"cells"`
}

// Cell has one scenario with one contestant.
type Cell struct {
	Contestant string    `json:"contestant"`
	Rounds     []Figures `json:"rounds"`
	// Total has the sums over all rounds, the longest wait of all rounds, and the medians of the quantiles.
	Total *Figures `json:"total"` // nil without rounds
}

// Figures are the results of some clients.
type Figures struct {
	Clients int64 `json:"clients"`
	// Lost counts clients without a complete answer, except the clients in UnderWay. UnderWay counts clients
	// without a complete answer that were already under way when an endpoint failed, and may have been connected
	// to that endpoint.
	Lost     int64 `json:"lost"`
	UnderWay int64 `json:"lost_under_way"`
	// Reasons counts the Lost clients by reason.
	Reasons map[string]int64 `json:"reasons,omitempty"`
	// P50, P99 and Longest are the time to the first byte, for clients that were served.
	P50     report.Number `json:"p50_seconds"`
	P99     report.Number `json:"p99_seconds"`
	Longest report.Number `json:"longest_seconds"`
}

// Standing compares Penstock with the peer that loses the fewest clients in a scenario.
type Standing struct {
	Scenario   string         `json:"scenario"`
	Contestant string         `json:"contestant"`
	Lost       int64          `json:"lost"`
	Peer       string         `json:"peer"`
	PeerLost   int64          `json:"peer_lost"`
	Verdict    report.Verdict `json:"verdict"`
}

func (c *Cell) add(f *Figures) {
	c.Rounds = append(c.Rounds, *f)
	c.Total = &Figures{Reasons: make(map[string]int64)}
	var p50, p99, longest report.Sample
	for i := range c.Rounds {
		f := &c.Rounds[i]
		c.Total.Clients += f.Clients
		c.Total.Lost += f.Lost
		c.Total.UnderWay += f.UnderWay
		for reason, n := range f.Reasons {
			c.Total.Reasons[reason] += n
		}
		if f.Longest.Known() {
			p50, p99, longest = append(p50, float64(f.P50)), append(p99, float64(f.P99)), append(longest, float64(f.Longest))
		}
	}
	c.Total.P50, c.Total.P99, c.Total.Longest = report.Number(p50.Median()), report.Number(p99.Median()), report.Number(longest.Most())
}

// checksSuffix ends the names of contestants that ask endpoints for answers.
const checksSuffix = "-checks"

// comparable reports whether both contestants check their endpoints in the same way.
func comparable(a, b string) bool {
	return strings.HasSuffix(a, checksSuffix) == strings.HasSuffix(b, checksSuffix)
}

func ours(name string) bool {
	return name == contestant.BalancingName || name == contestant.CheckingName
}

// judge compares each configuration of Penstock with the peers that check their endpoints in the same way. No peer
// may lose fewer clients. If a peer loses clients, too, the numbers depend on chance: the moment at which an
// endpoint fails, and the time of the next check. Then a difference counts only if it is larger than its standard
// deviation. That assumes that each client is lost independently.
func (r *Report) judge() {
	r.Standings = nil
	for i := range r.Scenarios {
		cells := r.Scenarios[i].Cells
		for j := range cells {
			if c := &cells[j]; ours(c.Contestant) && c.Total != nil {
				r.Standings = append(r.Standings, c.stand(r.Scenarios[i].Scenario, cells))
			}
		}
	}
}

func (c *Cell) stand(scenario string, cells []Cell) Standing {
	s := Standing{Scenario: scenario, Contestant: c.Contestant, Lost: c.Total.Lost, Verdict: report.Unjudged}
	for i := range cells {
		peer := &cells[i]
		if ours(peer.Contestant) || peer.Total == nil || !comparable(c.Contestant, peer.Contestant) {
			continue
		}
		if s.Peer == "" || peer.Total.Lost < s.PeerLost {
			s.Peer, s.PeerLost = peer.Contestant, peer.Total.Lost
		}
	}
	switch {
	case s.Peer == "":
	case s.Lost <= s.PeerLost, s.PeerLost > 0 && float64(s.Lost-s.PeerLost) < math.Sqrt(float64(s.Lost+s.PeerLost)):
		s.Verdict = report.MustReached
	default:
		s.Verdict = report.Missed
	}
	return s
}
