package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// runFlags are the flags of commands that measure contestants beside a baseline.
type runFlags struct {
	programFlag
	outFlag

	Rounds       *int              `placeholder:"N" help:"Measure this many rounds. With an even number each contestant goes first equally often. idle takes at most 3 (default: 6)."`
	Seconds      *float64          `placeholder:"S" help:"Measure for this many seconds in each trial (default: 0.5, for lane 1)."`
	Binary       map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"Use this executable: haproxy=PATH, nginx=PATH, envoy=PATH. The flag may be repeated."`
	Syscalls     bool              `default:"true" negatable:"" help:"Count system calls in separate trials, if strace is installed."`
	PrintConfigs bool              `help:"Print the configurations that the contestants would get, and exit."`
	SVG          string            `name:"svg" placeholder:"FILE" help:"Draw the ratios to FILE."`
}

// runCmd measures proxies against each other.
type runCmd struct {
	runFlags

	Quick        bool   `help:"Measure a subset, in about a minute: bulk-8, echo-64-64 and connections with direct, penstock, io.Copy and haproxy-splice-2, in 4 rounds of 0.4 s."`
	Scenarios    names  `placeholder:"NAME,..." help:"Measure these scenarios: bulk-1, bulk-8, bulk-64, echo-64-1, echo-64-64, echo-4096-1, echo-4096-64, connections, idle; or the beginning of names, for all scenarios that begin so: bulk, echo (default: all)."`
	Peers        names  `placeholder:"NAME,..." help:"Measure these contestants: direct, penstock, penstock-splice, penstock-copy, penstock-busy-poll, penstock-run, penstock-run-realistic, penstock-run-lane (root only), relay (a Go proxy that uses package relay), io.Copy, io.Copy-copying, haproxy-1, haproxy-2, haproxy-splice-1, haproxy-splice-2, haproxy-splice-1-defaults, haproxy-splice-2-defaults (with HAProxy's default pipe size instead of 1 MiB), nginx, envoy, or all for every installed one (default: direct, penstock, penstock-busy-poll, io.Copy, io.Copy-copying, and, if installed, the first four haproxy-*, nginx and envoy). If a named contestant does not start, the exit code is 1."`
	Baseline     string `default:"penstock" placeholder:"NAME" help:"Compare each contestant with this one, the base of all ratios. If the baseline fails, the exit code is 1 (default: ${default})."`
	IdleSessions *int   `placeholder:"N" help:"In the scenario idle, let this many sessions rest for 10 s in each round of each contestant (default: 2000, or as many as RLIMIT_NOFILE allows)."`
}

func (*runCmd) Help() string {
	return `The word run can be left out: penstock-bench --quick

The scenario idle takes about 12 s for every contestant in each of its 3 rounds, and
twice as long for the baseline. To skip it, name other --scenarios.

Configurations and sockets are in a directory penstock-bench-* below TMPDIR (/tmp).
The command removes this directory when it ends, except after SIGKILL.`
}

// names is the value of a flag that may be given several times, each time with a list of names. An empty name is
// an error, because an empty list would mean all.
type names []string

// Decode is called by kong each time the flag is given.
func (n *names) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("name", &text); err != nil {
		return err
	}
	for name := range strings.SplitSeq(text, ",") {
		if name == "" {
			return errors.New("a name is empty: write NAME or NAME,NAME, or leave the flag out for the default")
		}
		*n = append(*n, name)
	}
	return nil
}

// The defaults of the flags.
var (
	usualPeers     = []string{"direct", "penstock", "penstock-busy-poll", "io.Copy", "io.Copy-copying", "haproxy-1", "haproxy-2", "haproxy-splice-1", "haproxy-splice-2", "nginx", "envoy"}
	quickPeers     = []string{"direct", "penstock", "io.Copy", "haproxy-splice-2"}
	quickScenarios = []string{"bulk-8", "echo-64-64", "connections"}
)

// Run measures, reports and judges.
func (c *runCmd) Run(e *cli.Env) error {
	choice := choice{rounds: 6, seconds: 0.5, peers: usualPeers, named: c.Peers, baseline: c.Baseline}
	names := c.Scenarios
	if c.Quick {
		choice.rounds, choice.seconds, choice.peers = 4, 0.4, quickPeers
		if len(names) == 0 {
			names = quickScenarios
		}
	}
	if len(names) == 0 {
		names = nil
		for _, s := range bench.Scenarios() {
			names = append(names, s.Name)
		}
	}
	var err error
	if choice.scenarios, err = bench.ChooseScenarios(names); err != nil {
		return cli.Usagef("--scenarios: %w", err)
	}
	allowed := max((cli.Descriptors()-500)/sessionDescriptors, 1)
	choice.idle = given(c.IdleSessions, min(2000, allowed))
	if choice.idle < 1 || choice.idle > allowed {
		return cli.Usagef("--idle-sessions %d: write 1 or more, and at most %d: RLIMIT_NOFILE is %d, and a session takes up to %d descriptors",
			choice.idle, allowed, cli.Descriptors(), sessionDescriptors)
	}
	return c.carryOut(e, "run", choice, func(*report.Document) {})
}

// sessionDescriptors is how many descriptors io.Copy holds for an idle session. It is the contestant that holds
// the most.
const sessionDescriptors = 6

// A choice has what a command measures, apart from its flags.
type choice struct {
	rounds    int // default number of rounds, and default seconds of a trial
	seconds   float64
	idle      int
	peers     []string // default; some of them may not be installed
	named     names
	baseline  string
	scenarios []bench.Scenario
	network   network.Kind
}

// carryOut makes a run, calls judge to add to the document, and writes the document.
func (c *runFlags) carryOut(e *cli.Env, name string, choice choice, judge func(*report.Document)) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.Stops, interrupt)
	run, doc, err := c.plan(ctx, choice) // it runs programs, which may hang
	if err != nil {
		return err
	}
	doc.Command = commandLine(e.Args)
	if c.PrintConfigs {
		return printConfigs(ctx, e, run.Contestants, &contestant.Setting{Binaries: c.Binary, Upstream: "127.0.0.1:0", Program: run.Program})
	}
	var files [2]output
	for i, path := range []string{c.JSON, c.SVG} {
		if files[i], err = open(e, path); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Fprintln(e.Stderr, begins)
	failed := run.Do(ctx, doc, progress(e.Stderr))
	doc.Interrupted = errors.Is(failed, errInterrupted)
	judge(doc)
	if failed != nil && !doc.Interrupted {
		doc.Failures = append(doc.Failures, failed.Error())
	}
	err = errors.Join(doc.WriteMarkdown(reportTo(e, c.JSON, c.SVG)), files[0].write(asJSON(doc)), files[1].write(doc.WriteSVG))
	switch err = errors.Join(err, failed); {
	case err != nil:
		return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	case len(doc.Failures) > 0:
		return fmt.Errorf("%s", strings.Join(doc.Failures, "; "))
	}
	return nil
}

// progress returns a function that writes a line when a round or another step begins.
func progress(w io.Writer) func(bench.Step) {
	last := ""
	return func(s bench.Step) {
		text := fmt.Sprintf("%-13s round %d of %d", s.Scenario, s.Round, s.Rounds)
		switch {
		case s.Trial != nil:
			return // the step has ended
		case s.Failed != "":
			text = fmt.Sprintf("%s: %s failed: %s", s.Scenario, s.Contestant, s.Failed)
		case s.Workload == string(load.Idle):
			text += ", " + s.Contestant // one step takes long
		case s.Doing != "":
			text = fmt.Sprintf("%-13s %s", s.Scenario, s.Doing)
		}
		if text != last {
			fmt.Fprintln(w, text)
		}
		last = text
	}
}

// given returns the value of a flag, or otherwise if the flag was not given.
func given[T any](flag *T, otherwise T) T {
	if flag != nil {
		return *flag
	}
	return otherwise
}

// plan returns the run for the flags, and a document that describes the run.
func (c *runFlags) plan(ctx context.Context, choice choice) (*bench.Run, *report.Document, error) {
	seconds := given(c.Seconds, choice.seconds)
	run := &bench.Run{
		Binaries: c.Binary, Calls: c.Syscalls, Quiet: 10 * time.Second, Rounds: given(c.Rounds, choice.rounds), Idle: choice.idle,
		Trial: time.Duration(seconds * float64(time.Second)), Scenarios: choice.scenarios, Network: choice.network,
	}
	switch {
	case run.Rounds < 1:
		return nil, nil, cli.Usagef("--rounds %d: write 1 or more", run.Rounds)
	case c.JSON == "-" && c.SVG == "-":
		return nil, nil, cli.Usagef("--json and --svg cannot both be standard output")
	}
	if err := cmp.Or(bounded("seconds", seconds, 0.01, 3600), binaries(c.Binary, "haproxy", "nginx", "envoy")); err != nil {
		return nil, nil, err
	}
	doc := &report.Document{
		Head:   report.Head{Format: report.Format, Penstock: cli.Version(), Machine: bench.Machine()},
		Method: report.Method{Rounds: run.Rounds, TrialSeconds: report.Number(seconds), IdleSessions: run.Idle},
	}
	if err := c.choosePeers(ctx, run, doc, choice); err != nil {
		return nil, nil, err
	}
	var err error
	run.Program, err = c.program()
	return run, doc, err
}

func binaries(flag map[string]string, allowed ...string) error {
	for name, path := range flag {
		if !slices.Contains(allowed, name) || path == "" {
			return cli.Usagef("--binary %s=%s: write %s=PATH", name, path, strings.Join(allowed, "=PATH or "))
		}
	}
	return nil
}

func kindNames(kinds []*contestant.Kind) (list []string) {
	for _, k := range kinds {
		list = append(list, k.Name)
	}
	return list
}

// choosePeers adds the contestants to run. Contestants that the flags name must be installed.
func (c *runFlags) choosePeers(ctx context.Context, run *bench.Run, doc *report.Document, choice choice) error {
	known, peers := kindNames(contestant.Kinds()), choice.peers
	run.Named = slices.DeleteFunc(slices.Clone([]string(choice.named)), func(name string) bool { return name == "all" })
	switch {
	case len(run.Named) < len(choice.named):
		peers = known
	case len(run.Named) > 0:
		peers = run.Named
	}
	for _, name := range append(slices.Clone(run.Named), choice.baseline) {
		if !slices.Contains(known, name) {
			return cli.Usagef("no contestant %q: write %s, or --peers all", name, strings.Join(known, ", "))
		}
	}
	for _, k := range contestant.Kinds() {
		if k.Name != choice.baseline && !slices.Contains(peers, k.Name) {
			continue
		}
		setting := &contestant.Setting{Binaries: c.Binary}
		err := k.Available(ctx, setting)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w", context.Cause(ctx))
		case err != nil && (k.Name == choice.baseline || slices.Contains(run.Named, k.Name)):
			return cli.Usagef("%s cannot be measured: %w", k.Name, err)
		case err != nil:
			doc.LeftOut = append(doc.LeftOut, report.LeftOut{Name: k.Name, Reason: err.Error()})
			continue
		case k.Name == choice.baseline:
			run.Baseline = k
		}
		run.Contestants = append(run.Contestants, k)
		doc.Contestants = append(doc.Contestants, report.Contestant{Name: k.Name, About: k.About, Version: k.Version(ctx, setting)})
	}
	doc.Method.Baseline = choice.baseline
	return nil
}

func printConfigs(ctx context.Context, e *cli.Env, kinds []*contestant.Kind, setting *contestant.Setting) error {
	for _, k := range kinds {
		if err := printConfig(e, k.Name, k.About, cmp.Or(strings.TrimSpace(k.Config(ctx, setting)), "# No configuration file.")); err != nil {
			return err
		}
	}
	return nil
}

func printConfig(e *cli.Env, name, about, text string) error {
	_, err := fmt.Fprintf(e.Stdout, "# %s: %s\n%s\n\n", name, about, text)
	return err
}

// laneCmd measures sessions that have left user space beside other proxies.
type laneCmd struct {
	runFlags

	Quick     bool         `help:"Measure only bulk-8, echo-64-64 and connections, in 4 rounds of 0.4 s."`
	Scenarios names        `placeholder:"NAME,..." help:"Measure these scenarios: bulk-1, bulk-8, bulk-64, echo-64-1, echo-64-64, echo-4096-64, connections, or the beginning of names, for all scenarios that begin so (default: all)."`
	Network   network.Kind `default:"loopback" enum:"loopback,veth,loss" placeholder:"loopback|veth|loss" help:"Put the load, the contestants and the sink on one host (loopback), in three network namespaces joined by veth (veth), or in such namespaces with a link to the client that loses 1 % (loss) (default: ${default})."`
	Peers     names        `placeholder:"NAME,..." help:"Measure these contestants beside penstock-run-lane, as in penstock-bench run (default: direct, penstock-run, io.Copy, and, if installed, haproxy-1, haproxy-2, haproxy-splice-1, haproxy-splice-2, nginx and envoy)."`
	Warmup    *float64     `placeholder:"S" help:"Warm up for this many seconds, in which sessions leave user space. Trials of streams warm up three times as long, and trials of connections do not warm up (default: 1)."`
}

func (*laneCmd) Help() string {
	return `penstock run with lane: auto is measured in pairs with each other contestant. The command
needs root. If the process cannot have a lane, the command says why and ends. All contestants
are started again for each trial, because the programs of the lane see the packets of the
others too.

Trials of messages and streams begin with a warmup, in which sessions leave user space. The
command reads the counters of the process at the end of the warmup and of the trial. If the
lane carried less than 90 % of the bytes between them, the figures are void, and the exit
code is 1. The share is in the report, and for each trial in the JSON (lane_share).

The sessions of the scenario connections are too short to leave user space: it shows what
the lane costs sessions that do not use it.

Up to 100 ns of CPU per request count as no CPU.

With --network veth and loss there are no bounds. The contestant direct, without a proxy,
forwards packets on the host of the proxy.`
}

// The defaults of the flags.
var (
	lanePeers = []string{"direct", contestant.RunName, "io.Copy", "haproxy-1", "haproxy-2", "haproxy-splice-1", "haproxy-splice-2", "nginx", "envoy"}
	laneQuick = names{"bulk-8", "echo-64-64", "connections"}
)

// Run measures, reports and judges.
func (c *laneCmd) Run(e *cli.Env) error {
	choice := choice{rounds: 6, seconds: 1, idle: 1, peers: lanePeers, named: c.Peers, baseline: contestant.LaneName, network: c.Network}
	names := c.Scenarios
	if c.Quick {
		choice.rounds, choice.seconds = 4, 0.4
		if len(names) == 0 {
			names = laneQuick
		}
	}
	warmup := given(c.Warmup, bench.LaneWarmup.Seconds())
	if err := bounded("warmup", warmup, 0.01, 3600); err != nil {
		return err
	}
	choice.scenarios = bench.LaneScenarios(time.Duration(warmup * float64(time.Second)))
	if len(names) > 0 {
		var err error
		if choice.scenarios, err = bench.ChooseAmong(choice.scenarios, names); err != nil {
			return cli.Usagef("--scenarios: %w", err)
		}
	}
	return c.carryOut(e, "lane", choice, func(doc *report.Document) {
		if c.Network == network.Loopback { // the goals are for loopback
			doc.Judge(report.LaneGoals())
		}
	})
}
