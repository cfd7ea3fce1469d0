package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/proxy/admin"
)

// sessions is the number of idle sessions in a small run.
const sessions = 50

// small is a run that takes a moment, with proxies that have a fault.
func small(t *testing.T, fault string, scenarios []string, peers ...string) *bench.Run {
	t.Helper()
	chosen := must.Get(bench.ChooseScenarios(scenarios))(t)
	r := &bench.Run{
		Program: program(fault), Scenarios: chosen, Baseline: kind(t, "io.Copy"),
		Rounds: 2, Trial: 50 * time.Millisecond, Idle: sessions, Quiet: 50 * time.Millisecond,
	}
	for _, name := range peers {
		r.Contestants = append(r.Contestants, kind(t, name))
	}
	return r
}

// do does r, which must not fail.
func do(t *testing.T, r *bench.Run, watch func(bench.Step)) *report.Document {
	t.Helper()
	if watch == nil {
		watch = func(bench.Step) {}
	}
	doc := new(report.Document)
	must.Do(t, r.Do(t.Context(), doc, watch))
	return doc
}

func TestRun(t *testing.T) {
	full.Only(t, "TestRunAsAnOrdinaryUser has two of these scenarios")
	runAll(t, append(paired, "idle"))
}

func TestRunAsAnOrdinaryUser(t *testing.T) {
	if privilege.Ordinary(t) {
		runAll(t, []string{"bulk-8", "idle"})
	}
}

// paired lists the scenarios measured in pairs.
var paired = []string{"bulk-8", "echo-64-64", "connections"}

func runAll(t *testing.T, scenarios []string) {
	doc := do(t, small(t, faultNone, scenarios, "direct", "penstock", "io.Copy"), nil)
	if len(doc.Scenarios) != len(scenarios) || len(doc.Failures) > 0 {
		t.Errorf("%d scenarios, failures %v", len(doc.Scenarios), doc.Failures)
	}
	if isRoot := os.Getuid() == 0; doc.NetworkNamespace != isRoot || (doc.NamespaceMissing == "") != isRoot {
		t.Errorf("root %v: network namespace %v, %q", isRoot, doc.NetworkNamespace, doc.NamespaceMissing)
	}
	checkStandings(t, doc)
	for _, s := range doc.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			switch {
			case slices.Contains(paired, s.Name):
				checkPaired(t, s)
			default:
				checkIdle(t, s)
			}
		})
	}
}

// checkStandings checks that Penstock is judged beside the one peer there is.
func checkStandings(t *testing.T, doc *report.Document) {
	t.Helper()
	judged := make(map[string]bool)
	for _, st := range doc.Standings {
		if st.Figure != "gigabytes_per_second" && st.Figure != "requests_per_second" && st.Figure != "connections_per_second" {
			continue // in so short a time not all figures are known
		}
		judged[st.Scenario] = true
		if st.Peer != "io.Copy" || !st.Beside[0].Paired || st.Verdict == report.Unjudged || st.Limit == nil {
			t.Errorf("%s: %+v", st.Scenario, st)
		}
	}
	for _, s := range doc.Scenarios {
		if s.Name == "bulk-8" && !judged[s.Name] {
			t.Errorf("%s: it was not judged", s.Name)
		}
	}
}

func names(s *report.Scenario) string {
	var list []string
	for _, c := range s.Cells {
		list = append(list, fmt.Sprintf("%s %s", c.Contestant, c.Role))
	}
	return strings.Join(list, ", ")
}

const allCells = "io.Copy baseline, direct contestant, penstock contestant, io.Copy again"

