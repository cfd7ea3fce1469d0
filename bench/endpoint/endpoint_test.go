package endpoint

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
)

// childName is the first argument of a test binary that runs as a process of endpoints.
const childName = "penstock-endpoint-test"

func TestMain(m *testing.M) {
	child.Main(m, childName, func([]string) error { return RunPart(context.Background(), os.Stdin, os.Stdout) })
}

// forever is longer than any step of a test may take.
const forever = condition.Patience

// serving returns an endpoint that serves until the test ends.
func serving(t *testing.T) *endpoint {
	t.Helper()
	e := must.Get(newEndpoint(time.Millisecond, answerOf(100)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *endpoint) ask(t *testing.T, within time.Duration) error {
	t.Helper()
	_, err := Ask(t.Context(), Request{Address: e.listener.Addr().String(), Deadline: time.Now().Add(within), Answer: AnswerBytes(100)})
	return err
}

func (e *endpoint) mustTurn(t *testing.T, f Failure, delay time.Duration) {
	t.Helper()
	must.Do(t, e.turn(f, delay))
}

func TestAnEndpointFailsAndRecovers(t *testing.T) {
	e := serving(t)
	for range 2 {
		must.Do(t, e.ask(t, forever))
		e.mustTurn(t, Refuse, 0)
		if err := e.ask(t, forever); Reason(err) != "refused" {
			t.Errorf("refusing: %v", err)
		}
		e.mustTurn(t, Silent, 0)
		if err := e.ask(t, 50*time.Millisecond); Reason(err) != "timed out" {
			t.Errorf("silent: %v", err)
		}
		e.mustTurn(t, Slow, time.Millisecond)
		began := time.Now()
		if err := e.ask(t, forever); err != nil || time.Since(began) < time.Millisecond {
			t.Errorf("slow: %v after %v", err, time.Since(began))
		}
		e.mustTurn(t, Healthy, 0)
	}
}

const ms = time.Millisecond

// The load reports the results of clients of servers with a known behaviour.
func TestLoad(t *testing.T) {
	answer := strings.Repeat("x", 100)
	const clients = 10
	p := Load{Rate: 100, Timeout: forever, Length: clients * 10 * ms, Answer: len(answer), Sources: 3, File: t.TempDir() + "/outcomes"}
	release := make(chan struct{})
	for _, serve := range []func(c *net.TCPConn){
		func(c *net.TCPConn) { _, _ = io.WriteString(c, answer) },
		func(*net.TCPConn) {},
		func(c *net.TCPConn) { _, _ = io.WriteString(c, answer[1:]) },
		func(c *net.TCPConn) { _ = c.SetLinger(0) },
	} {
		p.Addresses = append(p.Addresses, scripted(t, serve))
	}
	p.Addresses = append(p.Addresses, nobody(t))
	all := p.run(t)
	p.Addresses, p.Timeout = []string{scripted(t, func(*net.TCPConn) { <-release })}, 200*ms
	t.Cleanup(func() { close(release) }) // before the wait for the server's end
	all = append(all, p.run(t)...)
	for i, want := range []string{"", "closed without an answer", "cut short", "reset", "refused", "timed out"} {
		if len(all[i]) != clients {
			t.Errorf("%q: %d clients", want, len(all[i]))
		}
		for _, o := range all[i] {
			if o.Lost != want || o.Ended < o.Began || want == "" && !(o.First > 0) {
				t.Errorf("%q: %+v", want, o)
			}
		}
	}
}

func (p *Load) run(t *testing.T) (all [][]Outcome) {
	t.Helper()
	in, tell := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- RunLoad(t.Context(), in, io.Discard) }()
	must.Do(t, json.NewEncoder(tell).Encode(p))
	must.Do(t, <-done)
	must.Do(t, tell.Close())
	text := must.Get(os.ReadFile(p.File))(t)
	must.Do(t, json.Unmarshal(text, &all))
	return all
}

// scripted returns the address of a server that reads a request, and then runs serve.
func scripted(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 1000)); err == nil {
					serve(c.(*net.TCPConn))
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// nobody returns an address at which no socket listens, and none can: a connection has its port.
func nobody(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer l.Close()
	c := must.Get(net.Dial("tcp4", l.Addr().String()))(t)
	peer := must.Get(l.Accept())(t)
	t.Cleanup(func() { _ = c.Close(); _ = peer.Close() })
	return c.LocalAddr().String()
}

// One endpoint fails while its neighbour answers. When the process is frozen both accept and send
// nothing, and waiting clients are answered in the end.
func TestServers(t *testing.T) {
	g := process.NewGroup()
	defer g.Close()
	s, err := Start(t.Context(), g, process.Spec{Name: "the endpoints", Path: "/proc/self/exe", Args: []string{childName}}, Plan{Endpoints: 2, Bytes: 10})
	must.Do(t, err)
	defer s.Kill()
	ask := func(i int, within time.Duration) string {
		if _, err := Ask(t.Context(), Request{Address: s.Addresses[i], Deadline: time.Now().Add(within), Answer: AnswerBytes(10)}); err != nil {
			return Reason(err)
		}
		return "served"
	}
	for _, x := range []struct {
		failure Failure
		want    string
	}{{Refuse, "refused"}, {Healthy, "served"}, {Reset, "reset"}, {Healthy, "served"}} {
		sent := time.Now()
		at, err := s.Turn(t.Context(), sent, Turn{Failure: x.failure, Endpoints: []int{0}})
		if err != nil || at.Before(sent) {
			t.Fatal(at, err)
		}
		if got := ask(0, forever); got != x.want {
			t.Errorf("%q: %s, want %s", x.failure, got, x.want)
		}
		if got := ask(1, forever); got != "served" {
			t.Errorf("%q: its neighbour: %s", x.failure, got)
		}
	}
	must.Get(s.Turn(t.Context(), time.Now(), Turn{Failure: Frozen}))(t)
	if got := ask(0, 50*time.Millisecond); got != "timed out" {
		t.Errorf("frozen: %s", got)
	}
	answered := make(chan string)
	go func() { answered <- ask(1, forever) }()
	must.Get(s.Turn(t.Context(), time.Now(), Turn{}))(t)
	if got := <-answered; got != "served" {
		t.Errorf("thawed: %s", got)
	}
}

// Each missing part of an answer has an error of its own.
func TestAsk(t *testing.T) {
	for said, want := range map[string]string{"": "closed without an answer", "0123": "cut short", "0123456789": "", "0123456789x": "cut short"} {
		at := answering(t, said)
		sent := time.Now()
		first, err := Ask(t.Context(), Request{Address: at, Deadline: sent.Add(forever), Answer: 10})
		if want == "" && err != nil || want != "" && (err == nil || Reason(err) != want) {
			t.Errorf("%q: %v, want %q", said, err, want)
		}
		if heard := said != ""; heard != first.After(sent) {
			t.Errorf("%q: first byte at %v", said, first)
		}
	}
}

// answering returns the address of a server that answers one request with the given text.
func answering(t *testing.T, said string) string {
	t.Helper()
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if readHead(c.(*net.TCPConn)) == nil {
			_, _ = io.WriteString(c, said)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func TestAtRate(t *testing.T) {
	const n = 20
	start, seen := time.Now(), make(chan time.Duration, n+1)
	AtRate(t.Context(), start, 200, n*5*time.Millisecond, func(i int, at time.Duration) {
		if want := time.Duration(i) * 5 * time.Millisecond; at != want || time.Since(start) < want {
			t.Errorf("%d at %v, %v after the start; want %v", i, at, time.Since(start), want)
		}
		seen <- at
	})
	if len(seen) != n {
		t.Errorf("%d requests, want %d", len(seen), n)
	}
}
