package soak

import "time"

// Report is the actions of a run, and the proxy's account of it.
type Report struct {
	Seed        uint64   `json:"seed"`
	Flags       []string `json:"flags"` // of `penstock proxy`, beside addresses
	Connections int      `json:"connections"`
	Seconds     float64  `json:"seconds"`
	Actions     []Count  `json:"actions"`
	Rounds      []Round  `json:"rounds"` // those that were checked

	// Exact are bytes of connections on which all had to arrive, Torn of those that
	// were torn down in the middle; each from clients and from servers.
	Exact [2]Flow `json:"exact"`
	Torn  [2]Flow `json:"torn"`
	// Moved is the proxy's count of bytes that destinations took, from clients and from
	// servers; Lost is its count of bytes that it had and could not deliver.
	Moved [2]int64 `json:"moved"`
	Lost  int64    `json:"lost"`

	Lane *Lane `json:"lane,omitempty"` // nil: no session may leave user space

	DescriptorsFirst int   `json:"descriptors_first"` // before the first connection
	DescriptorsLast  int   `json:"descriptors_last"`  // after the last one
	PipesIdle        int64 `json:"pipes_idle"`        // two descriptors each, of the last
	RssAnonFirst     int64 `json:"rss_anon_first"`
	RssAnonLast      int64 `json:"rss_anon_last"`
	RssAnonMost      int64 `json:"rss_anon_most"`

	Violations []string `json:"violations"` // none: all is well
}

// report returns the results so far.
func (s *soak) report() *Report {
	l := &s.ledger
	return &Report{
		Seed: s.Seed, Flags: s.Flags, Connections: s.Connections, Seconds: time.Since(s.began).Seconds(),
		Actions: s.tally.counts(), Rounds: l.rounds, Exact: l.exact, Torn: l.torn,
		Moved:            [2]int64{l.last.ClientToEndpoint - l.first.ClientToEndpoint, l.last.EndpointToClient - l.first.EndpointToClient},
		Lane:             s.laneReport(),
		Lost:             l.last.Summary.Lost - l.first.Summary.Lost,
		DescriptorsFirst: l.first.held.sum(), DescriptorsLast: l.last.held.sum(), PipesIdle: l.last.Summary.Pipes.Idle,
		RssAnonFirst: l.first.RssAnon, RssAnonLast: l.last.RssAnon, RssAnonMost: l.rssMost,
		Violations: s.violations,
	}
}
