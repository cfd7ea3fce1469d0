// Package rolling measures which clients are lost while endpoints restart, die or fall silent, behind Penstock and
// behind HAProxy and nginx. It is for Linux only.
//
// # Overview
//
// A [Scenario] defines the failures of endpoints and their times. In each round, every contestant has its own
// endpoints, and all contestants work at the same time. A failure affects one endpoint of every contestant within
// the same millisecond, because the endpoints with the same number are in one process. Other events of the
// machine, such as a compiler that takes the processors or a late timer, affect all contestants alike. If the
// contestants ran one after the other, each would have a different machine, and the measurement would take several
// times as long. A disadvantage is that they share the processors, so the load is small.
//
// An endpoint that is away has no listening socket, and resets its connections, as if its process had been killed.
// A frozen endpoint is in a process that was stopped by SIGSTOP, and the kernel accepts connections for it. The
// port stays bound all the time, so no other process can listen there.
//
// # Clients
//
// One process is the load. The load is open: each contestant gets clients at a steady rate, however long other
// clients take. Clients come from 17 addresses in turn, because one client alone does not prove that an endpoint
// has failed. A client connects, sends a request, and reads the whole answer. If it does not get all of that, it
// is lost: it was refused, reset or not answered, or it gave up at its timeout. Its wait is the time from the
// moment at which it should begin to the first byte of the answer.
//
// If a client was under way when an endpoint failed, it may have been connected to that endpoint already. Then no
// proxy could have saved it. Such lost clients are counted separately, as under way.
package rolling

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
)

// Setup is the setup of a measurement.
type Setup struct {
	rounds.Setup
	// Setting says how contestants are started. Its Group and its endpoints are ignored. The caller removes its
	// directory.
	Setting contestant.Setting
	// Kinds are the contestants. A contestant that is not available is left out. If it was Named, that is an
	// error.
	Kinds []*contestant.Kind
	Named bool

	Scenarios []Scenario
	Away      time.Duration // the time with which the Scenarios were made
	Rate      float64       // clients a second for each contestant
	Timeout   time.Duration // timeout of a client
	Bytes     int           // size of an answer's body
}

// patience limits everything except the load itself.
const patience = 30 * time.Second

// Measure runs every scenario Setup.Rounds times with all contestants at once. If it fails, or ctx ends, it
// returns the results so far together with the error. When it returns, everything that it has started has ended.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	r := &Report{
		ClientsPerS: s.Rate, AwaySeconds: report.Number(s.Away.Seconds()), TimeoutSeconds: report.Number(s.Timeout.Seconds()), Rounds: s.Rounds,
	}
	s.Setting.Group = s.Group
	kinds, err := s.available(ctx, r)
	if err != nil {
		return r, err
	}
	s.Kinds = kinds
	for i := range s.Scenarios {
		r.Scenarios = append(r.Scenarios, s.result(&s.Scenarios[i]))
	}
	defer r.judge()
	for round := range s.Rounds {
		for i := range s.Scenarios {
			s.Notify(rounds.Progress{Round: round + 1, Case: s.Scenarios[i].Name})
			all, err := s.trial(ctx, &s.Scenarios[i])
			if err != nil {
				return r, rounds.Blame(ctx, fmt.Errorf("%s: %w", s.Scenarios[i].Name, err))
			}
			for j := range all {
				r.Scenarios[i].Cells[j].add(&all[j])
			}
		}
	}
	return r, nil
}

// available returns the contestants that can be started, and notes the others.
func (s *Setup) available(ctx context.Context, r *Report) (kinds []*contestant.Kind, err error) {
	shown := s.Setting
	for i := range 2 {
		shown.Endpoints = append(shown.Endpoints, fmt.Sprintf("127.0.0.1:%d", 8001+i))
	}
	for _, k := range s.Kinds {
		if err := k.Available(ctx, &s.Setting); err != nil {
			if s.Named {
				return nil, err
			}
			r.Missing = append(r.Missing, k.Name+": "+err.Error())
			continue
		}
		kinds = append(kinds, k)
		r.Contestants = append(r.Contestants, Contestant{k.Name, k.About, k.Version(ctx, &s.Setting), k.Config(ctx, &shown)})
	}
	return kinds, nil
}

// result returns a result without rounds.
func (s *Setup) result(of *Scenario) Result {
	r := Result{Scenario: of.Name, About: of.About, Endpoints: of.Endpoints, Seconds: report.Number(of.Length.Seconds())}
	for _, k := range s.Kinds {
		r.Cells = append(r.Cells, Cell{Contestant: k.Name})
	}
	return r
}

