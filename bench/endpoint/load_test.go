package endpoint

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// The load reports the results of clients of servers with a known behaviour.
func TestLoad(t *testing.T) {
	answer := strings.Repeat("x", 100)
	const clients = 10
	p := Load{Rate: 100, Timeout: 200 * ms, Length: clients * 10 * ms, Answer: len(answer), Sources: 3, File: t.TempDir() + "/outcomes"}
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

// run has the part carry out the plan.
func (p *Load) run(t *testing.T) (all [][]Outcome) {
	t.Helper()
	in, tell := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- RunLoad(t.Context(), in, io.Discard) }()
	must(t, json.NewEncoder(tell).Encode(p))
	must(t, <-done)
	must(t, tell.Close())
	text, err := os.ReadFile(p.File)
	must(t, err)
	must(t, json.Unmarshal(text, &all))
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
func TestLoadComplains(t *testing.T) {
	if err := RunLoad(t.Context(), strings.NewReader("?\n"), io.Discard); err == nil || !strings.Contains(err.Error(), "the load: the plan") {
		t.Errorf("got %v", err)
	}
	p := `{"addresses": ["127.0.0.1:1"], "rate": 1, "timeout": 1, "length": 3600000000000}`
	if err := RunLoad(t.Context(), strings.NewReader(p), io.Discard); err == nil {
		t.Error("no error of an unfinished load")
	}
}
