package health_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// rig is a Checker that probes as often as it may, and its reports.
type rig struct {
	*health.Checker
	mu   sync.Mutex
	told []health.Transition
}

func newRig(t *testing.T) *rig {
	r := new(rig)
	k := health.NewScheduler(&health.SchedulerConfig{Report: func(tr health.Transition) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, tr)
	}})
	r.Checker = health.NewChecker(k, nil)
	t.Cleanup(func() { r.Close(); k.Close() })
	return r
}

// watch adds an endpoint to the Checker.
func (r *rig) watch(t *testing.T, name string, cfg *health.ProbeConfig, timeout time.Duration) *target {
	t.Helper()
	p, err := health.NewProbe(cfg)
	if err != nil {
		t.Fatal(err)
	}
	told := new(target)
	r.Watch(name, told, &health.CheckConfig{
		Probe: p, Interval: 20 * time.Millisecond, FastInterval: 10 * time.Millisecond, Timeout: timeout, Jitter: 0.2, Rise: 2, Fall: 2,
	})
	return told
}

// last returns the cause of an endpoint's state.
func (r *rig) last(name string) (cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tr := range r.told {
		if tr.Subject == name {
			cause = tr.Cause
		}
	}
	return cause
}

// TestRoleCheck has two databases that change places. A server beside each of them reports
// over HTTP whether it is the primary, as Patroni does.
func TestRoleCheck(t *testing.T) {
	r := newRig(t)
	var primary atomic.Int32
	var told [2]*target
	for i := range told {
		role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path != "/primary" || int(primary.Load()) != i {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, `{"state": "running"}`)
		}))
		t.Cleanup(role.Close)
		_, port, _ := net.SplitHostPort(role.Listener.Addr().String())
		n, _ := strconv.Atoi(port)
		told[i] = r.watch(t, strconv.Itoa(i), &health.ProbeConfig{
			Address: serve(t, wait), Port: n, HTTP: &health.HTTPProbe{Path: "/primary", Body: []byte("running")},
		}, patient)
	}
	for _, now := range []int32{0, 1, 0} {
		primary.Store(now)
		eventually(t, func() bool { return !told[now].ill.Load() && told[1-now].ill.Load() })
	}
	eventually(t, func() bool {
		return strings.HasPrefix(r.last("1"), "2 checks in a row failed, the last: status 503 instead of 200") &&
			r.last("0") == "2 checks in a row succeeded"
	})
}

// TestRedis checks a real server, which is stopped, continued, and killed.
func TestRedis(t *testing.T) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not installed (Debian package redis-server)")
		}
		t.Skip("redis-server is not installed (Debian package redis-server)")
	}
	address, server := redis(t, program)
	r := newRig(t)
	ping := r.watch(t, "ping", &health.ProbeConfig{Address: address, Send: []byte("PING\r\n"), Expect: []byte("+PONG")}, time.Second)
	connect := r.watch(t, "connect", &health.ProbeConfig{Address: address}, time.Second)
	begun := r.Stats().Probes
	eventually(t, func() bool { return r.Stats().Probes > begun+20 })
	if ping.told.Load() != 0 || connect.told.Load() != 0 {
		t.Fatalf("a healthy server is reported: %q, %q", r.last("ping"), r.last("connect"))
	}
	signal(t, server, syscall.SIGSTOP)
	eventually(t, ping.ill.Load)
	eventually(t, func() bool {
		return strings.Contains(r.last("ping"), "no success within 1s: read the answer: i/o timeout")
	})
	if connect.ill.Load() {
		t.Error("the kernel accepts for a process that is stopped, but the check that only connects fails:", r.last("connect"))
	}
	signal(t, server, syscall.SIGCONT)
	eventually(t, func() bool { return !ping.ill.Load() })
	signal(t, server, syscall.SIGKILL)
	eventually(t, func() bool { return ping.ill.Load() && connect.ill.Load() })
	eventually(t, func() bool { return strings.HasSuffix(r.last("connect"), "connect: connection refused") })
}

func signal(t *testing.T, p *os.Process, s os.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// redis runs a server until the test ends.
func redis(t *testing.T, program string) (address string, server *os.Process) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.7.2:0") // its ports are not local ports of any connect
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(program, "--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, exited := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(exited)
		announce := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				announce()
			}
		}
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	select {
	case <-ready:
	case <-exited:
		t.Fatal("redis-server ended before it served")
	case <-time.After(patient):
		t.Fatal("redis-server does not serve")
	}
	return address, cmd.Process
}
