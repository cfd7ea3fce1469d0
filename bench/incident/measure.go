package incident

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/rounds"
)

// Setup is the setup of a measurement.
type Setup struct {
	rounds.Setup // of one round
	Part         func(part string) process.Spec
	Run          func(args ...string) process.Spec // `penstock run`
	Dir          string                            // for the files; the caller removes it

	Failures []endpoint.Failure
	Modes    []Mode

	Endpoints, Failing int
	Rate               float64       // requests in a second
	Service            time.Duration // how long an answer takes
	Delay              time.Duration // of the slow ones: the mean
	Timeout            time.Duration // of a request
	FirstByte          time.Duration // where there is one
	Within             time.Duration // answer_within, likewise
	Bytes              int           // of an answer's body

	Before, During, After time.Duration
}

// patience bounds everything but the load itself.
const patience = 30 * time.Second

// margin is how long before the incident a request that began may be under way still;
// it belongs to the incident. It is far more than a request takes when nothing is wrong.
const margin = 100 * time.Millisecond

// Measure measures every failure of a third, or of Setup.Failing, of the endpoints behind
// every configuration. If it fails, or ctx ends, it returns the results so far with the
// error. Everything that it starts has ended when it returns.
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
				return r, blame(ctx, fmt.Errorf("%s, %s: %w", f, s.Modes[i].Name, err))
			}
			in.Modes = append(in.Modes, *m)
		}
	}
	r.judge()
	return r, nil
}

// blame says why it ends: by request, or because of the error.
func blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// trial is about how long a trial takes.
func (s *Setup) trial() time.Duration { return s.Before + s.During + s.After }

// trial is an incident under way.
type trial struct {
	*Setup
	endpoints *endpoint.Servers
	load      *endpoint.Clients
	front     *front
}

// measure makes one trial.
func (s *Setup) measure(ctx context.Context, f endpoint.Failure, m *Mode) (*Trial, error) {
	t := &trial{Setup: s}
	defer t.end()
	ctx, cancel := context.WithTimeoutCause(ctx, s.trial()+s.Timeout+patience, fmt.Errorf("it is not over after %v", s.trial()+s.Timeout+patience))
	defer cancel()
	err := t.listen(ctx)
	if err != nil {
		return nil, err
	}
	text := m.File("127.0.0.1:0", t.endpoints.Addresses, s.FirstByte, s.Within)
	if t.front, err = startFront(ctx, s.Group, s.Run, s.Dir, text); err != nil {
		return nil, err
	}
	t.load, err = endpoint.StartLoad(ctx, t.Group, t.Part(endpoint.PartLoad), &endpoint.Load{
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

// listen starts the endpoints.
func (t *trial) listen(ctx context.Context) (err error) {
	t.endpoints, err = endpoint.Start(ctx, t.Group, t.Part(endpoint.Part), endpoint.Plan{Endpoints: t.Endpoints, Service: t.Service, Bytes: t.Bytes})
	return err
}

// happen makes the endpoints fail, and recover, each at its time.
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

// end ends whatever there is.
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
