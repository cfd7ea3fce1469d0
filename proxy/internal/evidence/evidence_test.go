package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

func allowed(t *testing.T) {
	t.Helper()
	if refused, ok := errors.AsType[*kerneltrace.PrivilegeError](kerneltrace.Allowed()); ok {
		t.Skip("tracing needs", strings.Join(refused.Missing, " and "))
	}
}

// TestNginx: the resets of clients of another program belong to its listener, and the waits to the
// threads of its worker.
func TestNginx(t *testing.T) {
	allowed(t)
	nginx := software.Need(t, "nginx", "nginx")
	dir := software.Dir(t, nil)
	addr, _, _ := software.Addr(t)
	conf := `daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events {} http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
server { listen ` + addr + `; location / { return 200 "ok"; } } }`
	must(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o644))
	p := software.Service{Command: []string{nginx, "-p", dir, "-c", "nginx.conf"}, Dir: dir, Addr: addr, Stop: syscall.SIGTERM}.Start(t)
	condition.Await(t, "nginx has its worker", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.Pid))
		return err == nil && len(children) > 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Trace(ctx, Target{PIDs: []int{p.Pid}}, func() {
		defer cancel()
		for range 20 {
			resetAfterAnswer(t, addr)
		}
	})
	must(t, err)
	if len(r.Processes) != 2 || !strings.Contains(r.Target, "(nginx) and 1 children") {
		t.Errorf("%q, processes %v", r.Target, r.Processes)
	}
	resets := 0
	for _, e := range r.Events {
		if e.Kind == kerneltrace.ResetReceived && e.Listener == addr && e.Session == e.Remote {
			resets++
		}
	}
	worker := slices.ContainsFunc(r.Threads, func(th Thread) bool { return th.PID == r.Processes[1] && th.Name == "nginx" && th.P99Us > 0 })
	if resets != 20 || !worker || !strings.Contains(r.Summary, "20 × reset-received") || !strings.Contains(r.Summary, "waiting for a CPU") {
		t.Errorf("%d resets, a worker's waits: %v; %s", resets, worker, r.Summary)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "listener "+addr) {
		t.Errorf("%v: %s", err, text.String())
	}
}

// resetAfterAnswer makes a request, reads the answer and resets the connection.
func resetAfterAnswer(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	if _, err2 := c.Read(make([]byte, 1024)); errors.Join(err, err2) != nil {
		t.Error(err, err2)
	}
	_ = c.(*net.TCPConn).SetLinger(0)
}

