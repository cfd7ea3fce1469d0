// Package incident measures how clients fare in an incident. A load balancer passes requests on to a number of
// endpoints. At one moment a third of the endpoints turn silent, slow or refusing, while the load goes on. It is
// for Linux only.
//
// # Overview
//
// There are three processes: all endpoints, `penstock run` with a file, and the load. Each endpoint listens at a
// separate port, and answers HTTP requests. Several files are compared. In one of them nothing protects the
// clients, in the others something does.
//
// The load is open: requests begin at a fixed rate, evenly spaced, however slow the answers are. Each request has
// its own connection, and is given up after a timeout. Its time counts from the moment at which it should begin,
// until it is answered or has failed. So a client without an answer has waited for the timeout, and the mean
// includes the waits of all clients, not only of the clients with an answer.
//
// # The failures of an endpoint
//
//   - Silent: the endpoint accepts connections, but never sends anything, whatever the client does.
//     Requests in progress get no answer either.
//   - Slow: answers come late, with exponentially distributed delays.
//   - Refusing: the endpoint does not listen any more, and resets open connections, as if its process
//     had been killed.
//
// In the end all endpoints work again, and answer the clients that still wait.
package incident

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/rounds"
)

// Setup is the setup of a measurement.
type Setup struct {
	rounds.Setup // the setup of one round
	Program      contestant.Program
	Dir          string // directory for the files; the caller removes it

	Failures []endpoint.Failure
	Modes    []Mode

	Endpoints, Failing int
	Rate               float64       // requests in a second
	Service            time.Duration // how long an answer takes
	Delay              time.Duration // mean delay of a slow endpoint
	Timeout            time.Duration // timeout of a request
	FirstByte          time.Duration // the first_byte timeout, in modes that have it
	Within             time.Duration // answer_within, in modes that have it
	Bytes              int           // size of an answer's body

	Before, During, After time.Duration
}

// patience limits everything except the load itself.
const patience = 30 * time.Second

// margin is how long before the incident a request may begin and still be in progress at the incident. Such a
// request belongs to the incident. margin is far more than a request takes without an incident.
const margin = 100 * time.Millisecond

// Measure measures each failure with every configuration. Setup.Failing endpoints fail, by default a third. If it
// fails, or ctx ends, it returns the results so far together with the error. When it returns, everything that it
// has started has ended.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	r := newReport(&s)
	for _, f := range s.Failures {
		r.Incidents = append(r.Incidents, Incident{Failure: f})
		in := &r.Incidents[len(r.Incidents)-1]
		for i := range s.Modes {
			s.Notify(rounds.Progress{Doing: "incident", Case: string(f), Contestant: s.Modes[i].Name})
			m, err := s.measure(ctx, f, &s.Modes[i])
			if err != nil {
				r.judge()
				return r, rounds.Blame(ctx, fmt.Errorf("%s, %s: %w", f, s.Modes[i].Name, err))
			}
			in.Modes = append(in.Modes, *m)
		}
	}
	r.judge()
	return r, nil
}

// trial returns about how long a trial takes.
func (s *Setup) trial() time.Duration { return s.Before + s.During + s.After }

// trial is an incident in progress.
type trial struct {
	*Setup
	endpoints *endpoint.Servers
	load      *endpoint.Clients
	front     *front
}

func (s *Setup) measure(ctx context.Context, f endpoint.Failure, m *Mode) (*Trial, error) {
	t := &trial{Setup: s}
	defer t.end()
	ctx, cancel := context.WithTimeoutCause(ctx, s.trial()+s.Timeout+patience, fmt.Errorf("the measurement did not end within %v", s.trial()+s.Timeout+patience))
	defer cancel()
	var err error
	t.endpoints, err = endpoint.Start(ctx, s.Group, s.Program.Spec(endpoint.Part, s.Program.Part, endpoint.Part), endpoint.Plan{Endpoints: s.Endpoints, Service: s.Service, Bytes: s.Bytes})
	if err != nil {
		return nil, err
	}
	text := m.File("127.0.0.1:0", t.endpoints.Addresses, s.FirstByte, s.Within)
	if t.front, err = s.startFront(ctx, text); err != nil {
		return nil, err
	}
	t.load, err = endpoint.StartLoad(ctx, t.Group, t.Program.Spec(endpoint.PartLoad, t.Program.Part, endpoint.PartLoad), &endpoint.Load{
		Addresses: []string{t.front.address}, Rate: t.Rate, Timeout: t.Timeout, Length: t.trial(), Answer: endpoint.AnswerBytes(t.Bytes),
		File: filepath.Join(t.Dir, "outcomes"),
	})
	if err != nil {
		return nil, err
	}
	began := t.load.Began
	incident, recovered, err := t.happen(ctx, f, began)
	if err != nil {
		return nil, err
	}
	all, err := t.load.Outcomes(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-t.front.child.Done():
		return nil, t.front.child.Err()
	default:
	}
	phases, perSecond := s.count(all[0])
	r := &Trial{
		Mode: m.Name, About: m.About, File: text, Before: phases[0], During: phases[1], After: phases[2], Seconds: perSecond,
		Began: incident.Sub(began).Seconds(), Ended: recovered.Sub(began).Seconds(), Events: t.front.told(incident),
	}
	r.sum(s)
	return r, nil
}

// happen makes the endpoints fail and recover, each at its time.
func (t *trial) happen(ctx context.Context, f endpoint.Failure, began time.Time) (incident, recovered time.Time, err error) {
	what := endpoint.Turn{Failure: f, Delay: t.Delay}
	for i := range t.Failing {
		what.Endpoints = append(what.Endpoints, i*t.Endpoints/t.Failing)
	}
	if incident, err = t.endpoints.Turn(ctx, began.Add(t.Before), what); err != nil {
		return incident, recovered, err
	}
	what.Failure = endpoint.Healthy
	recovered, err = t.endpoints.Turn(ctx, began.Add(t.Before+t.During), what)
	return incident, recovered, err
}

func (t *trial) end() {
	if t.load != nil {
		t.load.Kill()
	}
	if t.endpoints != nil {
		t.endpoints.Kill()
	}
	if t.front != nil {
		t.front.end()
	}
}
