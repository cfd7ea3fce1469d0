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
)

// TestUrgentByte: a byte sent as urgent data arrives in its place, in both directions, over TCP
// and over unix sockets (which have urgent data since Linux 5.15).
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
