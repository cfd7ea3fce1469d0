package sys_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

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
