// Package echo_test builds the servers and runs them as the bench does.
package echo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/echo"
	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/testutil/software"
)

// servers lists all servers: a program, and a way in which it serves.
var servers = []struct{ program, way string }{
	{"loop", ""}, {"coroutine", ""}, {"coroutine", "callback"}, {"coroutine", "idle"}, {"gnet", ""}, {"netpoll", ""}, {"nethttp", ""}, {"std", ""},
}

// patience limits each step of a test but the building.
const patience = time.Minute

func TestServers(t *testing.T) {
	software.Unraced(t, "servers in processes of their own")
	dir := t.TempDir()
	if said, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, s := range servers {
		path := filepath.Join(dir, s.program)
		if s.program != "nethttp" {
			t.Run(s.program+s.way, func(t *testing.T) {
				address, end := start(t, path, "echo", s.way)
				for _, size := range []int{1, 64, 4096, 1 << 20} {
					exchange(t, address, size)
				}
				end()
			})
		}
		if s.program != "loop" && s.way != "idle" {
			t.Run("hello "+s.program+s.way, func(t *testing.T) {
				address, end := start(t, path, "hello", s.way)
				hello(t, address)
				end()
			})
		}
	}
}

// hello has two requests answered on one connection, the second of which comes in two pieces.
func hello(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for _, pieces := range [][][]byte{{traffic.HelloRequest}, {traffic.HelloRequest[:10], traffic.HelloRequest[10:]}} {
		for _, p := range pieces {
			if _, err := c.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		var answer []byte
		for complete := false; !complete; {
			b := make([]byte, 1024)
			n, err := c.Read(b)
			if err != nil {
				t.Fatalf("%q, %v", answer, err)
			}
			answer = append(answer, b[:n]...)
			if complete, err = traffic.HelloResponse(answer); err != nil {
				t.Fatalf("%q: %v", answer, err)
			}
		}
	}
}

func TestLines(t *testing.T) {
	for program, services := range map[string][]string{"std": {"echo", "hello"}, "coroutine": {"echo", "hello", "idle"}, "nethttp": {"hello"}} {
		for _, service := range services {
			if n, err := echo.Lines(program, service); err != nil || n < 20 || n > 100 {
				t.Errorf("%s, %s: %d lines, %v", program, service, n, err)
			}
		}
	}
	if _, err := echo.Lines("none", "echo"); err == nil {
		t.Error("the lines of a program that is none")
	}
}

// start runs a server, and returns its address and a function that ends it.
func start(t *testing.T, path string, args ...string) (address string, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var l struct{ Address string }
	if err := json.NewDecoder(out).Decode(&l); err != nil {
		t.Fatal(err)
	}
	return l.Address, func() {
		t.Helper()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server did not end with its standard input: %v", err)
		}
	}
}

// exchange has a message echoed, ends its own side, and then expects the end of the connection.
func exchange(t *testing.T, address string, size int) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	message := make([]byte, size)
	for i := range message {
		message[i] = byte(i * 7)
	}
	sent := make(chan error, 1)
	go func() { _, err := c.Write(message); sent <- err }()
	back := make([]byte, size)
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, message) {
		t.Errorf("%d bytes: the echoed bytes are wrong, or %v", size, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	if n, err := c.Read(back); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
}
