package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

const (
	// reportWidth is that of a report which goes to no terminal.
	reportWidth = 120
	// quiet is how long idle sessions rest before they are looked at.
	quiet = 10 * time.Second
)

// Run measures, reports and judges.
func (c *benchRunCmd) Run(e *cli.Env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.Stops, interrupt)
	run, doc, err := c.plan(ctx) // which runs programs, that may hang
	if err != nil {
		return err
	}
	return c.carryOut(ctx, e, "run", run, doc, func(failed error) {
		doc.Failures = append(doc.Failures, c.thresholds().Missed(doc)...)
		if failed != nil && !doc.Interrupted {
			doc.Failures = append(doc.Failures, failed.Error())
		}
	})
}

// carryOut makes the planned run of a command of that name, has it judged, which adds to the document, and writes that.
func (c *benchRunCmd) carryOut(ctx context.Context, e *cli.Env, name string, run *bench.Run, doc *report.Document, judge func(failed error)) error {
	doc.Command = commandLine(e.Args)
	if c.PrintConfigs {
		return c.printConfigs(ctx, e, run)
	}
	files, err := c.open(e)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	progress := newBenchProgress(e, run.Estimate())
	failed := run.Do(ctx, doc, progress.show)
	progress.end()
	doc.Interrupted = errors.Is(failed, errInterrupted)
	judge(failed)
	return c.conclude(files, doc, failed)
}

// thresholds are those that the flags give, and the defaults.
func (c *benchRunCmd) thresholds() *bench.Thresholds {
	return &bench.Thresholds{
		Failed:  given(c.MaxFailed, 0),
		ChatP99: given(c.MaxChatP99, cli.Timeout(500*time.Millisecond)).Duration(),
		Bulk:    given(c.MinBulk, 10) * 1e6,
	}
}

// judged checks that the run has a scenario and contestants for the thresholds that the flags
// give.
func (c *benchRunCmd) judged(run *bench.Run) error {
	flag := ""
	switch {
	case c.MaxFailed != nil:
		flag = "--max-failed"
	case c.MaxChatP99 != nil:
		flag = "--max-chat-p99"
	case c.MinBulk != nil:
		flag = "--min-bulk"
	}
	switch {
	case flag == "":
	case !slices.ContainsFunc(run.Scenarios, func(s bench.Scenario) bool { return s.Workload == load.Mix }):
		return cli.Usagef("%s is a threshold of the mix, which is not measured: add --scenarios mix", flag)
	case !slices.ContainsFunc(run.Contestants, func(k *contestant.Kind) bool { return report.IsPenstock(k.Name) }):
		return cli.Usagef("%s is a threshold for Penstock, which is not measured: add --peers penstock", flag)
	}
	return nil
}

// interruptOn ends ctx with the first signal.
func interruptOn(ctx context.Context, stops <-chan os.Signal, interrupt context.CancelCauseFunc) {
	select {
	case <-stops:
		interrupt(errInterrupted)
	case <-ctx.Done():
	}
}

// conclude writes the results, and returns the error for the exit code.
func (c *benchRunCmd) conclude(files *outputs, doc *report.Document, failed error) error {
	switch err := errors.Join(files.write(doc), failed); {
	case err != nil:
		return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	case len(doc.Failures) > 0:
		return fmt.Errorf("%s", strings.Join(doc.Failures, "; "))
	}
	return nil
}

// commandLine returns the command as typed.
func commandLine(args []string) string {
	return strings.Join(append([]string{"penstock"}, args...), " ")
}

// The defaults of the flags.
var (
	usualPeers     = []string{"direct", "penstock", "penstock-busy-poll", "io.Copy", "io.Copy-copying", "haproxy-1", "haproxy-2", "haproxy-splice-1", "haproxy-splice-2", "nginx", "envoy"}
	quickPeers     = []string{"direct", "penstock", "io.Copy", "haproxy-splice-2"}
	quickScenarios = []string{"bulk-8", "echo-64-64", "connections", "correctness"}
)

// plan returns the run of the flags, and a document that describes it.
func (c *benchRunCmd) plan(ctx context.Context) (*bench.Run, *report.Document, error) {
	rounds, seconds := 6, 0.5
	scenarios, peers := scenarioNames(), usualPeers
	if c.Quick {
		rounds, seconds, scenarios, peers = 4, 0.4, quickScenarios, quickPeers
	}
	return c.planned(ctx, rounds, seconds, scenarios, peers)
}

