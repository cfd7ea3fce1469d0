package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/cli"
)

// stageOf provides the stage of the scripts to a test.
func stageOf(t *testing.T) (s *stage, variables map[string]string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, variables = newStage(), map[string]string{}
	s.workDir = sockets.Dir(t)
	s.setenv = func(name, value string) { variables[name] = value }
	t.Cleanup(s.clear)
	if err := os.Mkdir(s.workDir+"/.bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, s.workDir+"/.bin/penstock"); err != nil {
		t.Fatal(err)
	}
	return s, variables
}

// play runs commands of a stage; the first error is fatal.
func play(t *testing.T, commands ...func() error) {
	t.Helper()
	for i, command := range commands {
		if err := command(); err != nil {
			t.Fatalf("command %d: %v", i+1, err)
		}
	}
}

// greet connects n clients, each of which sends a greeting.
func greet(s *stage, address string, n int) error {
	for i := range n {
		name := fmt.Sprint(i)
		if err := errors.Join(s.dial(name, address), s.client([]string{name, "send", "hello"})); err != nil {
			return err
		}
	}
	return nil
}

// part waits until each client has its answer, or was reset, and closes it. It returns the
// number of answers.
func part(t *testing.T, s *stage) int {
	t.Helper()
	var answered atomic.Int64
	var clients sync.WaitGroup
	for _, conn := range s.clients {
		clients.Go(func() {
			defer conn.Close()
			got := make([]byte, 5)
			_, err := io.ReadFull(conn, got)
			switch {
			case err == nil && string(got) == "hello":
				answered.Add(1)
			case !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	clients.Wait()
	return int(answered.Load())
}

// More clients than RLIMIT_NOFILE allows, whatever --max-connections is: they wait in the
// queue, and are all served.
func TestMoreClientsThanDescriptors(t *testing.T) {
	t.Parallel()

	s, variables := stageOf(t)
	const clients = 80
	play(t,
		func() error { return s.origin([]string{"ORIGIN"}) },
		func() error {
			return s.start([]string{"p", "ulimit=64", "proxy", "--listen", "127.0.0.1:0", "--to", variables["ORIGIN"], "--max-connections", "1000", "--log", "json"})
		},
		func() error { return greet(s, variables["p_ADDR"], clients) },
	)
	if answered := part(t, s); answered != clients {
		t.Errorf("%d of %d clients were answered", answered, clients)
	}
	play(t,
		func() error { return s.signal([]string{"p", "TERM"}) },
		func() error { return s.ended([]string{"p", "0"}) },
	)
	text, _ := s.processes["p"].stdout.text()
	if want := fmt.Sprintf(`{"connections":{"accepted":%d,"active":0,"refused":0}`, clients); !strings.HasPrefix(text, want) {
		t.Errorf("the summary is %s, want %s", text, want)
	}
}

// withFewDescriptors returns a running proxy, p, with a limit that is lowered to 64
// descriptors while it runs.
func withFewDescriptors(t *testing.T) (s *stage, p *program, variables map[string]string) {
	t.Helper()
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("needs prlimit of util-linux: ", err)
	}
	s, variables = stageOf(t)
	play(t,
		func() error { return s.origin([]string{"ORIGIN"}) },
		func() error {
			return s.start([]string{"p", "proxy", "--listen", "127.0.0.1:0", "--to", variables["ORIGIN"], "--log", "json"})
		},
	)
	p = s.processes["p"]
	if out, err := exec.Command(prlimit, "--pid", strconv.Itoa(p.cmd.Process.Pid), "--nofile=64:").CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v: %s", err, out)
	}
	return s, p, variables
}

// Descriptors run out although there should have been enough: RLIMIT_NOFILE is lowered under
// the running program. Accepting pauses, is logged, and resumes; no client waits for ever, and
// afterwards every client is served.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()

	s, p, variables := withFewDescriptors(t)
	const clients = 80
	play(t,
		func() error { return greet(s, variables["p_ADDR"], clients) },
		func() error {
			return s.stderrHas([]string{"p", `"level":"WARN","msg":"accepting paused".*too many open files`})
		},
	)
	answered := part(t, s)
	play(t,
		func() error { return s.stderrHas([]string{"p", `"msg":"accepting resumed"`}) },
		func() error { return greet(s, variables["p_ADDR"], 1) },
	)
	if part(t, &stage{clients: map[string]net.Conn{"0": s.clients["0"]}}) != 1 {
		t.Error("a client is not answered after it was over")
	}
	play(t,
		func() error { return s.signal([]string{"p", "TERM"}) },
		func() error { return s.ended([]string{"p", "0"}) },
	)
	text, _ := p.stdout.text()
	want := fmt.Sprintf(`{"connections":{"accepted":%d,"active":0,"refused":%d}`, clients+1, clients-answered)
	if !strings.HasPrefix(text, want) {
		t.Errorf("the summary is %s, want %s", text, want)
	}
	if used := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime(); used > 3*time.Second {
		t.Errorf("it took %v of CPU time to wait", used)
	}
}

// Clients that stay take every descriptor: as many are served at once as the descriptors
// allow, and the rest waits in the accept queue.
func TestShortOfDescriptorsTheRestWaits(t *testing.T) {
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("needs prlimit of util-linux: ", err)
	}
	t.Setenv("GOMAXPROCS", "1") // the burst is accepted before any client is served
	s, variables := stageOf(t)
	play(t,
		func() error { return s.origin([]string{"ORIGIN"}) },
		func() error {
			return s.start([]string{"p", "proxy", "--listen", "127.0.0.1:0", "--to", variables["ORIGIN"], "--engine", "copy", "--log", "json"})
		},
	)
	p := s.processes["p"]
	if out, err := exec.Command(prlimit, "--pid", strconv.Itoa(p.cmd.Process.Pid), "--nofile=64:").CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v: %s", err, out)
	}
	const clients, atOnce = 80, 20
	play(t,
		func() error { return p.cmd.Process.Signal(syscall.SIGSTOP) },
		func() error { return greet(s, variables["p_ADDR"], clients) },
		func() error { return p.cmd.Process.Signal(syscall.SIGCONT) },
	)
	answers := make(chan net.Conn, clients)
	for _, conn := range s.clients {
		go func() {
			got := make([]byte, 5)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
				t.Errorf("got %q, %v", got, err)
			}
			answers <- conn
		}()
	}
	var stay []net.Conn
	for range atOnce {
		stay = append(stay, <-answers)
	}
	for _, conn := range stay {
		conn.Close()
	}
	for range clients - atOnce {
		(<-answers).Close()
	}
	play(t,
		func() error { return s.signal([]string{"p", "TERM"}) },
		func() error { return s.ended([]string{"p", "0"}) },
	)
	log, _ := p.stderr.text()
	if n := strings.Count(log, `"msg":"accepting paused"`); n != 1 {
		t.Errorf("told %d times that accepting paused: %s", n, log)
	}
}

