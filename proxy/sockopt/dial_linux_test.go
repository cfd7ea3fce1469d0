package sockopt_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestDialWaitsForAPlace: while the accept queue of a unix socket is full, a dial waits, until there is room or its time is over.
func TestDialWaitsForAPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("unix", path) // the one that fits
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := sockopt.Dial(t.Context(), &net.Dialer{Timeout: time.Second / 10}, "unix", path); !os.IsTimeout(err) {
		t.Errorf("with a full queue: %v", err)
	}
	ends := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), condition.Patience)
	defer cancel()
	go func() {
		c, err := sockopt.Dial(ctx, new(net.Dialer), "unix", path)
		if err == nil {
			c.Close()
		}
		ends <- err
	}()
	taken, _, err := syscall.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(taken)
	if err := condition.Receive(t, "the end of the dial", ends); err != nil {
		t.Errorf("with room: %v", err)
	}
}
