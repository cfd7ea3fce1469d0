package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestUrgentByte: a byte sent as urgent data arrives in its place, in both directions: over TCP as urgent data, which a peer takes
// in line or drops as without a proxy, and over unix sockets (which have urgent data since Linux 5.15) in the stream.
func TestUrgentByte(t *testing.T) {
	t.Parallel()

	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			dir := t.TempDir()
			bind, at := "127.0.0.1:0", "127.0.0.1:0"
			if network == "unix" {
				bind, at = "unix:"+filepath.Join(dir, "l"), filepath.Join(dir, "e")
			}
			ln, err := net.Listen(network, at)
			if err != nil {
				t.Fatal(err)
			}
			far, over := make(chan net.Conn, 1), make(chan struct{})
			defer close(over)
			sockets.Serve(t, ln, func(c net.Conn) {
				far <- c
				<-over
			})
			endpoint := ln.Addr().String()
			if network == "unix" {
				endpoint = "unix:" + endpoint
			}
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: %q, upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, bind, endpoint))
			client, err := net.Dial(network, strings.TrimPrefix(r.At("l"), "unix:"))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_ = client.SetDeadline(time.Now().Add(patience))
			server := <-far
			for _, way := range []struct{ from, to net.Conn }{{client, server}, {server, client}} {
				if c, ok := way.to.(*net.TCPConn); ok {
					if err := sys.SetsockoptInt(sockets.FD(t, c), sys.SOL_SOCKET, sys.SO_OOBINLINE, 1); err != nil {
						t.Fatal(err)
					}
				}
				err := sendAroundUrgent(way.from, "before", "after")
				if errors.Is(err, syscall.EOPNOTSUPP) {
					t.Skip("unix sockets of this kernel have no urgent data (CONFIG_AF_UNIX_OOB)")
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(way.to)
				if want := []byte("before!after"); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
		})
	}
}

// sendAroundUrgent sends an urgent byte between two texts, and the end of file.
func sendAroundUrgent(c net.Conn, before, after string) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	if _, err := c.Write([]byte(before)); err != nil {
		return err
	}
	waited := raw.Write(func(fd uintptr) bool {
		_, err = sys.Send(int(fd), []byte{'!'}, sys.MSG_OOB|sys.MSG_NOSIGNAL)
		return true
	})
	if err := errors.Join(waited, err); err != nil {
		return err
	}
	if _, err := c.Write([]byte(after)); err != nil {
		return err
	}
	return c.(interface{ CloseWrite() error }).CloseWrite()
}

// TestUrgentByteIsUrgent: an urgent byte is passed on as one, both ways, in user space and in the lane: a peer that does not take it in line
// gets the bytes around it, and the byte by MSG_OOB, as a database does whose breaks are urgent bytes.
func TestUrgentByteIsUrgent(t *testing.T) {
	t.Parallel()

	for _, in := range []string{"off", "auto"} {
		t.Run(in, func(t *testing.T) {
			if in == "auto" && !laned(t) {
				return
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			far, over := make(chan net.Conn, 1), make(chan struct{})
			defer close(over)
			sockets.Serve(t, ln, func(c net.Conn) {
				far <- c
				<-over
			})
			r := start(t, laneConfig(ln.Addr().String(), "lane: "+in))
			c := client(t, r.At("l"))
			server := <-far
			_ = server.SetDeadline(time.Now().Add(patience))
			r.Until("it is where it is to be", func() bool {
				for _, way := range []struct{ from, to net.Conn }{{c, server}, {server, c}} {
					if _, err := way.from.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(way.to, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				s := r.session(t)
				return s != nil && (s.Engine == admin.EngineLane) == (in == "auto")
			})
			for _, way := range []struct{ from, to net.Conn }{{c, server}, {server, c}} {
				if err := sendAroundUrgent(way.from, "before", "after"); err != nil {
					t.Fatal(err)
				}
				got, urgent := make([]byte, len("before")), make([]byte, 1)
				if _, err := io.ReadFull(way.to, got); err != nil || string(got) != "before" {
					t.Errorf("got %q, %v", got, err)
				}
				fd := sockets.FD(t, way.to.(*net.TCPConn))
				r.Until("the urgent byte comes", func() bool {
					n, err := sys.Recv(fd, urgent, sys.MSG_OOB|sys.MSG_DONTWAIT)
					return n == 1 && err == nil
				})
				if rest, err := io.ReadAll(way.to); string(urgent)+string(rest) != "!after" || err != nil {
					t.Errorf("got %q and then %q, %v", urgent, rest, err)
				}
			}
		})
	}
}

// TestFirstByteThatIsUrgent: a first byte that was sent as urgent data is looked at, so the endpoint gets it in the stream: else it would
// read others than those that the route was chosen by.
func TestFirstByteThatIsUrgent(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{match: {bytes: [{text: "!after"}]}, upstream: u}]}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, sockets.Server(t, sockets.Echo)))
	c := client(t, r.At("l"))
	if err := sendAroundUrgent(c, "", "after"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != "!after" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