// trial is one scenario in progress.
type trial struct {
	*Setup
	scenario    *Scenario
	endpoints   []*endpoint.Servers // each has the endpoints with one number, one for each contestant
	contestants []*contestant.Contestant
	load        *endpoint.Clients
}

// trial makes one trial, and returns the figures of each contestant's clients.
func (s *Setup) trial(ctx context.Context, of *Scenario) ([]Figures, error) {
	t := &trial{Setup: s, scenario: of}
	defer t.end()
	most := of.Length + s.Timeout + patience
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the measurement did not end within %v", most))
	defer cancel()
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	failures, err := t.happen(ctx, t.load.Began)
	if err != nil {
		return nil, err
	}
	clients, err := t.load.Outcomes(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Figures, len(clients))
	for i := range clients {
		all[i] = *sum(clients[i], failures)
	}
	return all, t.alive()
}

// start starts endpoints, contestants and the load.
func (t *trial) start(ctx context.Context) (err error) {
	g := t.Group
	for range t.scenario.Endpoints {
		e, err := endpoint.Start(ctx, g, t.part(endpoint.Part), endpoint.Plan{Endpoints: len(t.Kinds), Bytes: t.Bytes})
		if err != nil {
			return err
		}
		t.endpoints = append(t.endpoints, e)
	}
	p := &endpoint.Load{
		Rate: t.Rate, Timeout: t.Timeout, Length: t.scenario.Length, Answer: endpoint.AnswerBytes(t.Bytes), Sources: sources,
		File: filepath.Join(t.Setting.Dir, "outcomes"),
	}
	for i, k := range t.Kinds {
		s := t.Setting
		s.Endpoints = nil
		for _, e := range t.endpoints {
			s.Endpoints = append(s.Endpoints, e.Addresses[i])
		}
		c, err := k.Start(ctx, &s)
		if err != nil {
			return err
		}
		t.contestants = append(t.contestants, c)
		p.Addresses = append(p.Addresses, c.Address)
	}
	t.load, err = endpoint.StartLoad(ctx, g, t.part(endpoint.PartLoad), p)
	return err
}

func (t *trial) part(name string) process.Spec {
	p := &t.Setting.Program
	return p.Spec(name, p.Part, name)
}

// happen puts the endpoints of each contestant into the states of the scenario, each at its time, and returns the
// times of the failures.
func (t *trial) happen(ctx context.Context, began time.Time) (failed []moment, err error) {
	all := make([]int, len(t.Kinds))
	for i := range all {
		all[i] = i
	}
	for _, s := range t.scenario.steps {
		from := max(time.Since(began), s.at)
		to, err := t.endpoints[s.endpoint].Turn(ctx, began.Add(s.at), endpoint.Turn{Failure: s.state, Endpoints: all})
		if err != nil {
			return nil, err
		}
		if s.state != endpoint.Healthy {
			failed = append(failed, moment{from, to.Sub(began)})
		}
	}
	return failed, nil
}

// alive returns nil if all contestants still run.
func (t *trial) alive() error {
	for _, c := range t.contestants {
		select {
		case <-c.Done():
			return c.Err()
		default:
		}
	}
	return nil
}

func (t *trial) end() {
	if t.load != nil {
		t.load.Kill()
	}
	for _, c := range t.contestants {
		c.Kill()
	}
	for _, e := range t.endpoints {
		e.Kill()
	}
}

// sources is the number of addresses from which clients connect in turn. It is coprime to two and three endpoints,
// so that each address comes to each endpoint.
const sources = 17

// moment is an event between two times, which are relative to the beginning of the load.
type moment struct{ from, to time.Duration }

func sum(clients []endpoint.Outcome, failures []moment) *Figures {
	f := &Figures{Clients: int64(len(clients)), Reasons: make(map[string]int64)}
	var waits report.Sample
	for _, c := range clients {
		switch {
		case c.Lost == "":
			waits = append(waits, c.First.Seconds())
		case slices.ContainsFunc(failures, func(m moment) bool { return c.Began <= m.to && c.Ended >= m.from }):
			f.UnderWay++
		default:
			f.Lost++
			f.Reasons[c.Lost]++
		}
	}
	f.P50, f.P99, f.Longest = report.Number(waits.At(0.5)), report.Number(waits.At(0.99)), report.Number(waits.At(1))
	return f
}
