package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy"
)

const (
	// What the demo drives: few connections that stream, and more that ask
	// and wait, with messages of the smallest size that is still of use.
	bulkConnections = 4
	echoConnections = 16
	echoSize        = 64
	// bulkShare is bulk's part of the time.
	bulkShare = 0.6
	// stopTimeout is how long the idle proxy may take to end after SIGTERM.
	stopTimeout = 10 * time.Second
	// lastWord is how long a summary may take at the end of --stay.
	lastWord = time.Second

	penstockName = "penstock"
	rivalName    = "io.Copy"
)

// errInterrupted is the end of a demo by a signal before its report.
var errInterrupted = errors.New("interrupted")

// demo is a demo under way.
type demo struct {
	*demoCmd
	e         *env
	rig       *bench.Rig
	penstock  *contestant.Contestant
	rival     *contestant.Contestant
	summaries chan struct{} // a signal asks for a summary
}

// Run measures, reports, and stays if it was told to.
func (c *demoCmd) Run(e *env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	d := &demo{demoCmd: c, e: e, summaries: make(chan struct{}, 1)}
	go d.watch(ctx, interrupt)
	if err := d.run(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// watch turns signals into the end of ctx or a request for a summary.
func (d *demo) watch(ctx context.Context, interrupt context.CancelCauseFunc) {
	for {
		select {
		case <-d.e.stops:
			interrupt(errInterrupted)
			return
		case <-d.e.asks:
			select {
			case d.summaries <- struct{}{}:
			default: // one is under way
			}
		case <-ctx.Done():
			return
		}
	}
}

func (d *demo) run(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	defer d.rig.Close()
	progress := newProgress(d.e)
	trials, err := d.rig.Measure(ctx, d.series(), progress.show)
	progress.end()
	if err != nil {
		return err
	}
	newReport(d.e, trials, d.rig.Account(d.penstock).Summary).print()
	if d.Stay {
		return d.stay(ctx)
	}
	printNext(d.e)
	return d.stop(ctx)
}

// stop ends the proxy the way that an operator does, and the demo fails if it
// does not end well. A signal cuts it short.
func (d *demo) stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, d.rig.Close)()
	err := d.penstock.Stop(stopTimeout)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// open starts the children. On failure none is left.
func (d *demo) open(ctx context.Context) error {
	program, err := thisProgram()
	if err != nil {
		return err
	}
	if d.rig, err = bench.NewRig(ctx, process.NewGroup(), bench.PartOrigin, contestant.Setting{Program: program}); err != nil {
		return err
	}
	if d.penstock, err = d.start(ctx, penstockName, d.Listen); err == nil {
		d.rival, err = d.start(ctx, rivalName, "")
	}
	if err != nil {
		d.rig.Close()
	}
	return err
}

// start starts the contestant of that name.
func (d *demo) start(ctx context.Context, name, listen string) (*contestant.Contestant, error) {
	kind, err := contestant.Named(name)
	if err != nil {
		return nil, err
	}
	return d.rig.Start(ctx, kind, listen)
}

// series shares the seconds out among the trials.
func (d *demo) series() bench.Series {
	contestants := []*contestant.Contestant{d.penstock, d.rival}
	turns := float64(d.Rounds * len(contestants))
	each := func(share float64) time.Duration {
		return max(time.Duration(d.Seconds*share/turns*float64(time.Second)), time.Millisecond)
	}
	return bench.Series{
		Rounds:      d.Rounds,
		Contestants: contestants,
		Plans: []load.Plan{
			{Workload: load.Bulk, Connections: bulkConnections, Duration: each(bulkShare), Check: true},
			{Workload: load.Echo, Connections: echoConnections, Size: echoSize, Duration: each(1 - bulkShare), Check: true},
		},
	}
}

// stay serves on until a signal. It tells what went through since the report
// when SIGUSR1 asks for it, and at the end.
func (d *demo) stay(ctx context.Context) error {
	printStay(d.e, d.penstock)
	before := d.rig.Account(d.penstock).Summary
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
			defer cancel()
			if _, terminal := terminalWidth(d.e.stdout, d.e.getenv); terminal {
				newPage(d.e).line("") // it has written ^C
			}
			return d.tell(last, before)
		case <-d.penstock.Done():
			return d.penstock.Err()
		case <-d.summaries:
			if err := d.tell(ctx, before); err != nil {
				return err
			}
		}
	}
}

// tell writes what went through since before.
func (d *demo) tell(ctx context.Context, before *proxy.Summary) error {
	now, err := d.penstock.Account(ctx)
	if err != nil {
		return err
	}
	printMoved(d.e, bench.Since(before, now.Summary))
	return nil
}