// A proxy that is stopped has more clients in its queue than descriptors: they are served as
// descriptors become free.
func TestDrainWithFewDescriptors(t *testing.T) {
	t.Parallel()

	s, p, variables := withFewDescriptors(t)
	const clients = 80
	play(t,
		func() error { return p.cmd.Process.Signal(syscall.SIGSTOP) },
		func() error { return greet(s, variables["p_ADDR"], clients) },
		func() error { return s.signal([]string{"p", "TERM"}) },
		func() error { return p.cmd.Process.Signal(syscall.SIGCONT) },
	)
	if answered := part(t, s); answered != clients {
		t.Errorf("%d of %d clients were answered", answered, clients)
	}
	play(t, func() error { return s.ended([]string{"p", "0"}) })
	text, _ := p.stdout.text()
	if want := fmt.Sprintf(`{"connections":{"accepted":%d,"active":0,"refused":0}`, clients); !strings.HasPrefix(text, want) {
		t.Errorf("the summary is %s, want %s", text, want)
	}
}

// The reader of the log and of the summaries goes away: connections go on.
func TestBrokenPipesCostNoConnection(t *testing.T) {
	t.Parallel()

	s, variables := stageOf(t)
	play(t,
		func() error { return s.origin([]string{"ORIGIN"}) },
		func() error {
			return s.start([]string{"p", "proxy", "--listen", "127.0.0.1:0", "--to", variables["ORIGIN"], "--log-level", "debug"})
		},
		func() error { return s.client([]string{"a", "dial", variables["p_ADDR"]}) },
		func() error { return s.client([]string{"a", "send", "before"}) },
		func() error { return s.client([]string{"a", "expect", "before"}) },
	)
	p := s.processes["p"]
	p.stdout.abandon()
	p.stderr.abandon()
	for range 3 {
		play(t,
			func() error { return s.signal([]string{"p", "USR1"}) },
			func() error { return s.client([]string{"b", "dial", variables["p_ADDR"]}) },
			func() error { return s.client([]string{"b", "send", "hello"}) },
			func() error { return s.client([]string{"b", "expect", "hello"}) },
			func() error { return s.client([]string{"b", "finish"}) },
		)
	}
	play(t,
		func() error { return s.client([]string{"a", "send", "after"}) },
		func() error { return s.client([]string{"a", "expect", "after"}) },
		func() error { return s.client([]string{"a", "finish"}) },
		func() error { return s.signal([]string{"p", "TERM"}) },
	)
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != cli.ExitOK {
		t.Errorf("the program ends with %v", p.cmd.ProcessState)
	}
}
