package sys_test

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func tcpSocket(t *testing.T) int {
	t.Helper()
	fd, err := sys.StreamSocket(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sys.Close(fd) })
	return fd
}

func TestCongestionControls(t *testing.T) {
	available, allowed, err := sys.CongestionControls()
	if err != nil {
		t.Skipf("this kernel does not list its congestion controls: %v", err)
	}
	usual, err := sys.DefaultCongestion()
	if err != nil || !slices.Contains(available, usual) {
		t.Errorf("the default is %q, %v, of %q", usual, err, available)
	}
	fd := tcpSocket(t)
	if got, err := sys.Congestion(fd); err != nil || got != usual {
		t.Errorf("a new socket has %q, %v, want %q", got, err, usual)
	}
	for _, name := range available {
		err := sys.SetCongestion(fd, name)
		if err == syscall.EPERM && !slices.Contains(allowed, name) {
			continue
		}
		got, readErr := sys.Congestion(fd)
		if err != nil || readErr != nil || got != name {
			t.Errorf("set %s: %v; it is %q, %v", name, err, got, readErr)
		}
	}
}

func TestCongestionRefused(t *testing.T) {
	fd := tcpSocket(t)
	if err := sys.SetCongestion(fd, "no_such_thing"); err != syscall.ENOENT {
		t.Errorf("one that there is not: %v, want ENOENT", err)
	}
	for _, name := range []string{"", "sixteen_letters_"} {
		if err := sys.SetCongestion(fd, name); err != syscall.EINVAL {
			t.Errorf("%q: %v, want EINVAL", name, err)
		}
	}
}
