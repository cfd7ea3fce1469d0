package traffic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// flow, summary: the last line of penstock proxy --log json, and a part of its status.
type flow struct{ Spliced, Copied int64 }

func (f flow) total() int64 { return f.Spliced + f.Copied }

type summary struct {
	Connections struct{ Accepted, Active, Refused int64 }
	Bytes       struct {
		ClientToEndpoint flow `json:"client_to_endpoint"`
		EndpointToClient flow `json:"endpoint_to_client"`
	}
	Lost      int64
	Fallbacks map[string]int64
	Pipes     struct{ Made, Reused, Leased, Idle int64 }
}

// A proxy is a running penstock proxy.
type proxy struct {
	addr      string // where it listens on loopback
	cmd       *exec.Cmd
	admin     *admin.Client
	summaries chan summary
	exited    chan struct{} // closed once err is set
	err       error
	log       software.Output
}

// startProxy runs penstock proxy on loopback, and at the address of a --listen among flags, in
// front of target. It returns once connections are accepted. The test must call stop.
func startProxy(t *testing.T, target string, flags ...string) *proxy {
	t.Helper()
	dir := sockets.Dir(t)
	socket := "unix:" + dir + "/admin"
	client, err := admin.NewClient(socket)
	must(t, err)
	args := append([]string{"proxy", "--log", "json", "--listen", "127.0.0.1:0", "--to", target, "--admin", socket}, flags...)
	p := &proxy{
		admin:     client,
		cmd:       exec.Command(binary, args...),
		summaries: make(chan summary, 8),
		exited:    make(chan struct{}),
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	stderr, err := p.cmd.StderrPipe()
	must(t, err)
	pipequota.Share(t)
	must(t, p.cmd.Start())

	listening := make(chan string, len(flags)+1)
	var readers sync.WaitGroup
	readers.Go(func() { p.readLog(stderr, listening) })
	readers.Go(func() { p.readSummaries(stdout) })
	go func() {
		readers.Wait()
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("log of penstock %s:\n%s", strings.Join(args, " "), p.log.String())
		}
	})

	for n := strings.Count(strings.Join(args, " "), "--listen "); n > 0; n-- {
		select {
		case addr := <-listening:
			if !strings.HasPrefix(addr, "unix:") {
				p.addr = addr
			}
		case <-p.exited:
			t.Fatalf("penstock ended before it listened: %v", p.err)
		case <-time.After(software.Patience):
			t.Fatalf("penstock does not listen after %v", software.Patience)
		}
	}
	return p
}

func (p *proxy) readLog(r io.Reader, listening chan<- string) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fmt.Fprintln(&p.log, lines.Text())
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			listening <- line.Address
		}
	}
}

func (p *proxy) readSummaries(r io.Reader) {
	for objects := json.NewDecoder(r); ; {
		var s summary
		switch err := objects.Decode(&s); err {
		case nil:
			p.summaries <- s
		case io.EOF:
			return
		default:
			fmt.Fprintf(&p.log, "stdout is not a sequence of JSON objects: %v\n", err)
			io.Copy(&p.log, io.MultiReader(objects.Buffered(), r))
			return
		}
	}
}

// hostPort returns the two halves of the address that clients connect to.
func (p *proxy) hostPort(t *testing.T) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(p.addr)
	must(t, err)
	return host, port
}

// summary asks the running proxy for its summary.
func (p *proxy) summary(t *testing.T) summary {
	t.Helper()
	st, err := p.admin.Status(t.Context())
	must(t, err)
	text, err := json.Marshal(st)
	must(t, err)
	var s summary
	must(t, json.Unmarshal(text, &s))
	return s
}

func (p *proxy) nextSummary(t *testing.T) summary {
	t.Helper()
	select {
	case s := <-p.summaries:
		return s
	case <-time.After(software.Patience):
		t.Fatalf("no summary after %v", software.Patience)
		panic("unreachable")
	}
}

// stop ends the proxy by SIGTERM, and checks the conditions of every clean end: exit status 0,
// nothing refused, nothing active, no pipe leased.
func (p *proxy) stop(t *testing.T) summary {
	t.Helper()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.exited:
	case <-time.After(software.Patience):
		t.Fatalf("penstock still runs %v after SIGTERM", software.Patience)
	}
	if p.err != nil {
		t.Fatalf("penstock after SIGTERM: %v", p.err)
	}
	s := p.nextSummary(t)
	t.Logf("summary: %+v", s)
	if s.Connections.Accepted == 0 || s.Connections.Active != 0 || s.Connections.Refused != 0 {
		t.Errorf("connections %+v, want some accepted, none active, none refused", s.Connections)
	}
	if s.Pipes.Leased != 0 {
		t.Errorf("%d pipes leased after the last session", s.Pipes.Leased)
	}
	return s
}

func (s summary) spliced() int64 {
	return s.Bytes.ClientToEndpoint.Spliced + s.Bytes.EndpointToClient.Spliced
}

// clean checks that no byte was lost and that no session fell back.
func (s summary) clean(t *testing.T) {
	t.Helper()
	if s.Lost != 0 {
		t.Errorf("%d bytes lost", s.Lost)
	}
	for reason, n := range s.Fallbacks {
		switch {
		case n == 0:
		case reason == "budget" && os.Geteuid() != 0: // whose quota of pipes tests of other processes share
			t.Logf("%d fallbacks for reason %q", n, reason)
		default:
			t.Errorf("%d fallbacks for reason %q", n, reason)
		}
	}
}

// descriptors returns the proxy's open descriptors, as the links of /proc (proc_pid_fd(5)), once it
// does not read the kernel's counters of its threads, which it does for a moment every while.
func (p *proxy) descriptors(t *testing.T) (links []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	if !software.Eventually(func() bool {
		entries, err := os.ReadDir(dir)
		must(t, err)
		links = links[:0]
		for _, e := range entries {
			if link, err := os.Readlink(dir + "/" + e.Name()); err == nil { // else closed meanwhile
				links = append(links, link)
			}
		}
		return !slices.ContainsFunc(links, func(link string) bool { return strings.HasPrefix(link, "/proc/") })
	}) {
		t.Fatalf("the proxy keeps a file of /proc open: %v", links)
	}
	return links
}

// kindOf is "socket", "pipe", "anon_inode", or a path.
func kindOf(link string) string {
	kind, _, _ := strings.Cut(link, ":")
	return kind
}

func byKind(links []string) map[string]int {
	kinds := make(map[string]int)
	for _, link := range links {
		kinds[kindOf(link)]++
	}
	return kinds
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
