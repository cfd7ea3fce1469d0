package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
)

// stageOf lets a test use what scripts use.
func stageOf(t *testing.T) (s *stage, variables map[string]string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, variables = newStage(), map[string]string{}
	s.workDir = t.TempDir()
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

// More clients than descriptors: accepting pauses, is told of once, and resumes as
// clients go. All are served.
func TestOutOfDescriptors(t *testing.T) {
	s, variables := stageOf(t)
	play(t,
		func() error { return s.origin([]string{"ORIGIN"}) },
		func() error {
			return s.start([]string{"p", "ulimit=64", "proxy", "--listen", "127.0.0.1:0", "--to", variables["ORIGIN"], "--max-connections", "1000", "--log", "json"})
		},
	)
	const clients = 80
	for i := range clients {
		name := fmt.Sprint(i)
		play(t,
			func() error { return s.client([]string{name, "dial", variables["p_ADDR"]}) },
			func() error { return s.client([]string{name, "send", "hello"}) },
		)
	}
	play(t, func() error {
		return s.stderrHas([]string{"p", `"level":"WARN","msg":"accepting paused".*too many open files`})
	})
	var served sync.WaitGroup
	for _, conn := range s.clients {
		served.Go(func() {
			got := make([]byte, 5)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
				t.Errorf("got %q, %v", got, err)
			}
			conn.Close()
		})
	}
	served.Wait()
	play(t,
		func() error { return s.stderrHas([]string{"p", `"msg":"accepting resumed"`}) },
		func() error { return s.signal([]string{"p", "TERM"}) },
		func() error { return s.ended([]string{"p", "0"}) },
	)
	text, _ := s.processes["p"].stdout.text()
	var accepted, refused int
	if _, err := fmt.Sscanf(text, `{"connections":{"accepted":%d,"active":0,"refused":%d}`, &accepted, &refused); err != nil || accepted != clients || refused != 0 {
		t.Errorf("%d of %d clients were accepted, %d refused: %v", accepted, clients, refused, err)
	}
}

// The reader of the log and of the summaries goes away: connections go on.
func TestBrokenPipesCostNoConnection(t *testing.T) {
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
	if code := p.cmd.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("the program ends with %v", p.cmd.ProcessState)
	}
}
