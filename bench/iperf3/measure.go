package iperf3

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/syscalls"
)

// Setup is the setup of a comparison.
type Setup struct {
	rounds.Setup
	Program contestant.Program
	Dir     string // for configurations, which the caller removes
	Path    string // of iperf3
	// Kinds are the contestants; the others are divided by the first.
	Kinds []*contestant.Kind
	Flow  time.Duration // duration of each flow, whole seconds
	// Counter counts system calls, in flows of their own of a second; nil for none.
	Counter syscalls.EventCounter
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
	for round, i := range b.Turns(len(b.Kinds)) {
		f, err := b.flow(ctx, b.Kinds[i], b.Flow, nil)
		if err != nil {
			return err
		}
		r.Rows[i].Flows = append(r.Rows[i].Flows, f)
		b.Notify(rounds.Progress{Round: round, Contestant: b.Kinds[i].Name, Result: report.BitRate(f.BitsPerSecond)})
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
	b.Notify(rounds.Progress{Doing: "system calls", Contestant: k.Name, Result: report.BitRate(f.BitsPerSecond)})
	return nil
}
