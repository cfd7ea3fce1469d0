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
	rounds.Setup // the setup of one round
	Part         func(part string) process.Spec
	Run          func(args ...string) process.Spec // `penstock run`
	Dir          string                            // directory for the files; the caller removes it

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
				return r, blame(ctx, fmt.Errorf("%s, %s: %w", f, s.Modes[i].Name, err))
			}
			in.Modes = append(in.Modes, *m)
		}
	}
	r.judge()
	return r, nil
}

// blame returns why the measurement ends: the request to end it, or the error.
func blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
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

// measure makes one trial.
func (s *Setup) measure(ctx context.Context, f endpoint.Failure, m *Mode) (*Trial, error) {
	t := &trial{Setup: s}
	defer t.end()
	ctx, cancel := context.WithTimeoutCause(ctx, s.trial()+s.Timeout+patience, fmt.Errorf("the measurement did not end within %v", s.trial()+s.Timeout+patience))
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

// end ends everything that was started.
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
