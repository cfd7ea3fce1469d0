package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/cli"
)

// stalled returns a full pipe without a reader.
func stalled(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = w.Write(make([]byte, size))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	}
	return w
}

// stall starts a proxy with these readers of standard output and error, and returns the
// address of its unix socket.
func stall(t *testing.T, s *stage, stdout, stderr *os.File, args ...string) (address string) {
	t.Helper()
	address = s.workDir + "/stall.sock"
	p := &program{cmd: exec.Command(s.workDir+"/.bin/penstock", append([]string{"proxy", "--listen", "unix:" + address}, args...)...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	s.processes["p"] = p
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("unix", address); err == nil {
			conn.Close()
			return "unix:" + address
		}
	}
	t.Fatal("it does not listen")
	return ""
}

func code(t *testing.T, s *stage) int {
	t.Helper()
	p := s.processes["p"]
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("it has not ended")
	}
	return p.cmd.ProcessState.ExitCode()
}

// No reader of the log: connections are served all the same, signals obeyed.
func TestStalledLogCostsNothing(t *testing.T) {
	t.Parallel()

	s, variables := stageOf(t)
	play(t,
		func() error { return s.origin([]string{"ORIGIN"}) },
		func() error { return s.nobody([]string{"NOBODY"}) },
	)
	address := stall(t, s, nil, stalled(t), "--to", variables["NOBODY"], "--to", variables["ORIGIN"], "--log-level", "debug")
	play(t, func() error { return greet(s, address, 4) })
	for _, name := range []string{"0", "1", "2", "3"} {
		play(t, func() error { return s.client([]string{name, "expect", "hello"}) })
	}
	play(t,
		func() error { return s.signal([]string{"p", "TERM"}) },
		func() error { return waitRefused(address) },
		func() error { return s.signal([]string{"p", "TERM"}) },
	)
	if got := code(t, s); got != cli.ExitError {
		t.Errorf("the exit code is %d, want %d: sessions were cut", got, cli.ExitError)
	}
}

// waitRefused waits until no process listens on a unix socket any more.
func waitRefused(address string) error {
	path, _ := strings.CutPrefix(address, "unix:")
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return errors.New("it still listens")
}

// No reader of the summary: SIGTERM is obeyed, and SIGUSR1 ends nothing.
func TestStalledSummaryCostsNothing(t *testing.T) {
	t.Parallel()

	s, variables := stageOf(t)
	play(t, func() error { return s.origin([]string{"ORIGIN"}) })
	address := stall(t, s, stalled(t), nil, "--to", variables["ORIGIN"])
	play(t,
		func() error { return s.signal([]string{"p", "USR1"}) },
		func() error { return greet(s, address, 1) },
		func() error { return s.client([]string{"0", "expect", "hello"}) },
		func() error { return s.client([]string{"0", "finish"}) },
		func() error { return s.client([]string{"0", "close"}) },
		func() error { return s.signal([]string{"p", "TERM"}) },
	)
	if got := code(t, s); got != cli.ExitOK {
		t.Errorf("the exit code is %d, want %d", got, cli.ExitOK)
	}
}

// gate is a writer that waits to be released.
type gate struct {
	begun, open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	select {
	case g.begun <- struct{}{}:
	default:
	}
	<-g.open
	return g.Buffer.Write(p)
}

func TestSpoolDropsAndReports(t *testing.T) {
	t.Parallel()

	g := &gate{begun: make(chan struct{}, 1), open: make(chan struct{})}
	var dropped int64
	s := newAsyncWriter(g, func(n int64) { dropped += n })
	line := []byte("line\n")
	s.Write(line)
	<-g.begun // the first is taken out
	for range maxSpooled + 7 {
		s.Write(line)
	}
	line[0] = 'L' // it belongs to the caller again
	close(g.open)
	s.close(context.Background())
	if want := strings.Repeat("line\n", maxSpooled+1); g.String() != want || dropped != 7 {
		t.Errorf("%d bytes were written, %d dropped, want %d and 7", g.Len(), dropped, len(want))
	}
}

func TestSpoolGivesUpAtTheEnd(t *testing.T) {
	t.Parallel()

	g := &gate{begun: make(chan struct{}, 1), open: make(chan struct{})}
	s := newAsyncWriter(g, nil)
	s.Write([]byte("line\n"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.close(ctx)
	close(g.open)
	<-s.written
}

// A signal while the proxy opens ends it: here it waits for a lock on the directory.
func TestStopWhileItOpens(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	stops := make(chan os.Signal, 1)
	stops <- syscall.SIGTERM
	var stdout, stderr bytes.Buffer
	e := &cli.Env{Args: []string{"proxy", "--listen", "unix:" + dir + "/s", "--to", "127.0.0.1:1"}, Stdout: &stdout, Stderr: &stderr, Getenv: os.Getenv, Stops: stops}
	if code := run(e); code != cli.ExitOK || stdout.Len() != 0 || !strings.Contains(stderr.String(), "stopped before it listened") {
		t.Errorf("exit code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}
