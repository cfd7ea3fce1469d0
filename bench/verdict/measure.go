package verdict

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
)

// An Experiment is many faults, drawn at random.
type Experiment struct {
	Setup
	Seed   uint64
	Faults int // of all causes in turn
	// DetectEvery is of how many faults one is made in a session that had none before, too; 0: none.
	DetectEvery int
	LaneEvery   int // of how many faults of a cause one is in the lane, if that can be; 0: none
	Causes      []Cause
	Watch       func(done int, t *Trial) // after each trial; may be nil
}

// Measure makes the faults, one after the other. It takes root.
func (e *Experiment) Measure(ctx context.Context) (trials []Trial, err error) {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, os.Getpid(), nice); err != nil {
		return nil, fmt.Errorf("raise the priority of this process, so that other work is no fault: %w", err)
	}
	restore, err := prefer()
	if err != nil {
		return nil, err
	}
	defer restore()
	r := rand.New(rand.NewPCG(e.Seed, 0))
	for i := range e.Faults {
		f := Draw(r, e.Causes[i%len(e.Causes)])
		round := i / len(e.Causes)
		f.Lane = e.LaneEvery > 0 && f.Cause.InLane() && (round+i)%e.LaneEvery == 0
		s := e.Setup
		s.Detect = e.DetectEvery > 0 && round%e.DetectEvery == 0
		t, err := s.run(ctx, f)
		if err != nil {
			return trials, fmt.Errorf("fault %d, %v: %w", i, &f, err)
		}
		trials = append(trials, t)
		if e.Watch != nil {
			e.Watch(len(trials), &t)
		}
	}
	return trials, nil
}

// prefer raises the priority of this session's processes among other sessions', where these share the CPUs evenly
// (sched(7), autogroup), and returns how to undo that.
func prefer() (restore func(), err error) {
	const file = "/proc/self/autogroup"
	if _, err := os.Stat(file); err != nil { // this kernel has none
		return func() {}, nil
	}
	if err := os.WriteFile(file, []byte("-15"), 0o644); err != nil {
		return nil, fmt.Errorf("raise the priority of this session: %w", err)
	}
	return func() { _ = os.WriteFile(file, []byte("0"), 0o644) }, nil
}
