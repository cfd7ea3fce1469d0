package sockopt_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestPlaceOnAHungFileSystem: a file system that does not answer is given up, and the path stands for itself.
func TestPlaceOnAHungFileSystem(t *testing.T) {
	t.Parallel()
	dir := hung.Dir(t)
	path := filepath.Join(dir, "link")
	if err := os.Symlink("to", path); err != nil {
		t.Fatal(err)
	}
	hung.Mount(t, dir)
	for range 20 {
		if got := (sockopt.Address{Network: "unix", Name: path}).Place(); got != "unix:"+path {
			t.Error(got)
		}
	}
}

// TestDialOnAHungFileSystem: a dial ends when its time is over, or is cancelled, and other dials go on.
func TestDialOnAHungFileSystem(t *testing.T) {
	t.Parallel()
	dir := hung.Dir(t)
	hung.Mount(t, dir)
	path := filepath.Join(dir, "s")
	ends := make(chan error)
	const dials = 10
	for range dials {
		go func() {
			_, err := sockopt.Dial(t.Context(), &net.Dialer{Timeout: time.Second / 10}, "unix", path)
			ends <- err
		}()
	}
	for range dials {
		if err := condition.Receive(t, "the end of a dial", ends); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := sockopt.Dial(ctx, new(net.Dialer), "unix", path)
		ends <- err
	}()
	cancel()
	if err := condition.Receive(t, "the end of a cancelled dial", ends); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := sockopt.Dial(t.Context(), new(net.Dialer), "unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
