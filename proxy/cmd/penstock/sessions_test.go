package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// endProcess runs a load balancer in this process with a client whose question is open, and returns its admin address
// and its log.
func endProcess(t *testing.T) (bind string, out *output) {
	t.Helper()
	dir := t.TempDir()
	file, at := filepath.Join(dir, "penstock.yaml"), filepath.Join(dir, "web.sock")
	bind = "unix:" + filepath.Join(dir, "admin.sock")
	got := make(chan struct{}, 1)
	endpoint := sockets.Server(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		got <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	text := fmt.Sprintf(`admin: {bind: %q}
listeners: [{name: web, bind: "unix:%s", upstream: app}]
upstreams: [{name: app, endpoints: [%q], health_check: off}]
`, bind, at, endpoint)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stops, done := make(chan os.Signal, 2), make(chan struct{})
	out = newOutput()
	go func() {
		defer close(done)
		run(&cli.Env{Args: []string{"run", "--config", file}, Stdout: io.Discard, Stderr: out, Getenv: os.Getenv, Stops: stops})
	}()
	t.Cleanup(func() {
		stops <- os.Interrupt
		stops <- os.Interrupt
		<-done
	})
	if _, err := out.wait(`msg=starting`, 1, done); err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if _, err := client.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	<-got
	return bind, out
}

// TestSessionsEndInterrupted: an interrupt of the question ends the command, and no session. One of an end that is under
// way says how that is called off.
func TestSessionsEndInterrupted(t *testing.T) {
	t.Parallel()

	const interrupt = "\x03"
	bind, out := endProcess(t)
	term := openTerminal(t, 120, 40, penstockCommand(t, nil, "sessions", "end", "--all", "--now", "--admin", bind))
	term.shows(`1 session selected: all end at once, in the middle of whatever they do\s+end them\? \[y/N\] `)
	term.press(interrupt)
	term.shows(`interrupted: nothing was ended`)
	term.interrupted()
	term = openTerminal(t, 120, 40, penstockCommand(t, nil, "sessions", "end", "--all", "--admin", bind))
	term.shows(`(?s)1 session selected: none at once; each ends as soon as it has moved no byte for 10s, .*end them\? \[y/N\] `)
	term.press("y\r")
	if _, err := out.wait(`msg="sessions are being ended"`, 1, term.done); err != nil {
		t.Fatal(err)
	}
	term.press(interrupt)
	term.shows(`interrupted, and what has begun goes on: penstock sessions end --stop calls it off`)
	term.interrupted()
	said, err := penstockCommand(t, nil, "sessions", "end", "--stop", "--admin", bind).Output()
	if want := "1 request stopped, 1 session goes on\n"; err != nil || string(said) != want {
		t.Errorf("%q, %v, want %q", said, err, want)
	}
}

// interrupted waits for the end of the command by an interrupt.
func (term *terminal) interrupted() {
	term.t.Helper()
	<-term.done
	_ = term.cmd.Wait()
	if code := term.cmd.ProcessState.ExitCode(); code != 130 {
		text, _ := term.output.text()
		term.t.Errorf("exit code %d: %q", code, text)
	}
}

// TestWhenEnded: the message before sessions end says when each of them does.
func TestWhenEnded(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		query admin.EndQuery
		n     int64
		want  string
	}{
		{admin.EndQuery{}, 0, ""},
		{admin.EndQuery{}, 12, ": none at once; each ends as soon as it has moved no byte for 10s, the last from its endpoint; one that has not been quiet within 30s goes on"},
		{admin.EndQuery{Quiet: time.Second, Grace: 2 * time.Minute, ThenReset: true}, 2, ": none at once; each ends as soon as it has moved no byte for 1s, the last from its endpoint; one that has not been quiet within 2m0s ends all the same"},
		{admin.EndQuery{Over: 5 * time.Minute}, 2, ": none at once; each ends as soon as its moment comes, at random within 5m0s, and it has moved no byte for 10s, the last from its endpoint; one that has not been quiet within 30s of it goes on"},
		{admin.EndQuery{Now: true}, 2, ": all end at once, in the middle of whatever they do"},
		{admin.EndQuery{Now: true, Over: time.Minute}, 2, ": each ends at a random moment within 1m0s, in the middle of whatever it does"},
	} {
		if got := whenEnded(&c.query, c.n); got != c.want {
			t.Errorf("%+v\n%q, want\n%q", c.query, got, c.want)
		}
	}
}

// TestLaneResults: the commands of the lane say how many sessions have come back, and how many are reset.
func TestLaneResults(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ changed, returned, flushed string }{
		{"0 0", ": no session had left user space", ": no session had left user space"},
		{"1 0", ": 1 session has come back to user space", ""},
		{"3 0", ": 3 sessions have come back to user space", ""},
		{"3 1", ": 3 sessions have come back to user space, and 1 is reset", ""},
		{"0 2", ": no session has come back to user space, and 2 are reset", ": 2 sessions are reset on both sides"},
		{"0 1", ": no session has come back to user space, and 1 is reset", ": 1 session is reset on both sides"},
	} {
		var l admin.LaneChanged
		if _, err := fmt.Sscan(c.changed, &l.Returned, &l.Reset); err != nil {
			t.Fatal(err)
		}
		if got := returnedOf(&l); got != c.returned {
			t.Errorf("%s: off: %q, want %q", c.changed, got, c.returned)
		}
		if got := flushedOf(&l); c.flushed != "" && got != c.flushed {
			t.Errorf("%s: flush: %q, want %q", c.changed, got, c.flushed)
		}
	}
}
