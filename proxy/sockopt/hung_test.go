package sockopt_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/internal/testutil/sockets"
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

// TestDialFollowsNoForeignLink: a link of another user leads to that user's sockets only. The error has the path.
func TestDialFollowsNoForeignLink(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	const nobody = 65534
	dir := sockets.Dir(t)
	path, link := filepath.Join(dir, "s"), filepath.Join(dir, "link")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := errors.Join(os.Symlink("s", link), os.Lchown(link, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	dial := func() error {
		c, err := sockopt.Dial(t.Context(), new(net.Dialer), "unix", link)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(); !errors.Is(err, sys.ErrLink) || !strings.HasPrefix(err.Error(), "dial unix "+link+": connect: ") {
		t.Error(err)
	}
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := dial(); err != nil {
		t.Error(err)
	}
	ln.Close()
	if err := dial(); err == nil || err.Error() != "dial unix "+link+": connect: no such file or directory" {
		t.Error(err)
	}
}
