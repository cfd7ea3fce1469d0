package program

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/lane/internal/frame"
)

// BenchmarkOthers is the cost for a packet of no session, and for one that an endpoint of this host sends, by the kernel's own measurement.
func BenchmarkOthers(b *testing.B) {
	p := load(b, 1<<14)
	for slot := range uint32(10_000) {
		leg := legs[false]
		leg[0].Remote = netip.AddrPortFrom(leg[0].Remote.Addr(), uint16(20_000+slot))
		leg[1].Local = netip.AddrPortFrom(leg[1].Local.Addr(), uint16(20_000+slot))
		if err := p.Register(slot, slot+1, leg); err != nil {
			b.Fatal(err)
		}
	}
	for _, of := range []struct {
		name    string
		program *ebpf.Program
		from    string
	}{
		{"ingress/of none", p.objects.PenstockIngress, "192.0.2.9:40000"},
		{"egress/of none", p.objects.PenstockEgress, "192.0.2.9:40000"},
		{"egress/from an endpoint", p.objects.PenstockEgress, "192.0.2.1:20001"},
	} {
		b.Run(of.name, func(b *testing.B) {
			packet := frame.Packet{From: netip.MustParseAddrPort(of.from), To: netip.MustParseAddrPort("192.0.2.2:443"), Payload: make([]byte, 64)}
			best := 1e9
			for b.Loop() {
				_, took, err := of.program.Benchmark(append([]byte{12: 8, 13: 0}, packet.Bytes()...), 100_000, nil)
				if err != nil {
					b.Fatal(err)
				}
				best = min(best, float64(took.Nanoseconds()))
			}
			b.ReportMetric(best, "ns/packet")
		})
	}
}
