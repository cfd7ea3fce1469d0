package worker_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestFirstBytesThatFillAUnixSocket: a client whose pieces fill a socket before they are looked at once, so that no
// further event comes of it, is served, by all of its first bytes.
func TestFirstBytesThatFillAUnixSocket(t *testing.T) {
	t.Parallel()

	const header = "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"
	hello := helloOf(t, "full.example", strings.Repeat("p", 200))
	long := []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1000) + "\r\nHost: full.example\r\n\r\n")
	for name, x := range map[string]struct {
		header string
		sent   []byte
		worker.Preread
	}{
		"hello":            {sent: hello, Preread: worker.Preread{Hello: true, AnyHello: true}},
		"header and hello": {header: header, sent: hello, Preread: worker.Preread{Hello: true, AnyHello: true, Header: new(proxyproto.Policy)}},
		"first bytes":      {sent: long, Preread: worker.Preread{First: new(hosts)}},
		"look":             {sent: hello},
	} {
		for of, room := range map[string]int{"": 0, " with little room": 1} {
			t.Run(name+of, func(t *testing.T) {
				d := straight(echo(t))
				connect := d.next
				d.next = func(c *worker.Client, n int) worker.Step {
					looks := !x.Hello && x.First == nil
					switch {
					case x.Hello && c.Hello.ServerName != "full.example":
						t.Errorf("the hello's name is %q", c.Hello.ServerName)
					case looks && n == 1:
						return worker.Step{Action: worker.Look, Need: len(x.sent), Most: len(x.sent)}
					case looks && n == 2 && string(c.Looked) != string(x.sent):
						t.Errorf("%d bytes of %d are looked at", len(c.Looked), len(x.sent))
					}
					return connect(c, n)
				}
				r := newRigAt(t, "unix", sockets.Dir(t)+"/proxy", func(c *worker.Config) {
					c.Listeners[0].Service = serviceOf(t, d)
					c.Listeners[0].Service.Preread = x.Preread
					c.Listeners[0].Service.Preread.Timeout = 20 * time.Second
				})
				c, sent := r.dial(t), []byte(x.header+string(x.sent))
				queued := fill(t, c, sent, room)
				r.serve(t)
				for i := range sent[queued:] {
					mustWrite(t, c, sent[queued+i:queued+i+1])
				}
				mustRead(t, c, x.sent)
				talk(t, c)
			})
		}
	}
}

// fill writes bytes one at a time until there is no room for more, and returns how many. room is the size of the
// socket's send buffer, unless it is 0.
func fill(t *testing.T, c net.Conn, b []byte, room int) (n int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var full error
	err = raw.Control(func(fd uintptr) {
		if room > 0 {
			full = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, room)
		}
		for n < len(b) && full == nil {
			if _, full = syscall.Write(int(fd), b[n:n+1]); full == nil {
				n++
			}
		}
	})
	if err != nil || full != syscall.EAGAIN {
		t.Fatalf("after %d bytes: %v, %v; want a full socket", n, err, full)
	}
	return n
}

// TestFirstBytesBeyondTheReceiveBuffer: where the receive buffer is smaller than a client's first bytes, so that its window closes before
// they are there, they are taken out, and the client is served, however they are cut.
func TestFirstBytesBeyondTheReceiveBuffer(t *testing.T) {
	t.Parallel()

	hello := largeHello(t, "full.example")
	long := []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 7000) + "\r\nHost: full.example\r\n\r\n")
	for name, x := range map[string]struct {
		sent []byte
		worker.Preread
	}{
		"hello":       {hello, worker.Preread{Hello: true}},
		"first bytes": {long, worker.Preread{First: new(hosts)}},
		"look":        {hello, worker.Preread{}},
	} {
		for _, piece := range []int{1, 1000, len(x.sent)} {
			t.Run(fmt.Sprintf("%s by %d", name, piece), func(t *testing.T) {
				d := straight(echo(t))
				connect := d.next
				d.next = func(c *worker.Client, n int) worker.Step {
					if n == 1 && !x.Hello && x.First == nil {
						return worker.Step{Action: worker.Look, Need: len(x.sent), Most: len(x.sent)}
					}
					return connect(c, n)
				}
				r := newRigAt(t, "tcp", "127.0.0.1:0", func(c *worker.Config) {
					c.Listeners[0].Service = serviceOf(t, d)
					c.Listeners[0].Service.Preread = x.Preread
					c.Listeners[0].Service.Preread.Timeout = 20 * time.Second
					if err := syscall.SetsockoptInt(c.Listeners[0].FD, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1); err != nil {
						t.Fatal(err)
					}
				})
				r.serve(t)
				c := r.dial(t)
				go func() {
					for part := range slices.Chunk(x.sent, piece) {
						if _, err := c.Write(part); err != nil {
							return
						}
					}
				}()
				mustRead(t, c, x.sent)
			})
		}
	}
}