func checkPaired(t *testing.T, s *report.Scenario) {
	t.Helper()
	if got := names(s); got != allCells {
		t.Errorf("cells: %s", got)
	}
	var order []string
	for _, x := range s.Trials {
		order = append(order, fmt.Sprintf("%d %s %s beside %s", x.Round, x.Contestant, x.Role, x.Beside))
	}
	want := []string{
		"1 io.Copy baseline beside direct", "1 direct contestant beside direct",
		"1 io.Copy baseline beside penstock", "1 penstock contestant beside penstock",
		"1 io.Copy baseline beside again", "1 io.Copy again beside again",
		"2 direct contestant beside direct", "2 io.Copy baseline beside direct",
		"2 penstock contestant beside penstock", "2 io.Copy baseline beside penstock",
		"2 io.Copy again beside again", "2 io.Copy baseline beside again",
	}
	if want = want[:6*s.Rounds]; strings.Join(order, "\n") != strings.Join(want, "\n") {
		t.Errorf("trials:\n%s\nwant\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
	first := report.Figures(s.Workload)[0].Name
	for _, c := range s.Cells {
		f := c.Figures[first]
		if !(f.Median > 0) || f.Low > f.Median || f.High < f.Median {
			t.Errorf("%s %s: %s %+v", c.Contestant, c.Role, first, f)
		}
		if ratios := f.Ratio != nil; ratios != (c.Role != report.Baseline) || ratios && f.Ratio.Values != s.Rounds {
			t.Errorf("%s %s: ratio %+v", c.Contestant, c.Role, f.Ratio)
		}
	}
	checkUse(t, s)
}

// checkUse checks that the resources used are known if they can be measured.
func checkUse(t *testing.T, s *report.Scenario) {
	t.Helper()
	for _, x := range s.Trials {
		if !x.MachineCPUSeconds.Known() || x.CPUSeconds.Known() == (x.Contestant == "direct") {
			t.Errorf("%s: machine %v, contestant %v", x.Contestant, x.MachineCPUSeconds, x.CPUSeconds)
		}
		if x.SplicedBytes.Known() != (x.Contestant == "penstock") {
			t.Errorf("%s: spliced %v", x.Contestant, x.SplicedBytes)
		}
	}
}

func checkIdle(t *testing.T, s *report.Scenario) {
	t.Helper()
	if got := names(s); got != allCells {
		t.Errorf("cells: %s", got)
	}
	for _, x := range s.Trials {
		if x.Idle == nil || x.Idle.Sessions != sessions || x.Idle.Descriptors.Known() == (x.Contestant == "direct") {
			t.Errorf("%s: %+v", x.Contestant, x.Idle)
		}
		// Each session has two. On a busy machine bytes were in several pipes, of two descriptors, which are idle now.
		if n := x.Idle.Descriptors; x.Contestant == "penstock" && (n < 2*sessions || n > 3*sessions) {
			t.Errorf("penstock holds %v descriptors for %d idle sessions", n, sessions)
		}
	}
	var order []string
	for _, x := range s.Trials {
		order = append(order, fmt.Sprintf("%d %s %s", x.Round, x.Contestant, x.Role))
	}
	want := []string{
		"1 io.Copy baseline", "1 direct contestant", "1 penstock contestant", "1 io.Copy again",
		"2 io.Copy baseline", "2 penstock contestant", "2 direct contestant", "2 io.Copy again",
	}
	if !slices.Equal(order, want) {
		t.Errorf("trials %q", order)
	}
}

func TestAContestantThatFailsLosesItsCellAlone(t *testing.T) {
	for fault, want := range map[string]string{
		faultMute:  "no such luck",
		faultLiar:  "penstock counts",
		faultLoser: "lost 1 bytes",
		faultDies:  "ended unexpectedly: exit status 3: so long",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var told string
			r := small(t, fault, []string{"bulk-8", "echo-64-64"}, "penstock", "direct")
			doc := do(t, r, func(s bench.Step) { told += s.Failed })
			if len(doc.Failures) != 2 || !strings.Contains(doc.Failures[0], want) || !strings.Contains(doc.Failures[1], "echo-64-64, penstock: ") {
				t.Errorf("failures: %q", doc.Failures)
			}
			if !strings.Contains(told, want) {
				t.Errorf("reported %q", told)
			}
			for _, s := range doc.Scenarios {
				for _, c := range s.Cells {
					if lost := c.Contestant == "penstock"; lost != strings.Contains(c.Failed, want) || lost == (c.Figures != nil) {
						t.Errorf("%s, %s: failed %q, figures %v", s.Name, c.Contestant, c.Failed, c.Figures)
					}
				}
			}
		})
	}
}

