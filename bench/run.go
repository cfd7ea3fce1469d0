package bench

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/prometheus/procfs"
)

// Run is one run of `penstock-bench`: every scenario with every contestant.
type Run struct {
	Program   contestant.Program
	Binaries  map[string]string // executables by name, see contestant.Setting
	Scenarios []Scenario
	// Contestants are measured beside Baseline. Baseline is measured even if it is not one of them.
	Contestants []*contestant.Kind
	Baseline    *contestant.Kind
	Named       []string      // contestants requested by name: if one never starts, the run fails
	Rounds      int           // rounds of bulk, echo and connections; idle has fewer
	Trial       time.Duration // length of a trial of bulk, echo and connections
	Idle        int           // number of sessions
	Quiet       time.Duration // how long sessions are idle before they are measured
	Network     network.Kind  // "" is network.Loopback
	Calls       bool          // count system calls if strace is installed
}

// Step is a step in the progress of a run.
type Step struct {
	Scenario      string
	Workload      string
	Round, Rounds int // from 1
	Contestant    string
	// Doing is "" during a timed trial, otherwise it says in a few words what the run does.
	Doing string
	// Trial is the trial that has just ended, or nil during a trial.
	Trial *report.Trial
	// Failed is why the contestant has just lost this scenario.
	Failed string
}

// runner is a run in progress.
type runner struct {
	*Run
	rig          *Rig
	callsCounted bool
	watch        func(Step)
	doc          *report.Document
	step         Step
	started      map[string]bool  // contestants that have started at least once
	last         map[string]error // the errors by which contestants lost a scenario
}

// Do measures, and reports its progress to watch. It adds each result to doc at once, so after an error doc has
// the results so far. doc may have content already. A contestant that fails loses its scenario. The run ends with
// an error if ctx is done, or if a part of the rig itself has failed. When Do returns, no child is left.
func (r *Run) Do(ctx context.Context, doc *report.Document, watch func(Step)) (err error) {
	began := time.Now()
	defer func() {
		doc.ElapsedSeconds = report.Number(time.Since(began).Seconds())
		doc.Judge(report.Goals())
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

func (r *runner) join() (*network.Hosts, error) {
	if r.Network == "" || r.Network == network.Loopback {
		group, missing := process.NewGroupWherePossible()
		r.doc.NetworkNamespace, r.doc.NamespaceMissing = missing == "", missing
		return network.One(group), nil
	}
	r.doc.NetworkNamespace, r.doc.Method.Network = true, string(r.Network)
	return network.New(r.Network)
}

// judgeNamed reports requested contestants that never started as failures. For Penstock and the baseline, each
// scenario has reported that already.
func (r *runner) judgeNamed() {
	for _, name := range r.Named {
		if err := r.last[name]; err != nil && !r.started[name] && !r.fatal(name) {
			r.doc.Failures = append(r.doc.Failures, fmt.Sprintf("%s, which was asked for, never started: %v", name, err))
		}
	}
}

// fatal reports whether the run fails if the contestant fails. That is so for Penstock, which is the subject of
// the run, and for the baseline, without which there are no ratios.
func (r *runner) fatal(name string) bool {
	return report.IsPenstock(name) || name == r.Baseline.Name
}

// kinds returns all contestants, the baseline first.
func (r *Run) kinds() []*contestant.Kind {
	others := slices.DeleteFunc(slices.Clone(r.Contestants), func(k *contestant.Kind) bool { return k.Name == r.Baseline.Name })
	return append([]*contestant.Kind{r.Baseline}, others...)
}

// entrant is a contestant in a scenario.
type entrant struct {
	kind *contestant.Kind
	cell *report.Cell
	c    *contestant.Contestant // nil while it does not run
}

// lost reports whether the entrant is out.
func (e *entrant) lost() bool { return e.cell.Failed != "" }

func (r *runner) scenario(ctx context.Context, s *Scenario) error {
	out := r.report(s)
	f := &field{runner: r, scenario: s, out: out}
	defer func() { // even if it was interrupted
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

// field is a scenario in progress.
type field struct {
	*runner
	scenario *Scenario
	out      *report.Scenario
	entrants []*entrant // the baseline first
	base     *entrant
}

func (f *field) enter(k *contestant.Kind, role report.Role) *entrant {
	e := &entrant{kind: k, cell: &report.Cell{Contestant: k.Name, Role: role}}
	f.entrants = append(f.entrants, e)
	f.out.Cells = append(f.out.Cells, e.cell)
	return e
}

func (f *field) clear() {
	for _, e := range f.entrants {
		f.end(e)
	}
}

// end ends the entrant's contestant if it runs.
func (f *field) end(e *entrant) {
	if e.c != nil {
		f.rig.Stop(e.c)
		e.c = nil
	}
}

// start starts the entrant's contestant unless it runs already. It returns false if the entrant is out.
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

// lose puts an entrant out, unless err ends the run.
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

func (f *field) measure(ctx context.Context) error {
	f.base = f.entrants[0]
	f.step.Rounds = f.out.Rounds
	if f.scenario.Workload == load.Idle {
		return f.rests(ctx)
	}
	return f.pairs(ctx)
}

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
	if t.Usage.Switches >= 0 { // below 0 if threads with many switches have ended
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

// seconds returns an unknown number for 0, because no measured time is 0.
func seconds(d time.Duration) report.Number {
	if d == 0 {
		return report.Number(math.NaN())
	}
	return report.Number(d.Seconds())
}

// Machine describes the machine on which this process runs, as far as the process may read it.
func Machine() report.Machine {
	m := report.Machine{
		CPUs: runtime.NumCPU(), Kernel: "Linux " + content("/proc/sys/kernel/osrelease"),
		Go: runtime.Version(), Governor: content("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), User: "an ordinary user",
	}
	if os.Geteuid() == 0 {
		m.User = "root"
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.MemoryBytes = int64(*memory.MemTotalBytes)
	}
	return m
}

// content returns the content of a small file, or "" if it cannot be read.
func content(path string) string {
	b, _ := os.ReadFile(path)
	return string(bytes.TrimSpace(b))
}
