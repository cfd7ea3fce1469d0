package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneBigTCP: a session whose client sends packets above 64 KiB comes back from the lane, and stays in user space, for that reason.
func TestLaneBigTCP(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	here, far, endpoint := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(far), here.Join(endpoint)
	at, _ := here.JoinIPv6(far, front)
	_, server := here.JoinIPv6(endpoint, back)
	far.IP("link set %s gso_max_size 180000", front.Device)
	var sink net.Listener
	var err error
	endpoint.Run(func() { sink, err = net.Listen("tcp", netip.AddrPortFrom(server, 0).String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	go func() {
		for c, err := sink.Accept(); err == nil; c, err = sink.Accept() {
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	r := start(t, fmt.Sprintf(`
lane: {devices: [%q, %q], sessions: 64, after: 5ms}
listeners: [{name: l, bind: "%v", upstream: u, lane: require}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, front.Device, back.Device, netip.AddrPortFrom(at, 0), sink.Addr()))
	var c net.Conn
	far.Run(func() { c, err = net.Dial("tcp", r.At("l")) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.leaves(t, c)
	big := bytes.Repeat([]byte("above 64 KiB"), 1<<20)
	go func() { _, _ = c.Write(big) }()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("packets above 64 KiB: %v", err)
	}
	r.Until("it has come back", func() bool { return r.session(t).Engine != admin.EngineLane })
	r.Until("it stays for that", func() bool {
		echoes(t, c, "there and back")
		return r.Status().Lane.Stays[lane.BigTCP.String()] > 0
	})
}