func TestSlabThatMovesByItselfDoesNotCount(t *testing.T) {
	for _, x := range []struct {
		before, with, after int64
		steady              bool
	}{
		{1000, 1400, 1000, true},
		{1000, 1400, 1100, true},
		{1000, 1400, 1101, false},
		{1000, 1400, 899, false},
		{1000, 1000, 1000, false}, // sessions take some memory
		{1000, 600, 1000, false},
	} {
		idle, why := bench.Grown(x.before, x.with, x.after)
		if idle.SlabBytes.Known() != x.steady || (why == "") != x.steady || x.steady && idle.SlabBytes != 400 {
			t.Errorf("%+v: %v, %q", x, idle.SlabBytes, why)
		}
	}
}

// unspliced returns an HAProxy that is configured to splice and does not.
func unspliced(t *testing.T) map[string]string {
	t.Helper()
	k := kind(t, "haproxy-splice-1")
	if err := k.Available(t.Context(), new(contestant.Setting)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "haproxy")
	text := "#!/bin/sh\nsed -i '/option splice/d' haproxy.cfg\nPATH=$PATH:/usr/sbin\nexec haproxy \"$@\"\n"
	must.Do(t, os.WriteFile(path, []byte(text), 0o755))
	return map[string]string{"haproxy": path}
}

// TestWhoShouldSpliceAndDoesNotIsVoid: that holds for all workloads, and also for an interrupted
// run.
func TestWhoShouldSpliceAndDoesNotIsVoid(t *testing.T) {
	for _, scenario := range []string{"bulk-1", "own pipes", "idle", "interrupted"} {
		for name, binaries := range map[string]map[string]string{"splices": nil, "does not": unspliced(t)} {
			t.Run(scenario+" "+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancelCause(t.Context())
				workload, peer := scenario, "haproxy-splice-1"
				switch scenario {
				case "interrupted":
					workload = "bulk-8"
				case "own pipes":
					workload, peer = "bulk-8", "haproxy-splice-1-defaults"
				}
				r := small(t, faultNone, []string{workload}, peer)
				r.Rounds, r.Binaries = 1, binaries
				doc, enough := new(report.Document), errors.New("enough")
				err := r.Do(ctx, doc, func(s bench.Step) {
					if scenario == "interrupted" && s.Trial != nil && s.Trial.Contestant == peer {
						cancel(enough)
					}
				})
				if scenario == "interrupted" && !errors.Is(err, enough) || scenario != "interrupted" && err != nil {
					t.Fatal(err)
				}
				c := doc.Scenarios[0].Cells[1]
				if void := binaries != nil; c.Failed != "" || void != (c.Void != "") || void && c.Figures != nil {
					t.Errorf("%+v", c)
				}
				told := slices.ContainsFunc(c.Notes, func(n string) bool { return strings.HasPrefix(n, "spliced ") && strings.Contains(n, " % of its bytes") })
				if told != (binaries == nil && strings.HasPrefix(workload, "bulk-")) {
					t.Errorf("notes: %q", c.Notes)
				}
			})
		}
	}
}

func TestABaselineThatFailsCostsTheRatios(t *testing.T) {
	r := small(t, faultDies, []string{"bulk-8"}, "direct", "io.Copy")
	r.Binaries = map[string]string{"haproxy": "/bin/true"}
	r.Baseline = kind(t, "haproxy-1") // not Penstock: its failures are always the run's
	doc := do(t, r, nil)
	if len(doc.Failures) != 1 || !strings.HasPrefix(doc.Failures[0], "bulk-8, haproxy-1: ") {
		t.Errorf("failures %q", doc.Failures)
	}
	for _, c := range doc.Scenarios[0].Cells {
		f, ok := c.Figures["gigabytes_per_second"]
		if ok != (c.Contestant != "haproxy-1") || f.Ratio != nil {
			t.Errorf("%s: %+v, %+v", c.Contestant, f, f.Ratio)
		}
	}
}

