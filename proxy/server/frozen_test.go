package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/proxy/admin"
)

// echoName is the name of the test binary when it runs as an echo server.
const echoName = "penstock-balancer-test-echo"

func TestMain(m *testing.M) {
	child.Main(m, echoName, serveEcho)
}

// serveEcho prints its address, and echoes until its standard input ends. With an argument it is
// mute: it reads all bytes and never answers.
func serveEcho(args []string) error {
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
			if len(args) > 0 {
				_, _ = io.Copy(io.Discard, c)
				return
			}
			_, _ = io.Copy(c, c)
		}()
	}
}

// echoProcess runs a server in a process of its own until the end of the test.
func echoProcess(t *testing.T, args ...string) (address string, signal func(syscall.Signal)) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{echoName}, args...)
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
	dial     func() (net.Conn, error)
	wait     time.Duration // for an answer; 0: until they are stopped
	stop     chan struct{}
	all      sync.WaitGroup
	asked    atomic.Int64
	answered atomic.Int64
}

// newCrowd returns a crowd without clients.
func newCrowd(t *testing.T, dial func() (net.Conn, error)) *crowd {
	c := &crowd{dial: dial, stop: make(chan struct{})}
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
				c.all.Go(func() { c.client(1, 0) })
			}
		}
	})
}

// stay starts 75 clients that each ask about every three seconds, and no others.
func (c *crowd) stay() {
	for range 75 {
		c.all.Go(func() { c.client(1<<30, 3*time.Second) })
	}
}

// client asks the given number of times, with a pause of up to twice the time between.
func (c *crowd) client(times int, pause time.Duration) {
	conn, err := c.dial()
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
	for range times {
		c.asked.Add(1)
		if c.wait > 0 {
			_ = conn.SetDeadline(time.Now().Add(c.wait))
		}
		_, _ = io.WriteString(conn, "x")
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			return
		}
		c.answered.Add(1)
		if times > 1 {
			select {
			case <-c.stop:
				return
			case <-time.After(rand.N(2 * pause)):
			}
		}
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
// later client is answered. When the server continues, the endpoint returns. Either each client
// asks once, or all clients connected long before, or they use TLS, which ends in the load
// balancer.
func TestFrozen(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	cfg := &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)}
	for name, load := range map[string]func(*crowd){"come": (*crowd).come, "stay": (*crowd).stay, "come with TLS": (*crowd).come} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(name, "TLS") {
				testFrozen(t, load, "tls: {certificates: [{cert: c.pem, key: c.key}]}, ", func(at string) (net.Conn, error) {
					return tls.Dial("tcp", at, cfg)
				}, "c.pem", cert, "c.key", key)
				return
			}
			testFrozen(t, load, "", func(at string) (net.Conn, error) { return net.Dial("tcp", at) })
		})
	}
}

func testFrozen(t *testing.T, load func(*crowd), listener string, dial func(at string) (net.Conn, error), files ...string) {
	var endpoints []string
	var signal [3]func(syscall.Signal)
	for i := range signal {
		at, s := echoProcess(t)
		signal[i] = s
		endpoints = append(endpoints, fmt.Sprintf("{name: e%d, address: %q}", i, at))
	}
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", %supstream: u}]
upstreams: [{name: u, endpoints: [%s]}]`, listener, strings.Join(endpoints, ", ")), files...)
	at := r.At("l")
	c := newCrowd(t, func() (net.Conn, error) { return dial(at) })
	load(c)
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

// TestMute: of three servers, without further configuration, one has never answered a client, and
// is judged by its peers' answers. The endpoint is ejected, and every later client is answered.
// Either its process is stopped, or it runs and its clients give up.
func TestMute(t *testing.T) {
	t.Run("stands still", func(t *testing.T) {
		t.Parallel()
		at, signal := echoProcess(t)
		signal(syscall.SIGSTOP)
		testMute(t, at, 0, "nor does it close a connection that was closed", func() { signal(syscall.SIGCONT) })
	})
	t.Run("lives", func(t *testing.T) {
		t.Parallel()
		at, _ := echoProcess(t, "mute")
		testMute(t, at, 3*time.Second, "of them have given up", nil)
	})
}

func testMute(t *testing.T, mute string, wait time.Duration, why string, mend func()) {
	one, _ := echoProcess(t)
	other, _ := echoProcess(t)
	r := startUpstream(t, `endpoints: [{name: e0, address: %q}, {name: e1, address: %q}, {name: e2, address: %q}]`, one, mute, other)
	at := r.At("l")
	c := newCrowd(t, func() (net.Conn, error) { return net.Dial("tcp", at) })
	c.wait = wait
	began := time.Now()
	c.come()
	state := func(want admin.State) func() bool {
		return func() bool { return r.Endpoint("u", "e1").State == want }
	}
	r.Until("the endpoint is ejected", state(admin.Ejected))
	t.Logf("ejected after %v", time.Since(began).Round(time.Millisecond))
	e := r.Endpoint("u", "e1")
	if !strings.HasPrefix(e.Why, "unanswered: ") || !strings.Contains(e.Why, "and no client before them; its peers answer") || !strings.Contains(e.Why, why) {
		t.Errorf("%+v", e)
	}
	answered, total := c.answered.Load(), e.Total
	r.Until("fifty more requests are answered", func() bool { return c.answered.Load() >= answered+50 })
	if e := r.Endpoint("u", "e1"); e.Total > total {
		t.Errorf("%d more clients were sent to it", e.Total-total)
	}
	if mend != nil {
		mend()
		r.Until("the endpoint is back", state(admin.Up))
	}
	c.leave()
	for _, name := range []string{"e0", "e2"} {
		if e := r.Endpoint("u", name); e.State != admin.Up || e.Silence != nil {
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
	at := r.At("l")
	c := newCrowd(t, func() (net.Conn, error) { return net.Dial("tcp", at) })
	c.come()
	r.Until("the endpoint's answers are judged", func() bool { a := r.Endpoint("u", "e").Answers; return a != nil && a.Judged })
	signal(syscall.SIGSTOP)
	problem := func() bool { return r.Endpoint("u", "e").Silence != nil }
	r.Until("the silence is reported", problem)
	if e := r.Endpoint("u", "e"); e.State != admin.Up || e.Silence.Clients < 8 || e.Silence.Proof != "nor does it close a connection that was closed" {
		t.Errorf("%+v: %+v", e, e.Silence)
	}
	r.Logs("level=WARN", "msg=answers", "upstream=u endpoint=e", "state=silent", "clients have waited, the first for", "it used to answer")
	signal(syscall.SIGCONT)
	r.Until("the silence is over", func() bool { return !problem() })
	r.Logs("level=INFO", "msg=answers", "state=answering", "it answers again; no client was answered for")
}
