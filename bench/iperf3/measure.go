package iperf3

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/syscalls"
)

// Setup is the setup of a comparison.
type Setup struct {
	Group   *process.Group // starts the children; the caller owns it
	Program contestant.Program
	Dir     string // for configurations, which the caller removes
	Path    string // of iperf3
	// Kinds are the contestants; the others are divided by the first.
	Kinds  []*contestant.Kind
	Rounds int           // at least 1
	Flow   time.Duration // how long each flow lasts, whole seconds
	// Counter counts system calls, in flows of their own of a second; nil for none.
	Counter syscalls.EventCounter
	Watch   func(Progress)
}

// Progress is a flow that is over.
type Progress struct {
	Round, Rounds int // from 1; Round is 0 when system calls are counted
	Contestant    string
	Figures       Figures
}

// Find returns the path of iperf3. The error names the package to install.
func Find() (string, error) {
	path, err := exec.LookPath("iperf3")
	if err != nil {
		return "", fmt.Errorf("iperf3 is not installed: apt-get install iperf3")
	}
	return path, nil
}

// Measure has one flow after the other; the first contestant alternates. If it fails, or ctx
// ends, it returns the results until then with the error. Everything that it starts has
// ended when it returns.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	r := &Report{Rounds: s.Rounds, FlowSeconds: report.Number(s.Flow.Seconds())}
	if s.Counter != nil {
		r.SystemCallCounter = s.Counter.Tool()
	}
	for _, k := range s.Kinds {
		r.Rows = append(r.Rows, Row{Contestant: k.Name, About: k.About, CallsPerMB: report.Unmeasured()})
	}
	b := &comparison{s}
	err := b.rounds(ctx, r)
	for i := range r.Rows {
		r.Rows[i].sum(&r.Rows[0])
	}
	for i := 0; i < len(r.Rows) && err == nil; i++ {
		err = b.calls(ctx, &r.Rows[i], s.Kinds[i])
	}
	return r, err
}

// comparison is one under way.
type comparison struct{ Setup }

// rounds are all flows that are timed.
func (b *comparison) rounds(ctx context.Context, r *Report) error {
	for round := range b.Rounds {
		for i := range b.Kinds {
			at := i
			if round%2 == 1 {
				at = len(b.Kinds) - 1 - i
			}
			f, err := b.flow(ctx, b.Kinds[at], b.Flow, nil)
			if err != nil {
				return err
			}
			r.Rows[at].Flows = append(r.Rows[at].Flows, f)
			b.Watch(Progress{Round: round + 1, Rounds: b.Rounds, Contestant: b.Kinds[at].Name, Figures: f})
		}
	}
	return nil
}

// calls counts the system calls of a proxy, if it is one. A failure of the tool is reported in
// the row; it costs nothing else.
func (b *comparison) calls(ctx context.Context, row *Row, k *contestant.Kind) error {
	if b.Counter == nil || row.Median == nil || !row.Median.CPUPerGB.Known() {
		return nil
	}
	var calls int64
	f, err := b.flow(ctx, k, time.Second, func(pids []int, during func() error) (err error) {
		calls, err = b.Counter.Count(ctx, pids, during)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		row.CallsFailed = err.Error()
	default:
		row.CallsPerMB = report.Number(float64(calls) / float64(f.Bytes) * 1e6)
	}
	b.Watch(Progress{Contestant: k.Name, Figures: f})
	return nil
}
