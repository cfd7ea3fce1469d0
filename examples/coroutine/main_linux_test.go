package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/loop"
)

// serverName is the first argument of a process that serves: by coroutines, or by goroutines of package net.
const serverName = "coroutine-example"

type program struct{ *testing.M }

// Run serves, or runs the tests.
func (m program) Run() int {
	if os.Args[0] == serverName {
		os.Exit(serveAs(os.Args[1])) // with goroutines that serve
	}
	return m.M.Run()
}

func TestMain(m *testing.M) { leak.Main(program{m}) }

// serveAs serves a listener on descriptor 3, with the certificate on 4 and its key on 5, until standard input ends.
func serveAs(way string) int {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	cert, err1 := io.ReadAll(os.NewFile(4, "certificate"))
	key, err2 := io.ReadAll(os.NewFile(5, "key"))
	pair, err3 := tls.X509KeyPair(cert, key)
	if err := errors.Join(err, err1, err2, err3); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	go func() {
		if way == "loop" {
			_ = loop.Serve(l, func(c *loop.Conn) error { return answer(c, config) })
		}
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = answer(c, config); c.Close() }()
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// start starts such a process, and returns its address and number.
func start(t testing.TB, way string) (addr string, pid int) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	listener := must.Get(l.(*net.TCPListener).File())(t)
	defer listener.Close()
	cert, key := certificate.New(t, "localhost")
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Stderr = []string{serverName, way}, os.Stderr
	cmd.ExtraFiles = []*os.File{listener, piped(t, cert), piped(t, key)}
	stop, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	t.Cleanup(func() { stop.Close(); _ = cmd.Wait() })
	return l.Addr().String(), cmd.Process.Pid
}

// piped returns a file from which a text can be read.
func piped(t testing.TB, text string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err == nil {
		_, err = w.WriteString(text)
	}
	if err == nil {
		err = w.Close()
	}
	must.Do(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// A client sends lines.
type client struct {
	*tls.Conn
	*bufio.Reader
}

func dial(t testing.TB, addr string) client {
	t.Helper()
	c := must.Get(tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}))(t)
	t.Cleanup(func() { c.Close() })
	return client{c, bufio.NewReader(c)}
}

func (c client) ask(line string) (string, error) {
	if _, err := io.WriteString(c.Conn, line+"\n"); err != nil {
		return "", err
	}
	return c.ReadString('\n')
}

// TestAnswers: the same handler serves over TLS by coroutines and by package net.
func TestAnswers(t *testing.T) {
	for _, way := range []string{"loop", "net"} {
		addr, _ := start(t, way)
		var all sync.WaitGroup
		for i := range 8 {
			c := dial(t, addr)
			all.Go(func() {
				for j := range 20 {
					line := fmt.Sprintf("line %d of %d", j, i)
					if got, err := c.ask(line); err != nil || got != strings.ToUpper(line)+"\n" {
						t.Errorf("%s: %q, %v", way, got, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}
