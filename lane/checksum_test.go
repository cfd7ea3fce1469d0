package lane_test

import (
	"net/netip"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/netns"
)

// sumsItself has the kernel compute the checksums of TCP segments that leave at a device.
func sumsItself(t *testing.T, h *netns.Host, device string) {
	t.Helper()
	var err error
	h.Run(func() { err = sys.CompleteChecksums(device) })
	if err != nil {
		t.Fatalf("checksums of %s: %v", device, err)
	}
}

// TestForwardedChecksums: an endpoint verifies the checksums of what the lane sends on, be they complete as the packet arrives, or those of the
// addresses alone, which a device completes.
func TestForwardedChecksums(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	near, _ := here.JoinIPv6(client, front)
	_, far := here.JoinIPv6(server, back)
	sumsItself(t, here, front.Device)
	sumsItself(t, here, back.Device)
	l := open(t, front.Device, back.Device)
	transfer := func(t *testing.T) {
		for i, to := range [][2]netip.Addr{{front.Near, back.Far}, {near, far}} {
			p := across(t, l, client, server, to[0], to[1])
			p.talk(t)
			p.transfer(t, 300_000, uint64(i), true)
		}
	}
	t.Run("of the addresses alone", transfer)
	sumsItself(t, client, front.Device)
	sumsItself(t, server, back.Device)
	t.Run("complete", transfer)
	if st := l.Stats(); st.Left != 4 || st.Reset != 0 {
		t.Errorf("%+v", st)
	}
}
