package program

import (
	"bytes"
	"net"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/translate"
)

// skb is the first fields of a struct __sk_buff (include/uapi/linux/bpf.h).
type skb struct {
	_       [10]uint32
	ifindex uint32
	_       [37]uint32
}

// TestFromElsewhere: a packet with the addresses of a session over the loopback is dropped if it comes from another device, where the
// kernel would drop it (martian source).
func TestFromElsewhere(t *testing.T) {
	p := load(t, 4) // which skips for an ordinary user
	if !netns.Alone(t) {
		return
	}
	netns.Here(t).IP("link add here type veth peer name there")
	device, err := net.InterfaceByName("here")
	if err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		r := newRig(t, p, 1, v6, [8]uint32{}, false)
		l := legs[v6][0]
		packet := ethernet(frame.Packet{From: l.Remote, To: l.Local, Window: 100, Flags: translate.ACK, Payload: make([]byte, 5)}.Bytes())
		for _, c := range []struct {
			from    int
			dropped bool
		}{{1, false}, {device.Index, true}} {
			out := make([]byte, len(packet)+64)
			o := ebpf.RunOptions{Data: packet, DataOut: out, Context: &skb{ifindex: uint32(c.from)}}
			answer, err := p.objects.PenstockIngress.Run(&o)
			if err != nil {
				t.Fatal(err)
			}
			if dropped := int32(answer) == drop; dropped != c.dropped || c.dropped && !bytes.Equal(o.DataOut, packet) {
				t.Errorf("IPv6 %v, from device %d: answer %d", v6, c.from, int32(answer))
			}
		}
		r.end()
	}
}
