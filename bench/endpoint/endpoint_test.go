package endpoint

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// forever is longer than any step of a test may take.
const forever = 30 * time.Second

// serving returns an endpoint that serves until the test ends.
func serving(t *testing.T) *endpoint {
	t.Helper()
	e, err := newEndpoint(time.Millisecond, answerOf(100))
	if err != nil {
		t.Fatal(err)
	}
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

// ask makes a request and returns its result within a time.
func (e *endpoint) ask(t *testing.T, within time.Duration) error {
	t.Helper()
	_, err := Ask(t.Context(), Request{Address: e.listener.Addr().String(), Deadline: time.Now().Add(within), Answer: AnswerBytes(100)})
	return err
}

func (e *endpoint) mustTurn(t *testing.T, f Failure, delay time.Duration) {
	t.Helper()
	if err := e.turn(f, delay); err != nil {
		t.Fatal(err)
	}
}

func TestAnEndpointFailsAndRecovers(t *testing.T) {
	e := serving(t)
	for range 2 {
		if err := e.ask(t, forever); err != nil {
			t.Fatal(err)
		}
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

// A client that waits for a silent or a slow endpoint is answered when the endpoint is healthy
// again.
func TestWhoWaitsIsAnswered(t *testing.T) {
	for _, f := range []Failure{Silent, Slow} {
		e := serving(t)
		e.mustTurn(t, f, 100*time.Hour)
		c := e.send(t)
		e.mustTurn(t, Healthy, 0)
		if answer, err := io.ReadAll(c); err != nil || string(answer) != string(e.answer) {
			t.Errorf("%s: %q, %v", f, answer, err)
		}
	}
}

// An established connection is reset when an endpoint begins to refuse.
func TestRefusingResets(t *testing.T) {
	e := serving(t)
	c := e.connect(t)
	// A later client has been answered. So the connection has left the accept queue, which is
	// reset as well.
	if err := e.ask(t, forever); err != nil {
		t.Fatal(err)
	}
	e.mustTurn(t, Silent, 0)
	if _, err := io.WriteString(c, requestText); err != nil {
		t.Fatal(err)
	}
	e.mustTurn(t, Refuse, 0)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

// send sends a request.
func (e *endpoint) send(t *testing.T) net.Conn {
	t.Helper()
	c := e.connect(t)
	if _, err := io.WriteString(c, requestText); err != nil {
		t.Fatal(err)
	}
	return c
}

func (e *endpoint) connect(t *testing.T) net.Conn { return sockets.Dial(t, e.listener.Addr().String()) }

// The end of the context releases all clients, whichever endpoint they wait for.
func TestAnEndpointEnds(t *testing.T) {
	for _, f := range []Failure{Silent, Slow, Refuse, Reset} {
		e := serving(t) // the test waits for its end
		e.mustTurn(t, Silent, 0)
		e.send(t)
		e.mustTurn(t, f, 100*time.Hour)
	}
}

func TestReason(t *testing.T) {
	for want, err := range map[string]error{
		"timed out": &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded},
		"reset":     os.NewSyscallError("read", syscall.ECONNRESET),
		"refused":   os.NewSyscallError("connect", syscall.ECONNREFUSED),
		"cut short": errCut,
		"else":      errors.New("else"),
	} {
		if got := Reason(err); got != want {
			t.Errorf("%v: %q", err, got)
		}
	}
}
