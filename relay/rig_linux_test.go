package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
)

// awaitReset waits until the kernel knows of the reset of an end: while a system call has the socket, a reset waits for it, and a
// write may still succeed.
func awaitReset(t testing.TB, of near) {
	t.Helper()
	condition.Await(t, "the reset", func() (reset bool) {
		of(func(fd int) {
			state, err := sys.TCPState(fd)
			reset = err == nil && state == sys.TCP_CLOSE
		})
		return reset
	})
}

// The helper processes are the far ends of many sessions, so that their
// descriptors are not this process's. They live until their standard input ends.

func init() {
	helpers["origin"] = helperOrigin
	helpers["dialers"] = helperDialers
}

// idleBytes is what every session carries each way.
const idleBytes = 64 << 10

// helperOrigin accepts connections for ever, answers each one's bytes with as many
// of its own, and closes it when the other side does.
func helperOrigin() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	succeed(err)
	fmt.Println(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			succeed(err)
			go func() {
				succeed(carry(c, false))
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// helperDialers opens the number of connections in its environment, sends over
// each and waits for as many bytes, says so, and keeps them open.
func helperDialers() {
	n, err := strconv.Atoi(os.Getenv("RELAY_TEST_CONNS"))
	succeed(err)
	conns := make([]net.Conn, n)
	var wg sync.WaitGroup
	turns := make(chan struct{}, 64)
	for i := range conns {
		turns <- struct{}{}
		wg.Go(func() {
			c, err := net.Dial("tcp", os.Getenv("RELAY_TEST_ADDR"))
			succeed(err)
			conns[i] = c
			succeed(carry(c, true))
			<-turns
		})
	}
	wg.Wait()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, c := range conns {
		c.Close()
	}
}

// carry sends and receives idleBytes.
func carry(c net.Conn, first bool) error {
	buf := make([]byte, idleBytes)
	send := func() error { _, err := c.Write(buf); return err }
	receive := func() error { _, err := io.ReadFull(c, buf); return err }
	steps := []func() error{receive, send}
	if first {
		steps = []func() error{send, receive}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func succeed(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}

// A helper is a running helper process.
type helper struct {
	t     testing.TB
	out   *bufio.Reader
	stdin io.Closer
	cmd   *exec.Cmd
}

func startHelper(t testing.TB, name string, env ...string) *helper {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), "RELAY_TEST_HELPER="+name), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin := must.Get(cmd.StdinPipe())(t)
	stdout := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	h := &helper{t: t, out: bufio.NewReader(stdout), stdin: stdin, cmd: cmd}
	t.Cleanup(h.stop)
	return h
}

// line returns the next line that the helper prints.
func (h *helper) line() string {
	h.t.Helper()
	s, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("helper said nothing: %v", err)
	}
	return strings.TrimSpace(s)
}

// stop ends the helper and waits for it.
func (h *helper) stop() {
	h.stdin.Close()
	_ = h.cmd.Wait()
}

// awaitQueued waits until a connection has bytes in its receive queue.
func awaitQueued(t testing.TB, c net.Conn) {
	t.Helper()
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			return !errors.Is(err, syscall.EAGAIN)
		})
	}
	must.Do(t, err)
}
