package endpoint

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// One endpoint fails while its neighbour answers. When the process is frozen both accept and send
// nothing, and waiting clients are answered in the end.
func TestServers(t *testing.T) {
	g := process.NewGroup()
	defer g.Close()
	s, err := Start(t.Context(), g, process.Spec{Name: "the endpoints", Path: "/proc/self/exe", Args: []string{childName}}, Plan{Endpoints: 2, Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := s.Freeze(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := ask(0, 50*time.Millisecond); got != "timed out" {
		t.Errorf("frozen: %s", got)
	}
	answered := make(chan string)
	go func() { answered <- ask(1, forever) }()
	if _, err := s.Thaw(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
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
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
