package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// besideItself is report.Trial.Beside for the trials of the baseline that are paired with another trial of the
// baseline.
const besideItself = string(report.Again)

// pairs measures each entrant and the baseline one directly after the other in each round. The baseline is paired
// with itself, too. The order in a pair alternates from round to round.
func (f *field) pairs(ctx context.Context) error {
	again := f.enter(f.base.kind, report.Again)
	for f.step.Round = 1; f.step.Round <= f.out.Rounds; f.step.Round++ {
		for _, e := range f.entrants[1:] {
			if err := f.pair(ctx, e); err != nil {
				return err
			}
		}
		f.out.Summarize()
	}
	f.step.Round = f.out.Rounds
	again.c = nil // it was the baseline's contestant, which ends with the baseline
	return f.count(ctx)
}

func (f *field) pair(ctx context.Context, e *entrant) error {
	beside := e.kind.Name
	if e.cell.Role == report.Again {
		beside = besideItself
	}
	type turn struct {
		e    *entrant
		role report.Role
	}
	turns := []turn{{f.base, report.Baseline}, {e, e.cell.Role}}
	if f.step.Round%2 == 0 {
		turns[0], turns[1] = turns[1], turns[0]
	}
	for _, t := range turns {
		who := t.e
		if t.role == report.Again {
			who = f.base // the same process
		}
		if e.lost() {
			return nil
		}
		if _, err := f.timed(ctx, who, t.role, beside); err != nil {
			return err
		}
	}
	return nil
}

// timed makes one trial of an entrant. It returns nil if the entrant is out.
func (f *field) timed(ctx context.Context, e *entrant, role report.Role, beside string) (*Trial, error) {
	ok, err := f.start(ctx, e)
	if !ok || err != nil {
		return nil, err
	}
	f.step.Contestant, f.step.Doing = e.kind.Name, ""
	f.watch(f.step)
	start := time.Now()
	var t Trial
	for range slowAttempts {
		t, err = f.rig.trial(ctx, e.c, f.plan(f.duration(f.scenario)), func(load.Event) error { return nil })
		if !errors.Is(err, errTooSlow) {
			break
		}
	}
	if err != nil {
		return nil, f.lose(ctx, e, err)
	}
	f.add(f.took(&t, role, beside, start))
	// The BPF programs of a lane see the packets of other contestants, too. So beside a contestant with a lane,
	// each trial has a new process.
	if e.kind.Name == contestant.LaneName || f.base.kind.Name == contestant.LaneName {
		f.end(e)
	}
	return &t, nil
}

// add puts a trial into the report, and shows it.
func (f *field) add(t *report.Trial) {
	f.out.Trials = append(f.out.Trials, t)
	f.step.Trial = t
	f.watch(f.step)
	f.step.Trial = nil
}

func (f *field) plan(d time.Duration) load.Plan {
	s := f.scenario
	return load.Plan{
		Workload: s.Workload, Connections: s.Connections, Size: s.Size,
		Duration: s.Warmup + d, Warmup: s.Warmup,
	}
}

// judgeSplicing makes the measurement of a contestant void if the contestant should splice and did not, by its own
// count. Every workload shows that: if HAProxy splices, it splices even 64 bytes, and half of the 64 KiB of an
// idle session. For bulk, the spliced share is noted.
func (f *field) judgeSplicing() {
	for _, e := range f.entrants {
		if !strings.HasPrefix(e.kind.Name, "haproxy-splice-") || e.lost() {
			continue
		}
		switch spliced, all, trials := spliced(f.out, e.kind.Name); {
		case trials == 0:
		case spliced == 0:
			e.cell.Void = "its own statistics report no spliced bytes"
		case f.scenario.Workload == load.Bulk && e.cell.Role != report.Again:
			e.cell.Notes = append(e.cell.Notes, fmt.Sprintf("spliced %.1f %% of its bytes, by its own statistics", 100*spliced/all))
		}
	}
}

// spliced returns how many bytes were spliced in a contestant's trials, how many there were in all, both as
// the contestant counts them, and the number of trials. A trial without that figure adds no spliced bytes.
func spliced(s *report.Scenario, contestant string) (spliced, all float64, trials int) {
	for _, t := range s.Trials {
		if t.Contestant != contestant {
			continue
		}
		trials++
		all += float64(t.SentBytes + t.ReceivedBytes)
		if t.SplicedBytes > 0 {
			spliced += float64(t.SplicedBytes)
		}
	}
	return spliced, all, trials
}

// count makes an untimed trial of each entrant, in which its system calls are counted.
func (f *field) count(ctx context.Context) error {
	if !f.Calls {
		return nil
	}
	for _, e := range f.entrants {
		if e.cell.Role == report.Again {
			continue
		}
		if f.callsCounted && e.c != nil && e.kind.Name != directName {
			if err := f.counted(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// counted makes the untimed trial of one entrant. If the tool fails, only the figure is lost. If Penstock fails,
// the run fails.
func (f *field) counted(ctx context.Context, e *entrant) error {
	f.step.Contestant, f.step.Doing = e.kind.Name, "counting system calls"
	f.watch(f.step)
	pids, err := e.c.Pids()
	if err != nil {
		return f.lose(ctx, e, err)
	}
	var t Trial
	var failed error
	start := time.Now()
	calls, err := process.CountCalls(ctx, pids, func() error {
		t, failed = f.rig.trial(ctx, e.c, f.plan(min(f.duration(f.scenario), countingTrial)), func(load.Event) error { return nil })
		return failed
	})
	switch {
	case failed != nil && broken(ctx, failed):
		return failed
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		e.cell.Notes = append(e.cell.Notes, fmt.Sprintf("system calls not counted: %v", err))
		if failed != nil && report.IsPenstock(e.kind.Name) { // even if the tool was slow
			f.doc.Failures = append(f.doc.Failures, fmt.Sprintf("%s, %s, while system calls were counted: %v", f.scenario.Name, e.kind.Name, failed))
		}
		return nil
	}
	out := f.took(&t, report.Counting, "", start)
	out.SystemCalls = report.Number(calls)
	f.out.Trials = append(f.out.Trials, out)
	return nil
}