// planned is plan with other defaults.
func (c *benchRunCmd) planned(ctx context.Context, rounds int, seconds float64, scenarios, peers []string) (*bench.Run, *report.Document, error) {
	run := &bench.Run{Binaries: c.Binary, Calls: c.Syscalls, Quiet: quiet, Rounds: given(c.Rounds, rounds)}
	err := c.check(run, given(c.Seconds, seconds))
	if err != nil {
		return nil, nil, err
	}
	if len(c.Scenarios) > 0 {
		scenarios = c.Scenarios
	}
	if run.Scenarios, err = bench.ChooseScenarios(scenarios); err != nil {
		return nil, nil, cli.Usagef("--scenarios: %w", err)
	}
	doc := &report.Document{
		Format: report.Format, Penstock: cli.Version(), Machine: bench.Machine(),
		Method: report.Method{Rounds: run.Rounds, TrialSeconds: report.Number(run.Trial.Seconds()), IdleSessions: run.Idle},
	}
	if err := c.choosePeers(ctx, run, doc, peers); err != nil {
		return nil, nil, err
	}
	if err := c.judged(run); err != nil {
		return nil, nil, err
	}
	run.Program, err = c.program()
	return run, doc, err
}

// given is the flag's value if there is one.
func given[T any](flag *T, otherwise T) T {
	if flag != nil {
		return *flag
	}
	return otherwise
}

// sessionDescriptors are those that io.Copy, the contestant with the most, holds for an idle
// session.
const sessionDescriptors = 6

// check looks at the numbers, and fills them in.
func (c *benchRunCmd) check(run *bench.Run, seconds float64) error {
	allowed := max((cli.Descriptors()-500)/sessionDescriptors, 1)
	run.Idle = given(c.IdleSessions, min(2000, allowed))
	run.Trial = time.Duration(seconds * float64(time.Second))
	switch {
	case run.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", run.Rounds)
	case !(seconds >= 0.01) || seconds > 3600:
		return cli.Usagef("--seconds %v: write 0.01 or more, and at most 3600", seconds)
	case run.Idle < 1 || run.Idle > allowed:
		return cli.Usagef("--idle-sessions %d: write 1 or more, and at most %d: RLIMIT_NOFILE is %d, and a session takes up to %d descriptors",
			run.Idle, allowed, cli.Descriptors(), sessionDescriptors)
	case given(c.MaxFailed, 0) < 0:
		return cli.Usagef("--max-failed %d: write 0 or more", *c.MaxFailed)
	case !(given(c.MinBulk, 0) >= 0):
		return cli.Usagef("--min-bulk %v: write 0 or more", *c.MinBulk)
	case c.JSON == "-" && c.SVG == "-":
		return cli.Usagef("--json and --svg cannot both be standard output")
	}
	for name, path := range c.Binary {
		switch {
		case !slices.Contains([]string{"haproxy", "nginx", "envoy"}, name):
			return cli.Usagef("--binary %s=%s: write haproxy=PATH, nginx=PATH or envoy=PATH", name, path)
		case path == "":
			return cli.Usagef("--binary %s=: write %s=PATH", name, name)
		}
	}
	return nil
}

func scenarioNames() []string {
	var names []string
	for _, s := range bench.Scenarios() {
		names = append(names, s.Name)
	}
	return names
}

func peerNames() []string {
	var names []string
	for _, k := range contestant.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// choosePeers fills in the contestants. Those that the flags name must be installed.
func (c *benchRunCmd) choosePeers(ctx context.Context, run *bench.Run, doc *report.Document, peers []string) error {
	named := slices.DeleteFunc(slices.Clone([]string(c.Peers)), func(name string) bool { return name == "all" })
	switch {
	case len(named) < len(c.Peers):
		peers = peerNames()
	case len(named) > 0:
		peers = named
	}
	run.Named = named
	for _, name := range append(slices.Clone(named), c.Baseline) {
		if !slices.Contains(peerNames(), name) {
			return cli.Usagef("no contestant %q: write %s, or --peers all", name, strings.Join(peerNames(), ", "))
		}
	}
	for _, k := range contestant.Kinds() {
		if k.Name != c.Baseline && !slices.Contains(peers, k.Name) {
			continue
		}
		setting := &contestant.Setting{Binaries: c.Binary}
		err := k.Available(ctx, setting)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w", context.Cause(ctx))
		case err != nil && (k.Name == c.Baseline || slices.Contains(named, k.Name)):
			return cli.Usagef("%s cannot be measured: %w", k.Name, err)
		case err != nil:
			doc.LeftOut = append(doc.LeftOut, report.LeftOut{Name: k.Name, Reason: err.Error()})
			continue
		case k.Name == c.Baseline:
			run.Baseline = k
		}
		run.Contestants = append(run.Contestants, k)
		doc.Contestants = append(doc.Contestants, report.Contestant{Name: k.Name, About: k.About, Version: k.Version(ctx, setting)})
	}
	doc.Method.Baseline = c.Baseline
	return nil
}

// printConfigs prints the configurations of contestants.
func (c *benchRunCmd) printConfigs(ctx context.Context, e *cli.Env, run *bench.Run) error {
	for _, k := range run.Contestants {
		text := k.Config(ctx, &contestant.Setting{Binaries: c.Binary, Upstream: "127.0.0.1:0", Program: run.Program, ServerName: run.ServerName})
		if text == "" {
			text = "# No configuration file."
		}
		if _, err := fmt.Fprintf(e.Stdout, "# %s: %s\n%s\n\n", k.Name, k.About, strings.TrimSpace(text)); err != nil {
			return err
		}
	}
	return nil
}
