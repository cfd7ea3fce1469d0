package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/proxy/admin"
)

const (
	// childName is the first argument of a test binary that is to be a child.
	childName = "penstock-bench-test"
	// faultKey names the environment variable with the fault of the proxy.
	faultKey = "PENSTOCK_BENCH_TEST_FAULT"
)

// The faults of a proxy.
const (
	faultNone   = ""
	faultMute   = "does not start"
	faultSilent = "does not start, and does not say why"
	faultLiar   = "says it moved a byte less"
	faultLoser  = "says it lost a byte"
	faultHeld   = "says that a connection is left"
	faultDies   = "ends when asked what it has done"
	faultMeek   = "turns a reset into a clean end"
)

func TestMain(m *testing.M) { child.Main(m, childName, run) }

// run runs a child.
func run(args []string) error {
	if args[0] == "part" {
		return bench.RunPart(context.Background(), args[1], args[2:], os.Stdin, os.Stdout)
	}
	switch os.Getenv(faultKey) {
	case faultMute:
		return errors.New(`{"time":"x","level":"ERROR","msg":"no such luck"}`)
	case faultSilent:
		os.Exit(1)
	case faultMeek:
		return meek(args)
	}
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return standin.Proxy(ctx, args[1:], 100, account)
}

// meek is a proxy that answers like Penstock and forwards like others. Its arguments are those
// of package contestant, in their order.
func meek(args []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := standin.Admin(args[8], func() admin.Summary { return admin.Summary{} }); err != nil {
		return err
	}
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info("listening", "address", l.Addr().String())
	return rival.Serve(context.Background(), l, args[4])
}

// account commits the fault that is asked for, once there is something to lie about.
func account(s *admin.Summary) {
	if s.Connections.Accepted == 0 {
		return
	}
	switch os.Getenv(faultKey) {
	case faultLiar:
		s.Bytes.EndpointToClient.Copied--
	case faultLoser:
		s.Lost++
	case faultHeld:
		s.Connections.Active++
	case faultDies:
		fmt.Fprintln(os.Stderr, "so long")
		os.Exit(3)
	}
}

// program is this test binary, whose proxies have a fault.
func program(fault string) contestant.Program {
	return contestant.Program{
		Path: "/proc/self/exe", Name: childName,
		Part: []string{"part"}, Proxy: []string{"proxy"},
		Env: append(os.Environ(), faultKey+"="+fault),
	}
}

