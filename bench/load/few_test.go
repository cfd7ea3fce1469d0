package load_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/load"
)

// plenty is a limit for plans that end by themselves.
const plenty = 30 * time.Second

// holding runs an idle plan through a proxy, with the given grace. The runner is ready for a
// message.
func holding(t *testing.T, grace time.Duration, pass func(dst, src *net.TCPConn, toClient bool)) (runner *load.Runner, talked chan load.Result, done chan error) {
	t.Helper()
	held := make(chan struct{})
	runner, talked, done = load.NewRunner(), make(chan load.Result, 1), make(chan error, 1)
	runner.Grace = grace
	runner.Hold = func() { close(held) }
	runner.Talked = func(r load.Result) { talked <- r }
	go func() {
		_, err := runner.Run(t.Context(), idlePlan(through(t, pass)))
		done <- err
	}()
	select {
	case <-held:
	case err := <-done:
		t.Fatal("not held: ", err)
	}
	return runner, talked, done
}

func TestSomeTalkWhileTheOthersAreQuiet(t *testing.T) {
	runner, talked, done := holding(t, plenty, faithful)
	before := runner.Received()
	for range 2 { // one after the other
		if err := runner.Talk(load.Talk{Connections: 7, Size: 1 << 10, Duration: 30 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		var r load.Result
		select {
		case r = <-talked:
		case err := <-done:
			t.Fatal(err)
		}
		came := runner.Received() - before
		before += came
		if r.Requests < 7 || came != r.Requests<<10 || r.Received != came || r.Connections != 7 || r.Elapsed < 30*time.Millisecond || r.P50 <= 0 || r.P99 < r.P50 {
			t.Errorf("received %d bytes: %+v", came, r)
		}
	}
	runner.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Large messages do not fit into a socket's buffers at once.
func TestATalkOfLargeMessages(t *testing.T) {
	runner, talked, done := holding(t, plenty, faithful)
	if err := runner.Talk(load.Talk{Connections: 150, Size: 128 << 10, Duration: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-talked:
		if r.Requests < 150 {
			t.Errorf("%+v", r)
		}
	case err := <-done:
		t.Fatal(err)
	}
	runner.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// mumble forwards the first bytes of a connection, and no later ones.
func mumble(dst, src *net.TCPConn, _ bool) {
	_, _ = io.CopyN(dst, src, load.IdleSize)
	_, _ = io.Copy(io.Discard, src)
	_ = dst.CloseWrite()
}

func TestATalkThatStandsStill(t *testing.T) {
	runner, _, done := holding(t, 2*time.Second, mumble)
	if err := runner.Talk(load.Talk{Connections: 3, Size: 100, Duration: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "100 of the 100 bytes of a message") {
		t.Errorf("got %v", err)
	}
}

func TestATalkOfMoreThanThereAre(t *testing.T) {
	runner, _, done := holding(t, plenty, faithful)
	if err := runner.Talk(load.Talk{Connections: 151, Size: 1, Duration: 1}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "a talk of 151 connections, of 150") {
		t.Errorf("got %v", err)
	}
}

func TestWrongTalksAreRefused(t *testing.T) {
	for _, talk := range []load.Talk{{}, {Connections: 1, Size: 1}, {Connections: 1, Duration: 1}, {Size: 1, Duration: 1}, {Connections: 1, Size: 1 << 30, Duration: 1}} {
		if err := load.NewRunner().Talk(talk); err == nil {
			t.Errorf("%+v was accepted", talk)
		}
	}
}