func TestSystemCallsAreCounted(t *testing.T) {
	r := small(t, faultNone, []string{"echo-64-64"}, "penstock", "direct")
	r.Calls, r.Rounds = true, 1
	doc := do(t, r, nil)
	if doc.Method.SystemCallCounter == "" {
		if doc.Method.SystemCallsMissing == "" {
			t.Error("the reason why system calls were not counted is missing")
		}
		t.Skipf("nothing counts system calls here: %s", doc.Method.SystemCallsMissing)
	}
	for _, c := range doc.Scenarios[0].Cells {
		calls, ok := c.Figures["system_calls_per_request"]
		if want := c.Contestant != "direct" && c.Role != report.Again; ok != want || ok && !(calls.Median >= 1) {
			t.Errorf("%s %s: %+v", c.Contestant, c.Role, calls)
		}
	}
}

const (
	// childName is the first argument of a test binary that runs as a child.
	childName = "penstock-bench-test"
	// faultKey names the environment variable with the fault of the proxy.
	faultKey = "PENSTOCK_BENCH_TEST_FAULT"
)

// The faults of a proxy.
const (
	faultNone  = ""
	faultMute  = "does not start"
	faultLiar  = "says it moved a byte less"
	faultLoser = "says it lost a byte"
	faultDies  = "ends when asked what it has done"
)

func TestMain(m *testing.M) { child.Main(m, childName, run) }

func run(args []string) error {
	if args[0] == "part" {
		return bench.RunPart(context.Background(), args[1], args[2:], os.Stdin, os.Stdout)
	}
	if os.Getenv(faultKey) == faultMute {
		return errors.New(`{"time":"x","level":"ERROR","msg":"no such luck"}`)
	}
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return standin.Proxy(ctx, args[1:], 100, account)
}

// account commits the requested fault once there are bytes to misreport.
func account(s *admin.Summary) {
	if s.Connections.Accepted == 0 {
		return
	}
	switch os.Getenv(faultKey) {
	case faultLiar:
		s.Bytes.EndpointToClient.Copied--
	case faultLoser:
		s.Lost++
	case faultDies:
		fmt.Fprintln(os.Stderr, "so long")
		os.Exit(3)
	}
}

// program returns this test binary, whose proxies have a fault.
func program(fault string) contestant.Program {
	return contestant.Program{
		Path: "/proc/self/exe", Name: childName,
		Part: []string{"part"}, Proxy: []string{"proxy"},
		Env: append(os.Environ(), faultKey+"="+fault),
	}
}

func kind(t *testing.T, name string) *contestant.Kind {
	t.Helper()
	return must.Get(contestant.Named(name))(t)
}

func TestChooseScenarios(t *testing.T) {
	for names, want := range map[string]string{
		"":                 "",
		"idle bulk-8":      "bulk-8 idle",
		"bulk bulk-8":      "bulk-1 bulk-8 bulk-64",
		"echo-64":          "echo-64-1 echo-64-64",
		"echo":             "echo-64-1 echo-64-64 echo-4096-1 echo-4096-64",
		"echo-4096 bulk-1": "bulk-1 echo-4096-1 echo-4096-64",
	} {
		list := must.Get(bench.ChooseScenarios(strings.Fields(names)))(t)
		var got []string
		for _, s := range list {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", names, got, want)
		}
	}
	for _, name := range []string{"bul", "bulk-", "", "echo-6", "Bulk"} {
		if _, err := bench.ChooseScenarios([]string{name}); err == nil || !strings.Contains(err.Error(), "echo-4096-64, connections") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
