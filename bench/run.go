package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// Run is one run of `penstock-bench`: every scenario with every contestant.
type Run struct {
	Program   contestant.Program
	Binaries  map[string]string // executables by name, see contestant.Setting
	Scenarios []Scenario
	// Contestants are measured beside Baseline. Baseline is measured whether it is among them
	// or not.
	Contestants []*contestant.Kind
	Baseline    *contestant.Kind
	Named       []string      // contestants asked for by name: it is a failure of the run if one never starts
	Rounds      int           // of bulk, echo and connections; idle makes do with fewer
	Trial       time.Duration // of bulk, echo and connections
	Idle        int           // sessions
	Quiet       time.Duration // how long idle sessions rest before they are looked at
	Network     network.Kind  // "" is network.Loopback
	Calls       bool          // count system calls if there is strace
}

// Step is where a run stands.
type Step struct {
	Scenario      string
	Workload      string
	Round, Rounds int // from 1
	Contestant    string
	// Doing is "" for a timed trial, else a few words.
	Doing string
	// Trial is the trial that has ended just now, nil while it runs.
	Trial *report.Trial
	// Failed is why the contestant has just lost this scenario.
	Failed string
}

// runner is a run under way.
type runner struct {
	*Run
	rig          *Rig
	callsCounted bool
	watch        func(Step)
	doc          *report.Document
	step         Step
	started      map[string]bool  // contestants that have started at least once
	last         map[string]error // why they lost a scenario
}

// Do measures, and reports its progress to watch. It adds each result to doc, which may have
// content already, as soon as it has it. So after an error doc contains the results so far.
// A contestant that fails loses a scenario. An error ends the run: ctx is done, or a part of
// the rig itself has failed. No child is left.
func (r *Run) Do(ctx context.Context, doc *report.Document, watch func(Step)) (err error) {
	began := time.Now()
	defer func() {
		doc.ElapsedSeconds = report.Number(time.Since(began).Seconds())
		doc.Judge()
	}()
	doc.Began = began
	run := &runner{Run: r, watch: watch, doc: doc, started: make(map[string]bool), last: make(map[string]error)}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := run.open(ctx, dir); err != nil {
		return err
	}
	defer run.rig.Close()
	defer run.judgeNamed()
	for _, s := range r.Scenarios {
		if s.Workload == load.Idle {
			s.Connections, s.Title = r.Idle, report.Exact(int64(r.Idle))+" "+s.Title
		}
		if err := run.scenario(ctx, &s); err != nil {
			return err
		}
	}
	return nil
}

// open starts the rig.
func (r *runner) open(ctx context.Context, dir string) error {
	method := &r.doc.Method
	hosts, err := r.join()
	if err != nil {
		return err
	}
	if r.rig, err = NewRig(ctx, hosts, contestant.Setting{Program: r.Program, Binaries: r.Binaries, Dir: dir}); err != nil {
		return err
	}
	method.KernelSlab = slabCounted()
	if !r.Calls {
		method.SystemCallsMissing = "nobody asked"
		return nil
	}
	if _, err := exec.LookPath("strace"); err != nil {
		method.SystemCallsMissing = process.ErrNoStrace.Error()
		return nil
	}
	r.callsCounted, method.SystemCallCounter = true, "strace"
	return nil
}

// join makes the hosts of the run.
func (r *runner) join() (*network.Hosts, error) {
	if r.Network == "" || r.Network == network.Loopback {
		group, missing := process.NewGroupWherePossible()
		r.doc.NetworkNamespace, r.doc.NamespaceMissing = missing == "", missing
		return network.One(group), nil
	}
	r.doc.NetworkNamespace, r.doc.Method.Network = true, string(r.Network)
	return network.New(r.Network)
}

// judgeNamed reports requested contestants that never started as failures. Penstock's
// and the baseline's are there already, for each scenario.
func (r *runner) judgeNamed() {
	for _, name := range r.Named {
		if err := r.last[name]; err != nil && !r.started[name] && !r.fatal(name) {
			r.doc.Failures = append(r.doc.Failures, fmt.Sprintf("%s, which was asked for, never started: %v", name, err))
		}
	}
}

// fatal reports whether a failure of the contestant is a failure of the run. Penstock is the
// subject of the run, and without the baseline there are no ratios.
func (r *runner) fatal(name string) bool {
	return report.IsPenstock(name) || name == r.Baseline.Name
}

// kinds are all that take part, the baseline first.
func (r *Run) kinds() []*contestant.Kind {
	others := slices.DeleteFunc(slices.Clone(r.Contestants), func(k *contestant.Kind) bool { return k.Name == r.Baseline.Name })
	return append([]*contestant.Kind{r.Baseline}, others...)
}

// entrant is a contestant in a scenario.
type entrant struct {
	kind *contestant.Kind
	cell *report.Cell
	c    *contestant.Contestant // nil when it does not run
}

// lost reports that the entrant is out.
func (e *entrant) lost() bool { return e.cell.Failed != "" }

