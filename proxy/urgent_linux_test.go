package proxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

// TestUrgentByte: a byte that is sent as urgent data arrives in its place, whoever sends
// it, over TCP and over unix sockets (which have urgent data since Linux 5.15).
func TestUrgentByte(t *testing.T) { eachDriver(t, testUrgentByte) }

func testUrgentByte(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			listen, target := "127.0.0.1:0", "127.0.0.1:0"
			if network == "unix" {
				dir := t.TempDir()
				listen, target = "unix:"+filepath.Join(dir, "l"), "unix:"+filepath.Join(dir, "e")
			}
			far := make(chan net.Conn, 1)
			over := make(chan struct{})
			defer close(over)
			r := serve(t, proxy.Config{Listen: []socket.Address{parse(t, listen)}}, endpoint(t, target, func(c net.Conn) {
				far <- c
				<-over
			}))
			client := r.dial(t)
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
