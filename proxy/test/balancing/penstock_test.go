package balancing

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/software"
)

// A status is the admin socket's status, as far as these tests use it.
type status struct {
	Generation  int
	Connections counts
	Counters    map[string]int64
	Listeners   []struct {
		Name        string
		Addresses   []string
		Connections counts
		Reasons     map[string]int64 `json:"refused_by"`
		Protocols   map[string]int64
		Mirrors     mirrors
	}
	Upstreams []struct {
		Name      string
		Endpoints []endpoint
	}
}

type mirrors struct {
	Running                   int64
	Ended                     map[string]int64
	Teed, Copied, Undelivered int64
}

type counts struct{ Accepted, Active, Refused int64 }

type endpoint struct {
	Name, State, Why        string
	Active, Total, Failures int64
}

// A summary is the line printed at the end.
type summary struct {
	Connections counts
	Bytes       struct {
		ClientToEndpoint flow `json:"client_to_endpoint"`
		EndpointToClient flow `json:"endpoint_to_client"`
	}
	Lost  int64
	Pipes struct{ Leased int64 }
}

type flow struct{ Spliced, Copied int64 }

// A penstock is a running penstock run.
type penstock struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string // the directory of its configuration, in which it runs
	stdout software.Output
	log    software.Output
	exited chan struct{} // closed once err is set
	err    error
}

// start runs penstock until the end of the test with a configuration, to which it adds the
// address of the admin socket, and with further flags. It returns once penstock serves.
func start(t *testing.T, configuration string, flags ...string) *penstock {
	t.Helper()
	p := &penstock{t: t, dir: software.Dir(t, nil), exited: make(chan struct{})}
	p.write(configuration)
	p.cmd = exec.Command(program, append([]string{"run", "--config", "penstock.yaml", "--log", "json"}, flags...)...)
	p.cmd.Dir = p.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdout = &p.stdout
	stderr, err := p.cmd.StderrPipe()
	must(t, err)
	must(t, p.cmd.Start())
	serving := make(chan struct{})
	go func() {
		defer close(p.exited)
		announce := sync.OnceFunc(func() { close(serving) })
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&p.log, lines.Text())
			if strings.Contains(lines.Text(), `"msg":"starting"`) {
				announce()
			}
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("configuration:\n%s\nlog of penstock:\n%s", configuration, p.log.String())
		}
	})
	select {
	case <-serving:
	case <-p.exited:
		t.Fatalf("penstock ended before it served: %v", p.err)
	case <-time.After(software.Patience):
		t.Fatalf("penstock does not serve after %v", software.Patience)
	}
	return p
}

// write replaces the configuration atomically.
func (p *penstock) write(configuration string) {
	p.t.Helper()
	path := filepath.Join(p.dir, "penstock.yaml")
	must(p.t, os.WriteFile(path+".new", []byte("admin: {bind: \"unix:admin.sock\"}\n"+configuration), 0o600))
	must(p.t, os.Rename(path+".new", path))
}

// reload loads another configuration by SIGHUP, and waits until it is in force.
func (p *penstock) reload(configuration string) {
	p.t.Helper()
	next := p.status().Generation + 1
	p.write(configuration)
	must(p.t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.until(fmt.Sprintf("generation %d is in force", next), func(s *status) bool { return s.Generation == next })
}

// readAgain reloads the configuration, changed each time, while a client runs; the client must
// not fail. It returns the client's output. IDLE in the configuration is replaced by another time
// in each generation. Comments that begin with EXTRA become text in every other one.
func (p *penstock) readAgain(configuration string, client ...string) string {
	p.t.Helper()
	var out, complaints software.Output
	cmd := exec.Command(client[0], client[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &out, &complaints
	must(p.t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for times := 0; ; times++ {
		select {
		case err := <-done:
			if err != nil || times == 0 {
				p.t.Errorf("%s, during %d reloads: %v\n%s", client[0], times, err, complaints.String())
			}
			p.t.Logf("the configuration was reloaded %d times meanwhile", times)
			return out.String()
		default:
			p.reload(variant(configuration, p.status().Generation+1))
		}
	}
}

// variant returns a configuration's variant for a generation.
func variant(configuration string, generation int) string {
	text := strings.ReplaceAll(configuration, "IDLE", fmt.Sprintf("%dm", 10+generation))
	if generation%2 == 0 {
		text = strings.ReplaceAll(text, "# EXTRA ", "")
	}
	return text
}

// status returns the admin socket's status.
func (p *penstock) status() *status {
	p.t.Helper()
	client := http.Client{Timeout: software.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, "admin.sock"))
		},
	}}
	answer, err := client.Get("http://penstock/v1/status")
	must(p.t, err)
	defer answer.Body.Close()
	s := new(status)
	must(p.t, json.NewDecoder(answer.Body).Decode(s))
	return s
}

// until waits until the status meets a condition.
func (p *penstock) until(what string, ok func(*status) bool) {
	p.t.Helper()
	var last *status
	if !software.Eventually(func() bool { last = p.status(); return ok(last) }) {
		p.t.Fatalf("not in time: %s; the status is %+v", what, last)
	}
}

// at returns the address of a listener.
func (p *penstock) at(listener string) (addr, host, port string) {
	p.t.Helper()
	for _, l := range p.status().Listeners {
		if l.Name == listener && len(l.Addresses) > 0 {
			host, port, err := net.SplitHostPort(l.Addresses[0])
			must(p.t, err)
			return l.Addresses[0], host, port
		}
	}
	p.t.Fatalf("there is no listener %s", listener)
	panic("unreachable")
}

// endpoint returns the status of an endpoint.
func (s *status) endpoint(upstream, name string) (e endpoint) {
	for _, u := range s.Upstreams {
		for _, e := range u.Endpoints {
			if u.Name == upstream && e.Name == name {
				return e
			}
		}
	}
	return e
}

// refused returns how many clients of a listener were refused, and the counts by reason.
func (s *status) refused(listener string) (n int64, reasons map[string]int64) {
	for _, l := range s.Listeners {
		if l.Name == listener {
			return l.Connections.Refused, l.Reasons
		}
	}
	return -1, nil
}

// stop ends the program by SIGTERM, checks that it ends cleanly, and returns its summary.
func (p *penstock) stop() (s summary) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.exited:
	case <-time.After(software.Patience):
		p.t.Fatalf("penstock still runs %v after SIGTERM", software.Patience)
	}
	if p.err != nil {
		p.t.Fatalf("penstock after SIGTERM: %v", p.err)
	}
	if err := json.NewDecoder(strings.NewReader(p.stdout.String())).Decode(&s); err != nil && err != io.EOF {
		p.t.Fatal(err)
	}
	if s.Connections.Accepted == 0 || s.Connections.Active != 0 || s.Pipes.Leased != 0 {
		p.t.Errorf("the summary at the end is %+v", s)
	}
	return s
}
