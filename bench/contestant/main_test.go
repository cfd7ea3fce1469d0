package contestant_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

const (
	// childName is the first argument of a test binary that runs as a child.
	childName = "penstock-contestant-test"
	// forever is longer than any step of a test may take.
	forever = time.Minute
	// workers is the number of workers of nginx and Envoy.
	workers = 2
)

// self is this program.
var self = contestant.Program{
	Path: "/proc/self/exe", Name: childName, Part: []string{"part"}, Proxy: []string{"proxy"}, Run: []string{"run"},
}

func TestMain(m *testing.M) { child.Main(m, childName, run) }

func run(args []string) error {
	// One thread may get the signal after another one has seen the end of stdin: so the signal
	// stays caught until the end.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	if args[0] == "part" && args[1] == contestant.PartRival {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Printf("{\"address\":%q}\n", l.Addr())
		switch args[3] {
		case contestant.RivalCopy:
			return rival.ServeCopying(ctx, l, args[2])
		case contestant.RivalRelay:
			return rival.ServeRelay(ctx, l, args[2])
		}
		return rival.Serve(ctx, l, args[2])
	}
	if args[0] == "run" {
		return standin.Serve(ctx, args[2], 1000)
	}
	return standin.Proxy(ctx, args[1:], 1000, nil)
}

// setting is a group with an echo server, isolated if possible.
func setting(t *testing.T) *contestant.Setting {
	t.Helper()
	g, err := process.NewIsolatedGroup()
	if errors.Is(err, syscall.EPERM) {
		t.Log("without a network namespace:", err)
		g, err = process.NewGroup(), nil
	}
	must.Do(t, err)
	t.Cleanup(g.Close)
	dir := sockets.Dir(t)
	return &contestant.Setting{
		Group: g, Upstream: echo(t, g), Dir: dir, Threads: workers, Patience: forever, Program: self,
	}
}

// echo serves an echo in the group's network namespace until the test ends.
func echo(t *testing.T, g *process.Group) string {
	t.Helper()
	l := listen(t, g, "127.0.0.1:0")
	sockets.Serve(t, l, func(c net.Conn) {
		if skip(c) {
			sockets.Echo(c)
		}
	})
	return l.Addr().String()
}

// skip reads the header that a contestant may have put before a client's bytes, and answers the
// bytes that followed it.
func skip(c net.Conn) bool {
	var came []byte
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		came = append(came, b[:n]...)
		before, whole := traffic.ProxyHeader(came)
		switch {
		case err != nil:
			return false
		case whole:
			_, err = c.Write(came[before:])
			return err == nil
		}
	}
}

// listen listens in the group's network namespace until the test ends.
func listen(t *testing.T, g *process.Group, at string) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	if closed := g.Do(func() { l, err = net.Listen("tcp", at) }); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dial connects in the group's network namespace.
func dial(t *testing.T, g *process.Group, to string) *net.TCPConn {
	t.Helper()
	var c net.Conn
	var err error
	if closed := g.Do(func() { c, err = net.Dial("tcp", to) }); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	t.Cleanup(func() { _ = c.Close() })
	must.Do(t, c.SetDeadline(time.Now().Add(forever)))
	return c.(*net.TCPConn)
}

// carry sends n bytes through a contestant, then the end once all have come back, and checks the
// echoed bytes. An end behind bytes in flight is of TestCorrectness:
// HAProxy 2.6, with pipes of its own size, resets one connection in fifty on a busy machine.
func carry(t *testing.T, s *contestant.Setting, c *contestant.Contestant, n int) {
	t.Helper()
	conn := dial(t, s.Group, c.Address)
	defer conn.Close()
	message := bytes.Repeat([]byte("0123456789abcde"), n/15+1)[:n]
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(message)
		sent <- err
	}()
	got := make([]byte, n)
	_, err := io.ReadFull(conn, got)
	if err := errors.Join(err, <-sent, conn.CloseWrite()); err != nil {
		t.Errorf("%s: %v", c.Name, err)
	}
	if more, err := io.ReadAll(conn); len(more) > 0 || err != nil {
		t.Errorf("%s: %d bytes too many, %v", c.Name, len(more), err)
	}
	if !bytes.Equal(got, message) {
		t.Errorf("%s: sent %d bytes, received %d, or other bytes", c.Name, len(message), len(got))
	}
}

// start starts a kind. If its program is missing the test is skipped. If CI is set it fails,
// except for Envoy.
func start(t *testing.T, name string, s *contestant.Setting) *contestant.Contestant {
	t.Helper()
	k := must.Get(contestant.Named(name))(t)
	if err := k.Available(t.Context(), s); err != nil {
		if os.Getenv("CI") != "" && name != "envoy" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	c := must.Get(k.Start(t.Context(), s))(t)
	t.Cleanup(c.Kill)
	return c
}

func script(t *testing.T, commands string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+commands+"\n"), 0o755))
	return path
}

func installed(t *testing.T, name string) string {
	t.Helper()
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}
