package worker_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// earlyRig is a group of one place in front of a unix socket whose accept queue is full,
// until the test accepts from it.
func earlyRig(t *testing.T, network string) (r *rig, target net.Listener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "target")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	if target, err = loop.GiveListener(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	first, err := net.Dial("unix", path) // the one that fits, and stays in the queue
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "proxy")
	}
	r = newRigAt(t, network, addr, func(c *worker.Config) {
		c.Listeners[0].Service, c.MaxConnections = to(t, "unix:"+path), 1
	})
	r.serve(t)
	return r, target
}

// dialing connects a client, and waits until its target is being dialed.
func (r *rig) dialing(t *testing.T) interface {
	net.Conn
	CloseWrite() error
} {
	t.Helper()
	c := r.dial(t)
	eventually(t, func() bool { return r.Active() == 1 })
	return c.(interface {
		net.Conn
		CloseWrite() error
	})
}

// answer lets the target take the clients that wait for it, reads the next one's
// request to its end, and answers.
func answer(t *testing.T, target net.Listener) (request string) {
	t.Helper()
	for range 2 {
		c, err := target.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("answer"))
		request = string(got)
	}
	return request
}

// A client that has gone while its target is dialed frees its place at once.
func TestClientThatLeavesEarly(t *testing.T) {
	t.Parallel()

	for name, leave := range map[string]func(net.Conn){
		"tcp/reset":          func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() },
		"tcp/sent and reset": func(c net.Conn) { c.Write([]byte("x")); c.(*net.TCPConn).SetLinger(0); c.Close() },
		"tcp/ended and reset": func(c net.Conn) {
			c.(*net.TCPConn).CloseWrite()
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		},
		"unix/closed": func(c net.Conn) { c.Close() },
		"unix/ended and closed": func(c net.Conn) {
			c.(*net.UnixConn).CloseWrite()
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			network, _, _ := strings.Cut(name, "/")
			r, _ := earlyRig(t, network)
			for range 3 {
				leave(r.dialing(t))
				eventually(t, func() bool { return r.Active() == 0 })
			}
			if sum := r.Summary(); sum.Accepted != 3 || sum.Refused != 0 || sum.Active != 0 {
				t.Errorf("the summary is %+v", sum)
			}
		})
	}
}

// A client that has sent its end of file still wants the answer. The bytes of a client that
// has closed are still delivered.
func TestClientThatSendsAndWaits(t *testing.T) {
	t.Parallel()

	for _, network := range []string{"tcp", "unix"} {
		for _, c := range []struct {
			request string
			closes  bool
		}{{"", false}, {"request", false}, {"request", true}} {
			t.Run(fmt.Sprintf("%s/%q/closes=%v", network, c.request, c.closes), func(t *testing.T) {
				testClientThatSendsAndWaits(t, network, c.request, c.closes)
			})
		}
	}
}

func testClientThatSendsAndWaits(t *testing.T, network, request string, closes bool) {
	r, target := earlyRig(t, network)
	client := r.dialing(t)
	if _, err := client.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	end := client.CloseWrite
	if closes {
		end = client.Close
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	r.Turn() // in which the loops get its event
	if n := r.Active(); n != 1 {
		t.Fatalf("%d clients have a place", n)
	}
	if got := answer(t, target); got != request {
		t.Fatalf("the target gets %q", got)
	}
	if closes {
		return
	}
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Errorf("the client gets %q, %v", got, err)
	}
}
