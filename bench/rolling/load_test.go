package rolling

import (
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/bench/endpoint"
)

const ms = time.Millisecond

// Each client is counted once: as served, lost, or lost in flight.
func TestLedger(t *testing.T) {
	var l ledger
	for _, c := range []client{
		{began: 0, ended: 9 * ms, wait: 3 * ms},
		{began: 10 * ms, ended: 19 * ms, wait: 1 * ms},
		{began: 20 * ms, ended: 140 * ms, wait: 2 * ms}, // connected at the event, and served
		{began: 30 * ms, ended: 99 * ms, lost: "reset"}, // over before the event
		{began: 40 * ms, ended: 100 * ms, lost: "reset"},
		{began: 102 * ms, ended: 150 * ms, lost: "reset"},
		{began: 103 * ms, ended: 150 * ms, lost: "refused"}, // began after the event
		{began: 104 * ms, ended: 150 * ms, lost: "refused"},
		{began: 150 * ms, ended: 250 * ms, lost: "reset"}, // connected at the second event
	} {
		l.add(c)
	}
	got := l.sum([]moment{{100 * ms, 102 * ms}, {200 * ms, 201 * ms}})
	want := &Figures{
		Clients: 9, Lost: 3, UnderWay: 3, Reasons: map[string]int64{"reset": 1, "refused": 2}, P50: 0.002, P99: 0.003, Longest: 0.003,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if none := new(ledger).sum(nil); none.Longest.Known() || none.P50.Known() {
		t.Errorf("without clients, the longest wait is %v", none.Longest)
	}
}

// The load reports the results of clients of servers with a known behaviour.
func TestLoad(t *testing.T) {
	answer := strings.Repeat("x", 100)
	const clients = 10
	p := loadPlan{Rate: 100, Timeout: 200 * ms, Length: clients * 10 * ms, Answer: len(answer)}
	release := make(chan struct{})
	for _, serve := range []func(c *net.TCPConn){
		func(c *net.TCPConn) { _, _ = io.WriteString(c, answer) },
		func(*net.TCPConn) {},
		func(c *net.TCPConn) { _, _ = io.WriteString(c, answer[1:]) },
		func(c *net.TCPConn) { _ = c.SetLinger(0) },
		func(*net.TCPConn) { <-release },
	} {
		p.Addresses = append(p.Addresses, scripted(t, serve))
	}
	p.Addresses = append(p.Addresses, nobody(t))
	t.Cleanup(func() { close(release) }) // before the wait for the servers' end
	all := p.run(t)
	for i, want := range []string{"", "closed without an answer", "cut short", "reset", "timed out", "refused"} {
		f := &all[i]
		served := want == ""
		if f.Clients != clients || f.UnderWay != 0 || f.Longest.Known() != served || served != (f.Lost == 0) || !served && f.Reasons[want] != clients {
			t.Errorf("%q: %+v", want, f)
		}
	}
	if w := all[0].Longest; !(w > 0) || all[0].P50 > w {
		t.Errorf("the longest wait is %v, the median %v", w, all[0].P50)
	}
}

// run has the part carry out the plan; the endpoints have no events.
func (p *loadPlan) run(t *testing.T) []Figures {
	t.Helper()
	in, tell := io.Pipe()
	told, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- RunPart(t.Context(), in, out); _ = out.Close() }()
	to, from := json.NewEncoder(tell), json.NewDecoder(told)
	must(t, to.Encode(p))
	var b begun
	must(t, from.Decode(&b))
	must(t, to.Encode(happened{}))
	all := make([]Figures, len(p.Addresses))
	for i := range all {
		must(t, from.Decode(&all[i]))
	}
	must(t, <-done)
	must(t, tell.Close())
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scripted returns the address of a server that reads a request, and then runs serve.
func scripted(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
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
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	must(t, err)
	peer, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { _ = c.Close(); _ = peer.Close() })
	return c.LocalAddr().String()
}

// The part reports errors, and ends when its input does.
func TestPartComplains(t *testing.T) {
	if err := RunPart(t.Context(), strings.NewReader("?\n"), io.Discard); err == nil || !strings.Contains(err.Error(), "rolling: the load: the plan") {
		t.Errorf("got %v", err)
	}
	p := `{"addresses": ["127.0.0.1:1"], "rate": 1, "timeout": 1, "length": 3600000000000}`
	if err := RunPart(t.Context(), strings.NewReader(p), io.Discard); err == nil {
		t.Error("no error of an unfinished load")
	}
}

// All events happen in their order and during the load. The schedule of a single endpoint is as
// promised.
func TestScenarios(t *testing.T) {
	all := Scenarios(4 * time.Second)
	for _, s := range all {
		state := make(map[int]endpoint.Failure)
		last := time.Duration(0)
		for _, x := range s.steps {
			if x.at < last || x.at <= 0 || x.at >= s.Length || x.endpoint < 0 || x.endpoint >= s.Endpoints || x.state == state[x.endpoint] {
				t.Errorf("%s: %+v after %v", s.Name, x, last)
			}
			state[x.endpoint], last = x.state, x.at
		}
		if s.Name == "single" && (s.steps[3].at-s.steps[2].at >= 2*time.Second || s.steps[3].state != endpoint.Healthy) {
			t.Errorf("the only endpoint is away for %v", s.steps[3].at-s.steps[2].at)
		}
	}
	some, err := Named(all, []string{"frozen", "pair", "pair"})
	if err != nil || len(some) != 2 || some[0].Name != "pair" || some[1].Name != "frozen" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := Named(all, []string{"odd"}); err == nil || !strings.Contains(err.Error(), "write rolling, pair, brief,") {
		t.Errorf("got %v", err)
	}
}
