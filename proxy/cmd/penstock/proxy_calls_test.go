package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/strace"
)

// An exchange is the traffic of one client and its server: a request of 64 B and a reply of 64
// B, and the side that ends it.
type exchange struct {
	name           string
	client, server func(*net.TCPConn) error
	most           float64 // system calls of the proxy
}

// exchanges are those that a proxy meets. If a server replies and closes, its end of file is
// reported together with the reply, and the read shows that nothing is behind it. A client
// that has read the reply closes when nothing is left to be read. Two ends of file then come
// alone, and each takes a read that returns 0 to show that no byte came with it.
var exchanges = []exchange{
	{"the server closes", askUntilEOF, answer, 14},
	{"the client closes", ask, answerUntilEOF, 15},
}

const requestSize = 64

func ask(c *net.TCPConn) error {
	if _, err := c.Write(make([]byte, requestSize)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, requestSize))
	return err
}

func askUntilEOF(c *net.TCPConn) error {
	if err := ask(c); err != nil {
		return err
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("no end of file"), err)
	}
	return nil
}

func answer(c *net.TCPConn) error {
	request := make([]byte, requestSize)
	if _, err := io.ReadFull(c, request); err != nil {
		return err
	}
	_, err := c.Write(request)
	return err
}

func answerUntilEOF(c *net.TCPConn) error {
	if err := answer(c); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// quietPort listens on loopback, on a port that the kernel never chooses for a socket that
// connects, so that the check for a self-connect is not needed.
func quietPort(t *testing.T) net.Listener {
	t.Helper()
	for port := 20000; port < 30000; port++ {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return ln
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Fatal("no port is free")
	panic("unreachable")
}

func serveExchanges(t *testing.T, x *exchange) (addr string) {
	t.Helper()
	ln := quietPort(t)
	sockets.Serve(t, ln, func(c net.Conn) {
		if err := x.server(c.(*net.TCPConn)); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func talk(t *testing.T, x *exchange, addr string, n int) {
	t.Helper()
	var clients sync.WaitGroup
	turns := make(chan struct{}, 20)
	for range n {
		turns <- struct{}{}
		clients.Go(func() {
			defer func() { <-turns }()
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if err := x.client(c.(*net.TCPConn)); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
}

// notPerConnection are the calls that wait for work, which serve as many connections as have
// something to do, and those of Go's runtime. Their number depends on the amount of work at a
// time, and strace slows everything down.
var notPerConnection = map[string]bool{
	"epoll_pwait": true, "epoll_pwait2": true, "futex": true, "nanosleep": true, "sched_yield": true, "tgkill": true,
	"rt_sigreturn": true, "rt_sigprocmask": true, "getpid": true, "madvise": true, "mmap": true, "munmap": true,
	"restart_syscall": true, "clone": true, "clone3": true, "sigaltstack": true, "rseq": true,
	"set_robust_list": true, "sched_getaffinity": true, "pread64": true, "openat": true,
	"getdents64": true, "sched_getattr": true, "sched_setattr": true,
}

// A connection costs a bounded number of system calls. Rules by its source cost none, since
// accept4(2) returns that.
func TestSystemCallsPerConnection(t *testing.T) {
	full.Only(t, "on a busy machine sessions last longer under strace, and get options more")
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			s, _ := stageOf(t)
			testSystemCalls(t, s, &x, "proxy", "--listen", "127.0.0.1:0", "--to", serveExchanges(t, &x), "--loops", "2", "--admin", "unix:admin.sock")
		})
		t.Run(x.name+", by source", func(t *testing.T) {
			s, _ := stageOf(t)
			file := filepath.Join(s.workDir, "penstock.yaml")
			err := os.WriteFile(file, fmt.Appendf(nil, bySource, serveExchanges(t, &x)), 0o600)
			must(t, err)
			testSystemCalls(t, s, &x, "run", "--config", file, "--loops", "2")
		})
	}
}

// bySource is a configuration that needs every client's source, for each reason.
const bySource = `
admin: {bind: "unix:admin.sock"}
listeners:
  - name: l
    bind: "127.0.0.1:0"
    allow: [127.0.0.0/8]
    deny: [192.0.2.0/24]
    accept_proxy: {from: [192.0.2.0/24]}
    routes: [{match: {source: [127.0.0.0/8]}, upstream: u}]
    limits: {per_source: 1000000, per_source_per_second: 1000000}
upstreams: [{name: u, balance: source_ip, endpoints: [%q], health_check: off, outlier_detection: off}]
`

func testSystemCalls(t *testing.T, s *stage, x *exchange, args ...string) {
	must(t, s.start(append([]string{"p"}, args...)))
	p := s.processes["p"]
	listening, err := p.stderr.wait(`listening.* address=(\S+)`, 1, p.done)
	must(t, err)
	talk(t, x, listening[0][1], 100)
	var failed error
	for range attempts {
		if failed = countCalls(t, s, x, p.cmd.Process.Pid, listening[0][1]); failed == nil {
			return
		}
		t.Log(failed)
	}
	t.Errorf("of %d attempts none was better: %v", attempts, failed)
}

// attempts is how often the calls are counted, until there are no more than there may be. Other programs of the machine
// only add to them: a client is handed to another loop, or an end of file comes alone.
const attempts = 8

// A session that is there for a second, as some are on a busy machine under strace, has further options set then, which short ones do without.
const (
	lateAfter   = time.Second
	lateOptions = 4
)

// countCalls returns what is wrong with the system calls that the process makes for some clients.
func countCalls(t *testing.T, s *stage, x *exchange, pid int, addr string) error {
	const connections = 400
	trace := strace.Attach(t, pid)
	began := time.Now()
	talk(t, x, addr, connections)
	lasted := time.Since(began) >= lateAfter
	must(t, s.status([]string{"admin.sock", `^[^{]*\{.*"connections":\{"active":0,"accepted":\d+,`})) // the last sockets are closed
	calls := trace.Detach(t)
	sum, waits := -calls["accept4 failed"], 0 // those that found no client
	for name, n := range calls {
		switch {
		case strings.HasSuffix(name, " failed"):
		case strings.HasPrefix(name, "epoll_pwait"):
			waits += n
		case name != "getsockopt" && !notPerConnection[name]:
			sum += n
		}
	}
	// The process reads files of /proc beside, more of them on a busy machine. Go closes each, offers it to epoll_ctl(2), which takes no
	// files, and calls fcntl(2) up to four times.
	files := calls["openat"]
	perFile := map[string]int{"close": files, "epoll_ctl": calls["epoll_ctl failed"], "fcntl": min(calls["fcntl"], 4*files)}
	for name, n := range perFile {
		calls[name] -= n
		sum -= n
	}
	if late := calls["setsockopt"] - connections; lasted && late > 0 && late%lateOptions == 0 {
		sum -= late
	}
	each := float64(sum) / connections
	t.Logf("%.2f calls for each connection, and %.2f that wait: %v", each, float64(waits)/connections, calls)
	if calls["accept4"] < connections || calls["close"] < 2*connections {
		return fmt.Errorf("not everything was counted: %v", calls)
	}
	if each > x.most+0.5 { // the status takes some as well
		return fmt.Errorf("%.2f calls for each connection, want at most %v: %v", each, x.most, calls)
	}
	// How often the state of a socket is asked for depends on how the ends of file meet, and on a busy machine they meet otherwise.
	// A client of this machine is asked once where it went before NAT, which fails where the kernel tracks no connections.
	if n := calls["getsockopt"]; n > 2*connections {
		return fmt.Errorf("getsockopt was called %d times", n)
	}
	for _, name := range []string{"getsockname", "getpeername", "fcntl", "read", "write"} {
		if n := calls[name]; n > connections/5 {
			return fmt.Errorf("%s was called %d times", name, n)
		}
	}
	return nil
}
