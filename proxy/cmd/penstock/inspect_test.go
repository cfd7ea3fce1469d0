package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/evidence"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// TestWriteWhy: the verdict comes first, also if another has a larger share, and the advice. Endpoints have their names.
func TestWriteWhy(t *testing.T) {
	t.Parallel()

	var out strings.Builder
	err := writeWhy(&out, &admin.Why{
		Count: 30, Adopted: 4, Verdict: "endpoint_network", Advice: "look there", Shares: map[string]float64{"endpoint_network": 0.28, "client": 0.72},
		Verdicts: map[string]int64{"endpoint_network": 20, "client": 10},
		Most:     &admin.EndpointWhy{Upstream: "app\x1b", Endpoint: "10.0.0.2:80", Name: "two", Sessions: 17, Limited: 16, Share: 0.92},
		Endpoints: []admin.EndpointWhy{
			{Upstream: "app\x1b", Endpoint: "10.0.0.2:80", Name: "two", Sessions: 17, Limited: 16, Share: 0.92, Shares: map[string]float64{"endpoint_network": 0.95, "idle": 0.05}},
			{Upstream: "app", Endpoint: "10.0.0.3:80", Name: "10.0.0.3:80", Sessions: 13, Limited: 4, Share: 0.08, Shares: map[string]float64{"endpoint_network": 0.1, "idle": 0.9}},
		},
		Sessions: []admin.SessionWhy{{Client: "10.0.0.1:5", Endpoint: "10.0.0.2:80", Name: "two", Verdict: "endpoint_network", Why: "lost\x1b"}},
	})
	want := `endpoint_network: cause of 28 % of the time, 30 sessions
4 of these sessions were adopted from another process: only the time in the lane is known
endpoint two (10.0.0.2:80) of app\x1b: 16 of 17 sessions, 92 % of that time
look there

endpoint_network  28 % of the time  main cause in 20 sessions
client            72 % of the time  main cause in 10 sessions

waits for endpoint_network, by endpoint  sessions  of all waits  of the endpoint's time
endpoint two (10.0.0.2:80) of app\x1b    16 of 17  92 %          95 %
endpoint 10.0.0.3:80 of app              4 of 13   8 %           10 %

10.0.0.1:5 -> two (10.0.0.2:80)  endpoint_network
    lost\x1b
... and 29 more
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestEndpointsHaveNames: a list of sessions has the name of an endpoint beside its address.
func TestEndpointsHaveNames(t *testing.T) {
	t.Parallel()

	var out strings.Builder
	err := writeSessions(&out, &admin.Sessions{Sessions: []admin.Session{
		{Client: "c1", Endpoint: "10.0.0.2:80", Name: "two"},
		{Client: "c2", Endpoint: "10.0.0.3:80", Name: "10.0.0.3:80"},
		{Client: "c3"},
		{Client: "c4", Endpoint: "10.0.0.4:5432", Name: "db.example:5432"},
	}})
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"c1 - - two (10.0.0.2:80)", "c2 - - 10.0.0.3:80", "c3 - - -", "c4 - - db.example:5432 (10.0.0.4:5432)"} {
		if line := strings.Join(strings.Fields(lines[i+1]), " "); err != nil || !strings.HasPrefix(line, want+" ") {
			t.Errorf("%v, %q, want %q", err, line, want)
		}
	}
}

// TestTraceCommand: the process of an admin socket, or any other, is traced, or the capabilities
// that this takes are named.
func TestTraceCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	admin := []string{"--admin", "unix:" + filepath.Join(r.dir, "admin.sock")}
	want := "waiting for a CPU"
	if refused, ok := errors.AsType[*kerneltrace.PrivilegeError](kerneltrace.Allowed()); ok {
		want = "because this process lacks " + strings.Join(refused.Missing, " and ")
	}
	for _, target := range [][]string{admin, {"--pid", strconv.Itoa(os.Getpid())}} {
		stdout, _ := r.tells(cli.ExitOK, append([]string{"trace", "--for", "300ms"}, target...)...)
		if !strings.Contains(stdout, want) || !strings.HasPrefix(stdout, "process "+strconv.Itoa(os.Getpid())) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	stdout, _ := r.tells(cli.ExitOK, append([]string{"trace", "--for", "100ms", "--json"}, admin...)...)
	var report evidence.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Processes) == 0 || report.Summary == "" {
		t.Errorf("%v: %s", err, stdout)
	}
	r.tells(cli.ExitUsage, "trace", "--for", "0")
	r.tells(cli.ExitUsage, "trace", "--pid", "1", "--cgroup", "/sys/fs/cgroup")
	if _, stderr := r.tells(cli.ExitError, "trace", "--pid", "4194304"); !strings.Contains(stderr, "there is no process 4194304: penstock runs as ") && !strings.Contains(stderr, "there is no process 4194304, and penstock does not run") {
		t.Error(stderr)
	}
	if _, stderr := r.tells(cli.ExitError, "trace", "--cgroup", "/nosuch"); !strings.Contains(stderr, "there is no cgroup /nosuch: write its directory") {
		t.Error(stderr)
	}
}

func isProfile(t *testing.T, text string) {
	t.Helper()
	p, err := profile.ParseData([]byte(text))
	if err == nil {
		err = p.CheckValid()
	}
	must(t, err)
}

// TestProfileCommand: the profile is for pprof, of the running process by the Go runtime or by perf events, or of any other one.
func TestProfileCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	at := "unix:" + filepath.Join(r.dir, "admin.sock")
	stdout, stderr := r.tells(cli.ExitOK, "profile", "--admin", at, "--for", "1s", "--no-kernel")
	isProfile(t, stdout)
	if !strings.Contains(stderr, "no frames of the kernel (--no-kernel)") {
		t.Errorf("it says %q, not that frames are missing", stderr)
	}
	file := filepath.Join(r.dir, "cpu.pprof")
	if _, stderr := r.tells(cli.ExitOK, "profile", "--admin", at, "--for", "1s", "-o", file); os.Geteuid() == 0 && strings.Contains(stderr, "no frames") || !strings.Contains(stderr, "go tool pprof -http=: "+file) {
		t.Errorf("it says %q", stderr)
	}
	b, err := os.ReadFile(file)
	must(t, err)
	isProfile(t, string(b))
	for _, d := range []string{"0", "1500ms", "2m"} {
		r.tells(cli.ExitUsage, "profile", "--admin", at, "--for", d)
	}
}

// TestProfileOfAProcess: a process is profiled that is not asked for its status.
func TestProfileOfAProcess(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := call("profile", "--pid", strconv.Itoa(os.Getpid()), "--for", "1s")
	switch {
	case code != cli.ExitOK && os.Geteuid() != 0 && strings.Contains(stderr, "permission denied"):
		t.Skip("kernel.perf_event_paranoid does not let this user sample the kernel:", stderr)
	case code != cli.ExitOK:
		t.Fatal(code, stderr)
	}
	isProfile(t, stdout)
	if code, _, stderr := call("profile", "--pid", "4194304", "--for", "1s"); code != cli.ExitError || !strings.Contains(stderr, "there is no process 4194304") {
		t.Errorf("no process: %d, %q", code, stderr)
	}
}

// TestDoctorRunningLane: the lane of a process is a check, with the reason that sessions stay in user space, or end with the process.
func TestDoctorRunningLane(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		of    *admin.Lane
		state doctor.State // "": no check
		found string
	}{
		"none":        {nil, "", ""},
		"not wanted":  {&admin.Lane{State: admin.LaneUnavailable}, "", ""},
		"on":          {&admin.Lane{State: admin.LaneOn, Wanted: true, Active: 3, Most: 64}, doctor.OK, "on; 3 of 64 sessions in the lane"},
		"opening":     {&admin.Lane{State: admin.LaneOpening, Wanted: true}, doctor.OK, "opening"},
		"off":         {&admin.Lane{State: admin.LaneOff, Wanted: true}, doctor.Degraded, "off"},
		"busy":        {&admin.Lane{State: admin.LaneBusy, Wanted: true, Why: "device lo"}, doctor.Degraded, "busy; 0 of 0 sessions in the lane; device lo"},
		"unavailable": {&admin.Lane{State: admin.LaneUnavailable, Wanted: true, Why: "CAP_BPF"}, doctor.Degraded, "CAP_BPF"},
		"pins":        {&admin.Lane{State: admin.LaneOn, Wanted: true, PinsProblem: "2 of 5 files are missing"}, doctor.Degraded, "2 of 5 files are missing"},
	} {
		got, there := checkRunningLane(c.of)
		if there != (c.state != "") || got.State != c.state || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v, %v", name, got, there)
		}
		if there && (got.State == doctor.OK) != (len(got.Mend) == 0) {
			t.Errorf("%s: what mends it is %q", name, got.Mend)
		}
	}
}

// TestNotesOfTheKilled: a process that starts removes the notes of processes of its user that were killed. It keeps the notes of
// others, of processes that run, and of processes that answer: they may run in another PID namespace.
func TestNotesOfTheKilled(t *testing.T) {
	t.Parallel()

	runtime := t.TempDir()
	dir := filepath.Join(runtime, "penstock")
	must(t, os.Mkdir(dir, 0o700))
	const killed = 1 << 22 // beyond the largest number of a process
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(t, err)
	defer l.Close()
	note := func(name, address string, pid int) string {
		name = filepath.Join(dir, name+"-00000000.admin")
		must(t, os.WriteFile(name, fmt.Appendf(nil, "%s\n%d\n", address, pid), 0o644))
		return name
	}
	gone := "unix:" + filepath.Join(dir, "gone")
	dead, kept := note("dead", gone, killed), []string{note("runs", gone, os.Getpid()), note("answers", "unix:"+l.Addr().String(), killed)}
	if os.Geteuid() == 0 {
		kept = append(kept, note("other", gone, killed))
		must(t, os.Chown(kept[2], 12345, 12345))
	}
	env := func(name string) (string, bool) {
		return map[string]string{"XDG_RUNTIME_DIR": runtime}[name], name == "XDG_RUNTIME_DIR"
	}
	must(t, writeNote(env, "/etc/penstock.yaml", ""))
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note of the killed process: %v", err)
	}
	for _, name := range kept {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

// TestNoteThatIsAPipe: a note that another user has replaced by a pipe does not hold up a command.
func TestNoteThatIsAPipe(t *testing.T) {
	t.Parallel()

	name := filepath.Join(t.TempDir(), "note")
	must(t, syscall.Mkfifo(name, 0o600))
	read := make(chan string, 1)
	go func() {
		at, _ := readNote(name)
		read <- at
	}()
	select {
	case at := <-read:
		if at != "" {
			t.Errorf("it has %q", at)
		}
	case <-time.After(condition.Patience):
		t.Error("the command hangs")
		if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil { // the read ends
			f.Close()
		}
	}
}