// scenario measures one scenario.
func (r *runner) scenario(ctx context.Context, s *Scenario) error {
	out := r.report(s)
	f := &field{runner: r, scenario: s, out: out}
	defer func() { // also when it was interrupted
		f.judgeSplicing()
		f.judgeLane()
		out.Summarize()
	}()
	for _, k := range r.kinds() {
		f.enter(k, report.Contender)
	}
	f.entrants[0].cell.Role = report.Baseline
	r.step.Scenario, r.step.Workload, r.step.Round = s.Name, string(s.Workload), 1
	defer f.clear()
	return f.measure(ctx)
}

// report adds the scenario to the document.
func (r *runner) report(s *Scenario) *report.Scenario {
	out := &report.Scenario{
		Name: s.Name, Title: s.Title, Workload: string(s.Workload), Connections: s.Connections, MessageBytes: s.Size,
		Rounds: r.rounds(s), TrialSeconds: report.Unmeasured(),
	}
	if d := r.duration(s); d > 0 {
		out.TrialSeconds = report.Number(d.Seconds())
	}
	r.doc.Scenarios = append(r.doc.Scenarios, out)
	return out
}

// field is a scenario under way.
type field struct {
	*runner
	scenario *Scenario
	out      *report.Scenario
	entrants []*entrant // the baseline first
	base     *entrant
}

// enter adds an entrant.
func (f *field) enter(k *contestant.Kind, role report.Role) *entrant {
	e := &entrant{kind: k, cell: &report.Cell{Contestant: k.Name, Role: role}}
	f.entrants = append(f.entrants, e)
	f.out.Cells = append(f.out.Cells, e.cell)
	return e
}

// clear ends the running contestants.
func (f *field) clear() {
	for _, e := range f.entrants {
		f.end(e)
	}
}

// end ends the entrant's contestant, if it runs.
func (f *field) end(e *entrant) {
	if e.c != nil {
		f.rig.Stop(e.c)
		e.c = nil
	}
}

// start starts the entrant's contestant, unless it runs. false: it is out.
func (f *field) start(ctx context.Context, e *entrant) (bool, error) {
	if e.lost() || e.c != nil {
		return !e.lost(), nil
	}
	c, err := f.rig.Start(ctx, e.kind)
	if err != nil {
		return false, f.lose(ctx, e, err)
	}
	e.c = c
	f.started[e.kind.Name] = true
	return true, nil
}

// lose puts an entrant out, unless err is the end of the run.
func (f *field) lose(ctx context.Context, e *entrant, err error) error {
	if broken(ctx, err) {
		return err
	}
	e.cell.Failed = err.Error()
	f.last[e.kind.Name] = err
	if f.fatal(e.kind.Name) {
		f.doc.Failures = append(f.doc.Failures, fmt.Sprintf("%s, %s: %v", f.scenario.Name, e.kind.Name, err))
	}
	f.step.Contestant, f.step.Failed = e.kind.Name, err.Error()
	f.watch(f.step)
	f.step.Failed = ""
	f.end(e)
	return nil
}

// measure is all rounds of the scenario.
func (f *field) measure(ctx context.Context) error {
	f.base = f.entrants[0]
	f.step.Rounds = f.out.Rounds
	if f.scenario.Workload == load.Idle {
		return f.rests(ctx)
	}
	return f.pairs(ctx)
}

// took converts a trial of the rig to a trial of the report.
func (f *field) took(t *Trial, role report.Role, beside string, start time.Time) *report.Trial {
	res := &t.Result
	out := &report.Trial{
		Contestant: t.Contestant, Role: role, Round: f.step.Round, Beside: beside,
		StartSeconds: report.Number(start.Sub(f.doc.Began).Seconds()), ElapsedSeconds: seconds(res.Elapsed),
		SentBytes: res.Sent, ReceivedBytes: res.Received, Requests: res.Requests, Connections: res.Connections,
		LatencyP50Seconds: seconds(res.P50), LatencyP99Seconds: seconds(res.P99),
		CPUSeconds: report.Number(t.Usage.CPU.Seconds()), MachineCPUSeconds: report.Number(t.Machine.Seconds()),
		ContextSwitches: report.Unmeasured(), SystemCalls: report.Unmeasured(), SplicedBytes: report.Unmeasured(),
	}
	if t.Usage.Switches >= 0 { // or threads have ended, and took theirs with them
		out.ContextSwitches = report.Number(t.Usage.Switches)
	}
	if t.Contestant == directName {
		out.CPUSeconds, out.ContextSwitches = report.Unmeasured(), report.Unmeasured()
	}
	if t.Plan.Warmup > 0 {
		out.WarmupBytes, out.WarmupSeconds = res.Warmup, report.Number(t.Plan.Warmup.Seconds())
	}
	if t.Lane >= 0 {
		share := report.Number(t.Lane)
		out.LaneShare = &share
	}
	if t.Spliced >= 0 {
		out.SplicedBytes = report.Number(t.Spliced)
	}
	return out
}

// directName is the contestant without a process.
const directName = "direct"

// seconds is unknown for 0: no measured time is 0.
func seconds(d time.Duration) report.Number {
	if d == 0 {
		return report.Number(math.NaN())
	}
	return report.Number(d.Seconds())
}
