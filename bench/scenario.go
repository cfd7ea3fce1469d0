package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/load"
)

// Scenario is a workload that contestants are measured under.
type Scenario struct {
	Name     string
	Title    string // in words
	Workload load.Workload
	// Connections is the number of connections at a time. Size is the size of an Echo's message in bytes.
	Connections, Size int
	// Warmup is the beginning of each trial of a Bulk or an Echo, which does not count. If it is 0, all of the
	// trial counts.
	Warmup time.Duration
}

// connectionsAtOnce is how many connections of the scenario "connections" are open at a time.
const connectionsAtOnce = 16

// Scenarios returns all scenarios in the order of a report. The number of sessions of "idle" is in Run.Idle.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "bulk-1", Title: "1 connection that streams", Workload: load.Bulk, Connections: 1},
		{Name: "bulk-8", Title: "8 connections that stream", Workload: load.Bulk, Connections: 8},
		{Name: "bulk-64", Title: "64 connections that stream", Workload: load.Bulk, Connections: 64},
		{Name: "echo-64-1", Title: "64 bytes there and back, 1 connection", Workload: load.Echo, Connections: 1, Size: 64},
		{Name: "echo-64-64", Title: "64 bytes there and back, 64 connections", Workload: load.Echo, Connections: 64, Size: 64},
		{Name: "echo-4096-1", Title: "4 KiB there and back, 1 connection", Workload: load.Echo, Connections: 1, Size: 4096},
		{Name: "echo-4096-64", Title: "4 KiB there and back, 64 connections", Workload: load.Echo, Connections: 64, Size: 4096},
		{Name: "connections", Title: fmt.Sprintf("open, 64 bytes there and back, close; %d at once", connectionsAtOnce), Workload: load.Connect, Connections: connectionsAtOnce},
		{Name: "idle", Title: "sessions that have carried 64 KiB both ways and rest", Workload: load.Idle},
	}
}

// ChooseScenarios returns the scenarios with one of the names, in the order of a report. A name also selects all
// scenarios that begin with it and a dash: "echo-64" selects two.
func ChooseScenarios(names []string) ([]Scenario, error) { return ChooseAmong(Scenarios(), names) }

// ChooseAmong is ChooseScenarios for the scenarios of a list.
func ChooseAmong(all []Scenario, names []string) ([]Scenario, error) {
	chosen := make([]bool, len(all))
	for _, name := range names {
		found := false
		for i, s := range all {
			if s.Name == name || strings.HasPrefix(s.Name, name+"-") {
				chosen[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no scenario %q: write %s, or the beginning of names, for all scenarios that begin so (bulk, echo-64)",
				name, strings.Join(scenarioNames(all), ", "))
		}
	}
	var list []Scenario
	for i, s := range all {
		if chosen[i] {
			list = append(list, s)
		}
	}
	return list, nil
}

func scenarioNames(list []Scenario) []string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// countingTrial is the longest trial in which system calls are counted.
const countingTrial = 500 * time.Millisecond

// restRounds is the largest number of rounds of idle. A round costs more than ten seconds for each contestant, and
// memory does not drift.
const restRounds = 3

func (r *Run) rounds(s *Scenario) int {
	if s.Workload == load.Idle {
		return min(r.Rounds, restRounds)
	}
	return r.Rounds
}

// duration returns how long the load runs in a trial of the scenario, or 0 if the load decides.
func (r *Run) duration(s *Scenario) time.Duration {
	if s.Workload == load.Idle {
		return 0
	}
	return r.Trial
}
