package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// Sessions is the measurement of `penstock-bench idle`: the cost of an idle session, and the
// cost of talking over a few of very many.
type Sessions struct {
	Program contestant.Program
	// Contestants take turns; ratios are to the first. Those that can be asked
	// for their pauses are.
	Contestants []*contestant.Kind
	Sessions    int
	Rounds      int
	Quiet       time.Duration // how long the sessions rest before they are looked at
	Talk        load.Talk
	// Watch is called when a trial begins, and with its figures when it is over.
	Watch func(SessionsStep)
}

// SessionsStep is where the measuring stands.
type SessionsStep struct {
	Round, Rounds int // from 1
	Contestant    string
	Figures       *SessionFigures // nil when it begins
}

// Do measures, in its own network namespace if possible, and writes each result into out as
// soon as it has it. An error is the end of the run.
func (s *Sessions) Do(ctx context.Context, out *SessionsReport) error {
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer os.RemoveAll(dir)
	group, missing := process.NewGroupWherePossible()
	out.NetworkNamespace, out.NamespaceMissing = missing == "", missing
	rig, err := NewRig(ctx, group, PartSink, contestant.Setting{Program: s.Program, Dir: dir})
	if err != nil {
		return err
	}
	defer rig.Close()
	s.describe(out)
	if err := out.limit(s.Sessions, s.Talk.Connections); err != nil {
		return err
	}
	defer out.sum()
	return s.rounds(ctx, rig, out)
}

// describe fills in the facts that are known before the measurement.
func (s *Sessions) describe(out *SessionsReport) {
	out.Asked, out.Rounds, out.KernelSlab = s.Sessions, s.Rounds, slabCounted()
	out.QuietSeconds, out.TalkSeconds = report.Number(s.Quiet.Seconds()), report.Number(s.Talk.Duration.Seconds())
	out.MessageBytes = s.Talk.Size
	for _, k := range s.Contestants {
		out.Rows = append(out.Rows, SessionsRow{Contestant: k.Name, About: k.About})
	}
}

// rounds are all trials; the order of the contestants is reversed from round to
// round.
func (s *Sessions) rounds(ctx context.Context, rig *Rig, out *SessionsReport) error {
	for round := range s.Rounds {
		for i := range s.Contestants {
			if round%2 == 1 {
				i = len(s.Contestants) - 1 - i
			}
			step := SessionsStep{Round: round + 1, Rounds: s.Rounds, Contestant: s.Contestants[i].Name}
			s.Watch(step)
			f, err := s.trial(ctx, rig, s.Contestants[i], out)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				return fmt.Errorf("%s: %w", s.Contestants[i].Name, err)
			}
			out.Rows[i].Trials = append(out.Rows[i].Trials, *f)
			step.Figures = f
			s.Watch(step)
		}
	}
	return nil
}

// trial is one contestant's turn, in a process of its own.
func (s *Sessions) trial(ctx context.Context, rig *Rig, k *contestant.Kind, out *SessionsReport) (*SessionFigures, error) {
	c, err := rig.Start(ctx, k, "")
	if err != nil {
		return nil, err
	}
	defer rig.Stop(c)
	t := &sitting{rest: &rest{rig: rig, c: c, sessions: out.Sessions, quiet: s.Quiet}, talk: s.Talk}
	t.talk.Connections = out.Talking
	t.rest.meanwhile = t.converse
	if _, err := t.rest.run(ctx, load.Plan{Workload: load.Idle, Connections: out.Sessions}); err != nil {
		return nil, err
	}
	return t.figures(), nil
}
