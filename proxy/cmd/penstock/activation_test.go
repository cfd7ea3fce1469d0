package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// unit is a socket unit of systemd: it keeps its listening socket while services come and
// go.
func unit(t *testing.T) (socket *os.File, address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if socket, err = ln.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return socket, ln.Addr().String()
}

// activated runs the program on a configuration, as systemd would. It returns a function that
// sends it a signal, its log, and a function that drains it, or kills it if that takes too
// long.
func activated(t *testing.T, config string, socket *os.File, notify string) (signal func(os.Signal), log *output, stop func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "penstock") // see TestMain
	if err := os.Symlink(exe, name); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := exec.CommandContext(ctx, "sh", "-c", `LISTEN_PID=$$ exec "$0" run --config "$1"`, name, config)
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=web", "NOTIFY_SOCKET="+notify)
	cmd.ExtraFiles = []*os.File{socket}
	log = newOutput()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		defer cancel()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			text, _ := log.text()
			t.Errorf("%v\n%s", err, text)
		}
	}
	t.Cleanup(stop)
	return func(s os.Signal) { _ = cmd.Process.Signal(s) }, log, stop
}

// TestSocketsOutliveTheProcess: clients that come while no process serves systemd's socket
// wait for the next one. That process reports to systemd when it is ready, with its status.
func TestSocketsOutliveTheProcess(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, ln, func(c net.Conn) {
		fmt.Fprint(c, "served\n")
		sockets.Echo(c)
	})
	dir := t.TempDir()
	config := filepath.Join(dir, "penstock.yaml")
	text := fmt.Sprintf("listeners: [{name: web, bind: \"systemd:web\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]\n", ln.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	hears := func(want string) {
		t.Helper()
		b := make([]byte, 4096)
		for {
			_ = told.SetReadDeadline(time.Now().Add(patience))
			n, err := told.Read(b)
			if err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			if strings.Contains(string(b[:n]), want) {
				return
			}
		}
	}
	socket, address := unit(t)
	for range 2 {
		early, err := net.Dial("tcp", address) // before there is a process
		if err != nil {
			t.Fatal(err)
		}
		defer early.Close()
		_, _, stop := activated(t, config, socket, told.LocalAddr().String())
		hears("READY=1")
		_ = early.SetDeadline(time.Now().Add(patience))
		if got, err := bufio.NewReader(early).ReadString('\n'); got != "served\n" {
			t.Errorf("%q, %v", got, err)
		}
		_ = early.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, early)
		stop()
		hears("STOPPING=1")
	}
}

// TestPassedSocketsOutliveAFailedReload: a passed socket that is first named by a reload that
// fails is there for the next one.
func TestPassedSocketsOutliveAFailedReload(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, ln, func(c net.Conn) { fmt.Fprint(c, "served\n") })
	dir := t.TempDir()
	config := filepath.Join(dir, "penstock.yaml")
	write := func(binds string) {
		t.Helper()
		text := fmt.Sprintf("listeners: [{name: web, bind: [%s], upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]\n", binds, ln.Addr())
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`"127.0.0.1:0"`)
	socket, address := unit(t)
	signal, log, _ := activated(t, config, socket, "")
	logs := func(expr string) {
		t.Helper()
		if _, err := log.wait(expr, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	logs(`systemd has passed sockets that no listener names`)
	logs(`msg=starting`)
	for i := range 2 {
		write(`"systemd:web", "unix:` + dir + `/no/such/directory"`)
		signal(syscall.SIGHUP)
		if _, err := log.wait(`reload refused`, i+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	write(`"systemd:web"`)
	signal(syscall.SIGHUP)
	logs(`generation=2`)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if got, err := bufio.NewReader(c).ReadString('\n'); got != "served\n" {
		t.Errorf("%q, %v", got, err)
	}
}
