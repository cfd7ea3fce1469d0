package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

const (
	// childName is the first argument of a test binary that runs as a child.
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
	case faultHeld:
		s.Connections.Active++
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

// rig starts a rig whose proxies have a fault.
func rig(t *testing.T, fault string) *bench.Rig {
	t.Helper()
	dir := sockets.Dir(t)
	r, err := bench.NewRig(t.Context(), network.One(process.NewGroup()), contestant.Setting{Program: program(fault), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// kind returns the contestant of a name.
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
		c, err := r.Start(t.Context(), kind(t, name))
		if err != nil {
			t.Fatal(err)
		}
		pair[i] = c
	}
	return pair[0], pair[1]
}

// pid returns the process id of the contestant's first process.
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

// TestTrials: the load and the contestant count the same bytes, in each trial and in all.
func TestTrials(t *testing.T) {
	r := rig(t, faultNone)
	penstock, rival := pair(t, r)
	var moved int64
	for range 2 {
		for _, plan := range plans(300 * time.Millisecond) {
			for _, c := range []*contestant.Contestant{penstock, rival} {
				var last load.Event
				x, err := r.Trial(t.Context(), c, plan, func(e load.Event) error { last = e; return nil })
				if err != nil {
					t.Fatal(err)
				}
				checkTrial(t, &x)
				if last.Result == nil {
					t.Errorf("%s, %s: the last event has no result", x.Contestant, x.Plan.Workload)
				}
				if c == penstock {
					moved += x.Result.Received + x.Result.Sent
				}
			}
		}
	}
	if a := r.Account(penstock); moved != a.ClientToEndpoint+a.EndpointToClient {
		t.Errorf("the load counts %d bytes, the last account has %+v", moved, a)
	}
	if err := penstock.Stop(time.Minute); err != nil {
		t.Error(err)
	}
}

// checkTrial checks the conditions of each trial that succeeds.
func checkTrial(t *testing.T, x *bench.Trial) {
	t.Helper()
	if x.Result.Received == 0 || x.Usage.CPU <= 0 || x.Usage.Switches <= 0 {
		t.Errorf("%s, %s: %+v", x.Contestant, x.Plan.Workload, x)
	}
}

// ignore is a watch that wants nothing.
func ignore(load.Event) error { return nil }

func TestTrialDoesNotBelieveAWrongAccount(t *testing.T) {
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
			var err error
			for _, plan := range plans(10 * time.Millisecond) {
				if _, err = r.Trial(t.Context(), penstock, plan, ignore); err != nil {
					break
				}
			}
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
		_, err := r.Start(t.Context(), kind(t, "penstock"))
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
				time.AfterFunc(200*time.Millisecond, func() { _ = syscall.Kill(id, syscall.SIGKILL) })
				_, err := r.Trial(t.Context(), victim, plan, func(load.Event) error { return nil })
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
	time.AfterFunc(200*time.Millisecond, func() { cancel(reason) })
	_, err := r.Trial(ctx, penstock, plans(time.Minute)[0], func(load.Event) error { return nil })
	if !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	r.Close()
	for name, id := range ids {
		if err := syscall.Kill(id, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s still exists: %v", name, err)
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