// trace runs a trace of this process as an ordinary user with some capabilities.
func trace(t *testing.T, capabilities ...uintptr) (r Report) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user with some capabilities")
	}
	target := exec.Command("sleep", "600")
	credential := &syscall.Credential{Uid: 65534, Gid: 65534}
	target.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Pdeathsig: syscall.SIGKILL}
	must(t, target.Start())
	defer func() { _ = target.Process.Kill(); _ = target.Wait() }()
	cmd := exec.Command(privilege.Self)
	cmd.Env = append(os.Environ(), asTracer+"="+strconv.Itoa(target.Process.Pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, AmbientCaps: capabilities, Pdeathsig: syscall.SIGKILL}
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// TestCapabilities: the two suffice, and a lack of either is named, with what is known without.
func TestCapabilities(t *testing.T) {
	for _, c := range []struct {
		has   []uintptr
		lacks []string
	}{
		{[]uintptr{sys.CAP_BPF, sys.CAP_PERFMON}, nil},
		{[]uintptr{sys.CAP_BPF}, []string{"CAP_PERFMON"}},
		{[]uintptr{sys.CAP_PERFMON}, []string{"CAP_BPF"}},
		{nil, []string{"CAP_BPF", "CAP_PERFMON"}},
	} {
		r := trace(t, c.has...)
		if !slices.Equal(r.Lacks, c.lacks) {
			t.Errorf("with capabilities %v: lacks %v, want %v", c.has, r.Lacks, c.lacks)
		}
		if len(c.lacks) > 0 && (!strings.Contains(r.Summary, "because this process lacks "+strings.Join(c.lacks, " and ")) || !strings.Contains(r.Summary, "The kernel's counters say")) {
			t.Errorf("%q", r.Summary)
		}
	}
}

func TestOwners(t *testing.T) {
	o := newOwners()
	o.addStatus(&admin.Status{
		Listeners: []admin.Listener{{Name: "web", Addresses: []string{"[::]:80"}}, {Name: "four", Addresses: []string{"0.0.0.0:81"}}, {Name: "six", Addresses: []string{"[::]:81"}}, {Name: "own", Addresses: []string{"10.0.0.1:80"}}, {Name: "path", Addresses: []string{"/run/s"}}},
		Upstreams: []admin.Upstream{{Name: "shop", Endpoints: []admin.Endpoint{{Name: "a", Address: "10.1.0.1:5432"}}}},
	})
	o.addSessions([]admin.Session{{Client: "10.2.0.1:4000", Listener: "web", Upstream: "shop", Endpoint: "10.1.0.1:5432", Name: "a", EndpointLocal: "10.0.0.2:50000"}})
	at := netip.MustParseAddrPort
	for _, c := range []struct {
		side          kerneltrace.Side
		local, remote string
		want          string
	}{
		{kerneltrace.Accepted, "10.0.0.2:80", "10.2.0.1:4000", "session 10.2.0.1:4000 of listener web"},
		{kerneltrace.Accepted, "10.0.0.1:80", "10.2.0.1:4000", "session 10.2.0.1:4000 of listener own"},
		{kerneltrace.Accepted, "10.0.0.1:81", "10.2.0.1:4000", "session 10.2.0.1:4000 of listener four"},
		{kerneltrace.Accepted, "[fd00::1]:81", "[fd00::2]:4000", "session [fd00::2]:4000 of listener six"},
		{kerneltrace.Connected, "10.0.0.2:40000", "10.1.0.1:5432", "endpoint a (10.1.0.1:5432) of shop"},
		{kerneltrace.Connected, "10.0.0.2:50000", "10.1.0.1:5432", "endpoint a (10.1.0.1:5432) of shop, for 10.2.0.1:4000 of listener web"},
		{kerneltrace.Connected, "10.0.0.2:40000", "10.1.0.9:5432", "connections to 10.1.0.9:5432"},
		{kerneltrace.Unknown, "10.0.0.2:40000", "10.1.0.1:5432", "unmatched"},
	} {
		owner := o.of(c.side, at(c.local), at(c.remote))
		if got := owner.String(); got != c.want {
			t.Errorf("%v %s %s is %q, want %q", c.side, c.local, c.remote, got, c.want)
		}
	}
	if owner := o.of(kerneltrace.Accepted, at("10.0.0.2:80"), at("10.2.0.1:4000")); owner.Name != "a" {
		t.Errorf("the session's endpoint is %+v", owner)
	}
}

func TestReport(t *testing.T) {
	at := netip.MustParseAddrPort
	event := kerneltrace.Event{Kind: kerneltrace.Drop, Side: kerneltrace.Accepted, Local: at("127.0.0.1:80"), Remote: at("127.0.0.1:4000"), Incoming: true, Reason: "socket_rcvbuff", Count: 3, First: 2 * time.Second}
	reading := &kerneltrace.Reading{
		Events: []kerneltrace.Event{event, {Kind: kerneltrace.DeviceStall, Count: 1}}, Lost: 2,
		Threads:   []kerneltrace.Thread{{PID: 1, TID: 1, Histogram: kerneltrace.Histogram{Count: 4, Sum: 2 * time.Millisecond, Max: time.Millisecond}}},
		Unmatched: map[kerneltrace.Kind]uint64{kerneltrace.Retransmit: 7},
	}
	var r Report
	r.Missing = []Missing{{"dql_stall_detected", "not there"}}
	r.build(reading, newOwners(), time.Second)
	if r.Events[0].FirstS != 1 || r.Causes[0].Name != cpuWait || r.Causes[1].Name != "drop (socket_rcvbuff)" {
		t.Errorf("%+v", r)
	}
	var text strings.Builder
	must(t, r.WriteText(&text))
	for _, want := range []string{
		"waiting for a CPU (2ms in all", "3 × drop (socket_rcvbuff), 1 × device-stall; 2 more were lost, because the buffer was full.", "socket_rcvbuff in", "a network device",
		"unmatched events, of other processes or of unknown connections: 7 × retransmit", "not attached to dql_stall_detected: not there",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	b, err := json.Marshal(&r)
	if err != nil || !strings.Contains(string(b), `"unmatched":{"retransmit":7}`) {
		t.Errorf("%s, %v", b, err)
	}
	var back Report
	must(t, json.Unmarshal(b, &back))
	if again, err := json.Marshal(&back); err != nil || string(again) != string(b) {
		t.Errorf("read back it is %s, %v", again, err)
	}
	if err := new(kerneltrace.Kind).UnmarshalText([]byte("none")); err == nil {
		t.Error("an unknown kind is read")
	}
}

// TestSummary: the sentence says that there was no event only if there was none.
func TestSummary(t *testing.T) {
	reset, wait := Cause{Name: "reset", Count: 3}, Cause{Name: cpuWait, Count: 1, Times: Times{TotalUs: 5, P99Us: 5, MaxUs: 5}}
	for want, list := range map[string][]Cause{
		"There was no delay and no event.":        nil,
		"There was no delay; counted: 3 × reset.": {reset},
		"waiting for a CPU (5µs in all, 99 % of 1 took at most 5µs, the longest 5µs); counted: 3 × reset.": {wait, reset},
	} {
		if got := summary(list, 0); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNoProcess(t *testing.T) {
	if _, err := Trace(t.Context(), Target{PIDs: []int{1 << 22}}, func() {}); !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

func TestCounters(t *testing.T) {
	got := make(map[string]int64)
	parseCounters("Tcp: RetransSegs Other OutRsts\nTcp: 5 6\nIp: a\n", got)
	if len(got) != 1 || got["RetransSegs"] != 5 {
		t.Error(got)
	}
	if w, ok := parseSchedstat("100 2000 3\n"); !ok || w.time != 2000 || w.count != 3 {
		t.Error(w, ok)
	}
	if _, ok := parseSchedstat(""); ok {
		t.Error("an empty file has waits")
	}
}

// TestCountsOfNewThreads: a thread may have the number of an earlier one. All its waits count then, and no others.
func TestCountsOfNewThreads(t *testing.T) {
	t.Parallel()

	same, reused := threadID{1, 1}, threadID{1, 2}
	before := &counters{threads: map[threadID]waiting{same: {time.Second, 10}, reused: {time.Second, 10}}}
	after := &counters{threads: map[threadID]waiting{same: {2 * time.Second, 14}, reused: {time.Millisecond, 3}}}
	var r Report
	r.counted(&kerneltrace.PrivilegeError{Err: errors.New("refused")}, before, after)
	if all := r.Causes[0]; all.Count != 7 || all.TotalUs != 1_001_000 {
		t.Errorf("%d waits of %d µs, want 7 of 1001000: %s", all.Count, all.TotalUs, r.Summary)
	}
}
