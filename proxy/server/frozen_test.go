package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/proxy/admin"
)

// echoName is the name of the test binary when it runs as an echo server.
const echoName = "penstock-balancer-test-echo"

func TestMain(m *testing.M) {
	child.Main(m, echoName, serveEcho)
}

// serveEcho prints its address, and echoes until its standard input ends.
func serveEcho([]string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// echoProcess runs a server in a process of its own until the end of the test.
func echoProcess(t *testing.T) (address string, signal func(syscall.Signal)) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{echoName}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	signal = func(s syscall.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		signal(syscall.SIGCONT)
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(address), signal
}

// A crowd is clients that send requests at some rate until they are stopped. Clients that are not
// answered wait until then.
type crowd struct {
	at       string // the address that they connect to
	stop     chan struct{}
	all      sync.WaitGroup
	asked    atomic.Int64
	answered atomic.Int64
}

// newCrowd returns a crowd without clients.
func newCrowd(t *testing.T, at string) *crowd {
	c := &crowd{at: at, stop: make(chan struct{})}
	t.Cleanup(c.leave)
	return c
}

// come starts 25 clients a second, each with one request.
func (c *crowd) come() {
	const perSecond = 25
	c.all.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-tick.C:
				c.all.Go(c.client)
			}
		}
	})
}

// client asks once.
func (c *crowd) client() {
	conn, err := net.Dial("tcp", c.at)
	if err != nil {
		return
	}
	defer conn.Close()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-c.stop:
			_ = conn.SetDeadline(time.Unix(1, 0))
		case <-over:
		}
	}()
	c.asked.Add(1)
	_, _ = io.WriteString(conn, "x")
	if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
		c.answered.Add(1)
	}
}

// leave stops all clients.
func (c *crowd) leave() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.all.Wait()
}

// TestFrozen: of three servers, without further configuration, one is stopped (SIGSTOP), and its
// kernel still accepts for it. The endpoint is ejected, the status has the reason, and every
// later client is answered. When the server continues, the endpoint returns.
func TestFrozen(t *testing.T) {
	t.Parallel()

	var endpoints []string
	var signal [3]func(syscall.Signal)
	for i := range signal {
		at, s := echoProcess(t)
		signal[i] = s
		endpoints = append(endpoints, fmt.Sprintf("{name: e%d, address: %q}", i, at))
	}
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%s]}]`, strings.Join(endpoints, ", ")))
	c := newCrowd(t, r.At("l"))
	c.come()
	r.Until("the endpoints' answers are judged", func() bool {
		for i := range signal {
			if a := r.Endpoint("u", fmt.Sprint("e", i)).Answers; a == nil || !a.Judged {
				return false
			}
		}
		return true
	})
	signal[1](syscall.SIGSTOP)
	stopped := time.Now()
	state := func(want string) func() bool {
		return func() bool { return string(r.Endpoint("u", "e1").State) == want }
	}
	r.Until("the endpoint is ejected", state("ejected"))
	t.Logf("ejected after %v", time.Since(stopped).Round(time.Millisecond))
	e := r.Endpoint("u", "e1")
	if !strings.HasPrefix(e.Why, "unanswered: ") || !strings.Contains(e.Why, "its peers answer") || e.Unanswered < 8 || e.UnansweredMs < 1500 {
		t.Errorf("%+v", e)
	}
	if !e.Until.IsZero() {
		t.Errorf("until %v", e.Until)
	}
	asked, answered, lost := c.asked.Load(), c.answered.Load(), e.Active
	r.Until("fifty more requests are answered", func() bool { return c.answered.Load() >= answered+50 })
	if e := r.Endpoint("u", "e1"); e.Active > lost {
		t.Errorf("%d more clients were sent to it", e.Active-lost)
	}
	signal[1](syscall.SIGCONT)
	went := time.Now()
	r.Until("the endpoint is back", state("up"))
	t.Logf("of %d clients %d were not answered; back after %v", asked, lost, time.Since(went).Round(time.Millisecond))
	r.Logs("msg=ejection", "state=returned", "it answers again")
	c.leave()
	for i := range signal {
		if e := r.Endpoint("u", fmt.Sprint("e", i)); e.State != "up" || e.Failures > 0 {
			t.Errorf("%+v", e)
		}
	}
}

// TestSilent: the only server is stopped, so its clients cannot be sent elsewhere. That is a
// problem in the status, and its beginning and end are logged.
func TestSilent(t *testing.T) {
	t.Parallel()
	address, signal := echoProcess(t)
	r := startUpstream(t, `endpoints: [{name: e, address: %q}]`, address)
	c := newCrowd(t, r.At("l"))
	c.come()
	r.Until("the endpoint's answers are judged", func() bool { a := r.Endpoint("u", "e").Answers; return a != nil && a.Judged })
	signal(syscall.SIGSTOP)
	problem := func() bool { return r.Endpoint("u", "e").Silence != nil }
	r.Until("the silence is reported", problem)
	if e := r.Endpoint("u", "e"); e.State != admin.Up || e.Silence.Clients < 8 || e.Silence.Proof != "it does not close a connection that Penstock has closed" {
		t.Errorf("%+v: %+v", e, e.Silence)
	}
	r.Logs("level=WARN", "msg=answers", "upstream=u endpoint=e", "state=silent", "clients waited, the first for", "it used to answer")
	signal(syscall.SIGCONT)
	r.Until("the silence is over", func() bool { return !problem() })
	r.Logs("level=INFO", "msg=answers", "state=answering", "it answers again; no client got an answer for")
}
