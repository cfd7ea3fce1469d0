package sys_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// apart runs f on a thread of its own, in a new network namespace; it skips
// the test for those who may not have one.
func apart(t *testing.T, f func()) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with f
		if err = sys.Unshare(sys.CLONE_NEWNET); err == nil {
			f()
		}
	}()
	<-done
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no network namespace: unshare:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestInterfaceUpInANamespaceOfItsOwn(t *testing.T) {
	flags := func() net.Flags {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			t.Error(err)
			return 0
		}
		return lo.Flags
	}
	apart(t, func() {
		if flags()&net.FlagUp != 0 {
			t.Error("a new namespace has its loopback up")
		}
		if err := sys.InterfaceUp("lo"); err != nil {
			t.Error(err)
		}
		if flags()&net.FlagUp == 0 {
			t.Error("it is still down")
		}
	})
}

// TestLocalRoute: every address of this machine is its own, and one that is for
// documentation only (RFC 5737, RFC 3849) is not.
func TestLocalRoute(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]bool{
		netip.MustParseAddr("127.0.0.1"): true, netip.MustParseAddr("127.9.9.9"): true,
		netip.MustParseAddr("::ffff:127.0.0.1"): true,
		netip.MustParseAddr("192.0.2.1"):        false, netip.MustParseAddr("2001:db8::1"): false,
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			want[p.Addr()] = true
		}
	}
	for a, local := range want {
		if got, err := sys.LocalRoute(a); got != local || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
}

// TestOpenTUN: the device is in the namespace of its thread, and ends with its descriptor.
func TestOpenTUN(t *testing.T) {
	if _, err := sys.OpenTUN(strings.Repeat("n", 16)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a name that is too long: %v", err)
	}
	var missing error
	apart(t, func() {
		fd, err := sys.OpenTUN("path")
		if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			missing = err
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := net.InterfaceByName("path"); err != nil {
			t.Error(err)
		}
		if err := syscall.Close(fd); err != nil {
			t.Error(err)
		}
		if _, err := net.InterfaceByName("path"); err == nil {
			t.Error("it is there without its descriptor")
		}
	})
	if missing != nil {
		t.Skip("no TUN device here:", missing)
	}
}
