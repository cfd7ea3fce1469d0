package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// echoScenarios are the scenarios for echo servers.
var echoScenarios = []string{"echo-64-1", "echo-64-64", "echo-4096-64"}

// Run measures and reports.
func (c *echoServersCmd) Run(e *cli.Env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.Stops, interrupt)
	run, doc, err := c.plan(ctx)
	if err != nil {
		return err
	}
	doc.Command = commandLine(e.Args)
	results := &benchRunCmd{JSON: c.JSON, Format: c.Format}
	files, err := results.open(e)
	if err != nil {
		return fmt.Errorf("echo-servers: %w", err)
	}
	progress := newBenchProgress(e, run.Estimate())
	failed := run.Do(ctx, doc, progress.show)
	progress.end()
	doc.Interrupted = errors.Is(failed, errInterrupted)
	return results.conclude(files, doc, failed)
}

// plan is every server that there is, beside the baseline.
func (c *echoServersCmd) plan(ctx context.Context) (*bench.Run, *report.Document, error) {
	scenarios, err := c.scenarios()
	if err != nil {
		return nil, nil, err
	}
	run := &bench.Run{Scenarios: scenarios, Rounds: c.Rounds, Trial: time.Duration(c.Seconds * float64(time.Second)), Calls: c.Syscalls}
	doc := &report.Document{
		Format: report.Format, Penstock: cli.Version(), Machine: bench.Machine(),
		Method: report.Method{Rounds: run.Rounds, TrialSeconds: report.Number(run.Trial.Seconds())},
	}
	if err := c.find(ctx, run, doc); err != nil {
		return nil, nil, err
	}
	if err := c.chooseBaseline(run, doc); err != nil {
		return nil, nil, err
	}
	run.Program, err = thisProgram()
	return run, doc, err
}

// scenarios are those of many connections, or the small ones.
func (c *echoServersCmd) scenarios() (all []bench.Scenario, err error) {
	if len(c.Connections) == 0 {
		return bench.ChooseScenarios(echoScenarios)
	}
	for _, n := range c.Connections {
		for _, s := range bench.ManyConnections(n) {
			if slices.Contains(c.Services, string(s.Workload)) {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// wanted reports whether a server takes part: by default those that serve the measured load, and without
// --connections those that are there for the memory do not.
func (c *echoServersCmd) wanted(s *contestant.Echo) bool {
	if len(c.Servers) > 0 {
		return slices.Contains(c.Servers, s.Name) || s.Name == c.baseline()
	}
	return len(c.Connections) > 0 || slices.Contains(s.Services, "echo") && s.Way != "idle"
}

// baseline is the one that is asked for, "" if there is none.
func (c *echoServersCmd) baseline() string {
	if c.Baseline == "" && len(c.Connections) > 0 {
		return "std"
	}
	return c.Baseline
}

// find looks for the servers.
func (c *echoServersCmd) find(ctx context.Context, run *bench.Run, doc *report.Document) error {
	for _, s := range contestant.Echoes() {
		if !c.wanted(&s) {
			continue
		}
		lines, err := s.Lines()
		if err != nil {
			return err
		}
		k := s.Kind(c.Dir)
		if err := k.Available(ctx, nil); err != nil {
			doc.LeftOut = append(doc.LeftOut, report.LeftOut{Name: k.Name, Reason: err.Error()})
			continue
		}
		run.Contestants = append(run.Contestants, k)
		doc.Contestants = append(doc.Contestants, report.Contestant{Name: k.Name, About: k.About, Version: k.Version(ctx, nil), Lines: lines})
	}
	return nil
}

// chooseBaseline is the one that the flag names, else the first or the last of
// those that are there.
func (c *echoServersCmd) chooseBaseline(run *bench.Run, doc *report.Document) error {
	var names, all []string
	for _, s := range contestant.Echoes() {
		if c.wanted(&s) {
			all = append(all, s.Name)
		}
	}
	for _, k := range run.Contestants {
		names = append(names, k.Name)
	}
	if len(names) == 0 {
		return cli.Usagef("--dir %s has none of %s: build them by go build -o %s/ ./bench/echo/...", c.Dir, strings.Join(all, ", "), filepath.Clean(c.Dir))
	}
	at := 0
	if names[0] != "loop" {
		at = len(names) - 1
	}
	if baseline := c.baseline(); baseline != "" {
		if at = slices.Index(names, baseline); at < 0 {
			return cli.Usagef("--baseline %s: write one of those in %s: %s", baseline, c.Dir, strings.Join(names, ", "))
		}
	}
	run.Baseline, doc.Method.Baseline = run.Contestants[at], names[at]
	return nil
}