// rig starts a rig whose proxies have a fault.
func rig(t *testing.T, fault string) *bench.Rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "bench-") // with room for a socket: t.TempDir has the test's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r, err := bench.NewRig(t.Context(), process.NewGroup(), bench.PartOrigin, contestant.Setting{Program: program(fault), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// kind is the contestant of that name.
func kind(t *testing.T, name string) *contestant.Kind {
	t.Helper()
	k, err := contestant.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pair adds a Penstock and a rival.
func pair(t *testing.T, r *bench.Rig) (penstock, rival *contestant.Contestant) {
	t.Helper()
	var pair [2]*contestant.Contestant
	for i, name := range []string{"penstock", "io.Copy"} {
		c, err := r.Start(t.Context(), kind(t, name), "")
		if err != nil {
			t.Fatal(err)
		}
		pair[i] = c
	}
	return pair[0], pair[1]
}

// pid is that of the contestant's first process.
func pid(t *testing.T, c *contestant.Contestant) int {
	t.Helper()
	pids, err := c.Pids()
	if err != nil {
		t.Fatal(err)
	}
	return pids[0]
}

func plans(d time.Duration) []load.Plan {
	return []load.Plan{
		{Workload: load.Bulk, Connections: 2, Duration: d, Check: true},
		{Workload: load.Echo, Connections: 2, Size: 64, Duration: d},
	}
}

func TestMeasure(t *testing.T) {
	r := rig(t, faultNone)
	penstock, rival := pair(t, r)
	const rounds = 2
	var order, told []string
	trials, err := r.Measure(t.Context(), bench.Series{
		Rounds: rounds, Plans: plans(300 * time.Millisecond), Contestants: []*contestant.Contestant{penstock, rival},
	}, func(p bench.Progress) {
		if p.Result != nil {
			told = append(told, fmt.Sprint(p.Trial, " of ", p.Trials, " ", p.Round, " ", p.Plan.Workload, " ", p.Contestant))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var received, moved int64
	for i, x := range trials {
		order = append(order, fmt.Sprint(i, " of ", len(trials), " ", x.Round, " ", x.Plan.Workload, " ", x.Contestant))
		checkTrial(t, &x)
		if x.Contestant == penstock.Name {
			received += x.Result.Received + x.Result.Sent
			moved += x.Summary.Bytes.EndpointToClient.Copied + x.Summary.Bytes.EndpointToClient.Spliced +
				x.Summary.Bytes.ClientToEndpoint.Copied + x.Summary.Bytes.ClientToEndpoint.Spliced
		}
	}
	want := []string{
		"0 of 8 0 bulk penstock", "1 of 8 0 bulk io.Copy", "2 of 8 0 echo penstock", "3 of 8 0 echo io.Copy",
		"4 of 8 1 bulk io.Copy", "5 of 8 1 bulk penstock", "6 of 8 1 echo io.Copy", "7 of 8 1 echo penstock",
	}
	for name, got := range map[string][]string{"trials": order, "progress": told} {
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	whole := bench.Both(r.Account(penstock).Summary)
	if moved != received || whole.Spliced+whole.Copied != received {
		t.Errorf("the load counts %d bytes, the trials %d, the last summary %+v", received, moved, whole)
	}
	if err := penstock.Stop(time.Minute); err != nil {
		t.Error(err)
	}
}

// checkTrial checks the conditions of each trial that succeeds.
func checkTrial(t *testing.T, x *bench.Trial) {
	t.Helper()
	if x.Result.Received == 0 || x.Usage.CPU <= 0 || x.Usage.Switches <= 0 || x.Pipes < 0 {
		t.Errorf("%s, %s: %+v", x.Contestant, x.Plan.Workload, x)
	}
	if (x.Summary == nil) != (x.Contestant == "io.Copy") {
		t.Errorf("%s: summary %v", x.Contestant, x.Summary)
	}
	if x.Summary != nil && x.Summary.Connections.Accepted != int64(x.Plan.Connections) {
		t.Errorf("%s: %d connections for %d", x.Plan.Workload, x.Summary.Connections.Accepted, x.Plan.Connections)
	}
}

func TestMeasureDoesNotBelieveAWrongAccount(t *testing.T) {
	for fault, want := range map[string]string{
		faultLiar:  "penstock counts",
		faultLoser: "penstock lost 1 bytes",
		faultHeld:  "still holds 1 connections",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := rig(t, fault)
			penstock, _ := pair(t, r)
			if fault == faultHeld {
				r.Patience = time.Second // for an event that never happens
			}
			_, err := r.Measure(t.Context(), bench.Series{
				Rounds: 1, Plans: plans(10 * time.Millisecond), Contestants: []*contestant.Contestant{penstock},
			}, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

func TestAProxyThatDoesNotStart(t *testing.T) {
	for fault, want := range map[string]string{
		faultMute:   "penstock did not start: no such luck",
		faultSilent: "ended unexpectedly: exit status 1",
	} {
		r := rig(t, fault)
		_, err := r.Start(t.Context(), kind(t, "penstock"), "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAProxyThatDiesInATrial(t *testing.T) {
	for i, name := range []string{"penstock", "io.Copy"} {
		for _, plan := range plans(time.Minute) {
			t.Run(fmt.Sprintf("%s %s", name, plan.Workload), func(t *testing.T) {
				r := rig(t, faultNone)
				penstock, rival := pair(t, r)
				victim := []*contestant.Contestant{penstock, rival}[i]
				id := pid(t, victim)
				_, err := r.Measure(t.Context(), bench.Series{
					Rounds: 1, Plans: []load.Plan{plan}, Contestants: []*contestant.Contestant{victim},
				}, func(bench.Progress) { _ = syscall.Kill(id, syscall.SIGKILL) })
				var ended *process.EndedError
				if !errors.As(err, &ended) || ended.Pid != id || ended.State != "signal: killed" || ended.Said != "" {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

func TestAnInterruptedTrialEndsAtOnce(t *testing.T) {
	r := rig(t, faultNone)
	penstock, rival := pair(t, r)
	reason := errors.New("enough")
	ids := map[string]int{"penstock": pid(t, penstock), "io.Copy": pid(t, rival)}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := r.Measure(ctx, bench.Series{
		Rounds: 1, Plans: plans(time.Minute), Contestants: []*contestant.Contestant{penstock},
	}, func(bench.Progress) { cancel(reason) })
	if !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	r.Close()
	for name, id := range ids {
		if err := syscall.Kill(id, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func TestRunPartWithWrongArguments(t *testing.T) {
	for _, args := range [][]string{
		{"umpire"},
		{contestant.PartRival},
		{contestant.PartRival, "127.0.0.1:1"},
		{contestant.PartRival, "127.0.0.1:1", "by hand"},
		{bench.PartSink},
		{bench.PartSink, "0"},
		{bench.PartSink, "many"},
	} {
		if err := bench.RunPart(t.Context(), args[0], args[1:], new(bytes.Buffer), new(bytes.Buffer)); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
