package sys_test

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestSetInterfaceMTUInANamespaceOfItsOwn(t *testing.T) {
	apart(t, func() {
		if err := sys.SetInterfaceMTU("lo", 1500); err != nil {
			t.Error(err)
		}
		lo, err := net.InterfaceByName("lo")
		if err != nil || lo.MTU != 1500 {
			t.Errorf("got %+v, %v; want an MTU of 1500", lo, err)
		}
		for name, want := range map[string]error{
			"no-such-one": syscall.ENODEV, strings.Repeat("x", 16): syscall.EINVAL,
		} {
			if err := sys.SetInterfaceMTU(name, 1500); err != want {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
	})
}
