package report

import "strings"

// Goal is a goal of Penstock for one figure of a scenario. It bounds the ratio to the peer against which Penstock
// does worst, or the figure itself.
type Goal struct {
	Scenario string `json:"scenario"`
	Figure   string `json:"figure"`
	// Subject is the kind of Penstock to which the goal applies.
	Subject string `json:"subject"`
	// Peers are the peers that count: their names, or the beginnings of their names up to a "-". If it is empty,
	// all peers count. Among then describes them in words.
	Peers []string `json:"peers,omitempty"`
	Among string   `json:"among,omitempty"`
	// Absolute says that the goal bounds the figure itself. Then no peer counts.
	Absolute bool `json:"absolute,omitempty"`
	// Must is required, and Aim is desired; null means that there is none. They are lower bounds if more of the
	// figure is better, and otherwise upper bounds.
	Must Number `json:"must"`
	Aim  Number `json:"aim"`
}

// The kinds of Penstock to which goals apply.
const (
	subject     = "penstock"
	subjectBusy = "penstock-busy-poll"
)

// The kinds of Penstock with sessions that leave user space, and the kind with which they are compared.
const (
	subjectLane = "penstock-run-lane"
	subjectRun  = "penstock-run"
)

// laneCPU is how much CPU of the process, in seconds per request, still counts as none. A process without work
// still has its timers, and reads how many bytes the sessions in the lane have carried.
const laneCPU = 1e-7

// ratiosOf returns a function that appends goals for a subject: bounds of its ratio to the peers.
func ratiosOf(subject string, all *[]Goal) func(scenario, figure string, must, aim Number) {
	return func(scenario, figure string, must, aim Number) {
		*all = append(*all, Goal{Scenario: scenario, Figure: figure, Subject: subject, Must: must, Aim: aim})
	}
}

// LaneGoals returns the goals of sessions that have left user space, in the order of the scenarios.
func LaneGoals() []Goal {
	var all []Goal
	ratio := ratiosOf(subjectLane, &all)
	for _, s := range []string{"bulk-1", "bulk-8", "bulk-64"} {
		ratio(s, "gigabytes_per_second", 1, 1.3)
		ratio(s, "machine_cpu_seconds_per_gb", 0.75, 0.65)
	}
	ratio("echo-64-1", "latency_p50_seconds", 0.75, 0.6)
	for _, s := range []string{"echo-64-64", "echo-4096-64"} {
		ratio(s, "requests_per_second", 1.7, 2)
		ratio(s, "latency_p99_seconds", 0.6, 0.4)
		ratio(s, "machine_cpu_seconds_per_request", 0.6, 0.5)
		all = append(all, Goal{Scenario: s, Figure: "cpu_seconds_per_request", Subject: subjectLane, Absolute: true, Must: laneCPU, Aim: Unmeasured()})
	}
	return append(all, Goal{
		Scenario: "connections", Figure: "connections_per_second", Subject: subjectLane,
		Peers: []string{subjectRun}, Among: "penstock run without lane", Must: 0.97, Aim: 1,
	})
}

// peers are the contestants that Penstock should beat, by the beginnings of their names. Direct is missing,
// because it is no proxy. The slower form of the rival is missing, too.
var peers = []string{"haproxy-", "nginx", "io.Copy", "envoy"}

func (g *Goal) isPeer(name string) bool {
	among := peers
	if len(g.Peers) > 0 {
		among = g.Peers
	}
	for _, p := range among {
		if name == p || strings.HasSuffix(p, "-") && strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// HAProxy splices at much lower cost through large pipes than through pipes of its default size. So each goal
// names one of the two.
var splicers = []Goal{
	{Peers: []string{"haproxy-splice-1-defaults", "haproxy-splice-2-defaults"}, Among: "HAProxy's with splicing, pipes of the default size"},
	{Peers: []string{"haproxy-splice-1", "haproxy-splice-2"}, Among: "HAProxy's with splicing, pipes of 1 MiB"},
}

// Goals returns all goals in the order of the scenarios.
func Goals() []Goal {
	var all []Goal
	ratio := ratiosOf(subject, &all)
	for _, s := range []string{"bulk-1", "bulk-8", "bulk-64"} {
		ratio(s, "gigabytes_per_second", 1, 1.1)
		ratio(s, "cpu_seconds_per_gb", 0.7, 0.5)
		for _, g := range splicers {
			g.Scenario, g.Figure, g.Subject, g.Must, g.Aim = s, "cpu_seconds_per_gb", subject, 0.5, Unmeasured()
			all = append(all, g)
		}
		ratio(s, "machine_cpu_seconds_per_gb", 1, 0.9)
	}
	ratio("echo-64-1", "latency_p50_seconds", 1, 0.9)
	all = append(all, Goal{Scenario: "echo-64-1", Figure: "latency_p50_seconds", Subject: subjectBusy, Must: 0.75, Aim: 0.65})
	for _, s := range []string{"echo-64-64", "echo-4096-64"} {
		ratio(s, "requests_per_second", 1, 1.15)
		ratio(s, "cpu_seconds_per_request", 0.95, 0.8)
		ratio(s, "latency_p99_seconds", 1.1, 0.9)
	}
	ratio("connections", "connections_per_second", 1, 1.15)
	ratio("connections", "cpu_seconds_per_connection", 1, 0.85)
	return append(all,
		Goal{Scenario: "idle", Figure: "rss_anon_bytes_per_session", Subject: subject, Absolute: true, Must: 400, Aim: 300},
		Goal{Scenario: "idle", Figure: "slab_bytes_per_session", Subject: subject, Peers: []string{"haproxy-"}, Among: "HAProxy's", Must: 1.05, Aim: Unmeasured()})
}
