package program

import (
	"bytes"
	"math/bits"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// marked returns the bits that are set.
func marked(p *Program) (set []uint16) {
	for bit := range 1 << 16 {
		if word, mask := p.ports.word(uint16(bit)); *word&mask != 0 {
			set = append(set, uint16(bit))
		}
	}
	return set
}

// tuples returns how many tuples are counted, over all slots.
func (f *ports) tuples() (n int) {
	for _, of := range f.counted {
		n += bits.OnesCount8(of)
	}
	return n
}

// TestHashCounts: the count of a hash is the number of tuples that were added and not removed, even if it is
// large.
func TestHashCounts(t *testing.T) {
	c := hashCounts{least: make([]uint8, 2), rest: make(map[uint16]uint32)}
	const n = 1000
	c.add(0)
	for i := range n {
		if first := c.add(1); first != (i == 0) {
			t.Fatalf("tuple %d is the first: %v", i, first)
		}
	}
	for i := range n {
		if last := c.remove(1); last != (i == n-1) {
			t.Fatalf("tuple %d is the last: %v", i, last)
		}
	}
	if len(c.rest) > 0 || c.least[1] != 0 || !c.remove(0) {
		t.Errorf("%v", c)
	}
}

// TestPorts: a bit is set as long as a session has two ports with that hash, even if something else has removed
// its tuple.
func TestPorts(t *testing.T) {
	p := load(t, 8)
	one, other := legs[false], legs[true] // both have the same ports
	both := one[0].tuple()
	want := []uint16{hash(&both)}
	back := one[1].tuple()
	want = append(want, hash(&back))
	slices.Sort(want)
	for slot, l := range [][2]Leg{one, other} {
		must.Do(t, p.Register(uint32(slot), uint32(slot)+1, l))
		if got := marked(p); !slices.Equal(got, want) {
			t.Errorf("after session %d: bits %v, want %v", slot, got, want)
		}
	}
	p.Forget(0)
	p.Forget(0)
	if got := marked(p); !slices.Equal(got, want) {
		t.Errorf("one of two sessions is left: bits %v, want %v", got, want)
	}
	last := other[0].tuple()
	must.Do(t, p.objects.Flows.Delete(&last)) // as a SYN does
	p.Forget(1)
	if got := marked(p); len(got) > 0 || p.ports.tuples() > 0 {
		t.Errorf("no session is left: bits %v, %d tuples are counted", got, p.ports.tuples())
	}
}

// TestPortsOfRefused: a session that cannot be registered leaves no bit.
func TestPortsOfRefused(t *testing.T) {
	p := load(t, 8)
	must.Do(t, p.Register(0, 1, legs[false]))
	before := marked(p)
	twice := legs[false]
	twice[0].Remote = netip.MustParseAddrPort("192.0.2.1:40001")
	if err := p.Register(1, 2, twice); err == nil {
		t.Fatal("a tuple twice: registered")
	}
	if got := marked(p); !slices.Equal(got, before) {
		t.Errorf("after a refusal: bits %v, want %v", got, before)
	}
}

// TestPortsOfOpen: the tuples of a table that exists already are counted.
func TestPortsOfOpen(t *testing.T) {
	p := load(t, 8)
	must.Do(t, p.Register(0, 1, legs[true]))
	before := marked(p)
	must.Do(t, p.ports.close())
	must.Do(t, p.ports.open(p.size, &p.objects, p.leads))
	if got := marked(p); !slices.Equal(got, before) || p.ports.tuples() != 2 {
		t.Errorf("bits %v of %d tuples, want %v", got, p.ports.tuples(), before)
	}
	p.Forget(0)
	if got := marked(p); len(got) > 0 {
		t.Errorf("no session is left: bits %v", got)
	}
}

// placed returns the value for a tuple in the map places: 1 + twice the slot + the side, or 0.
func placed(p *Program, l Leg) uint32 {
	t := l.tuple()
	return *p.ports.place(hash(&t))
}

// isCarried reports whether the program treats an acknowledgement as a packet of a session in the lane.
func isCarried(t *testing.T, p *Program, l Leg, flags byte) bool {
	t.Helper()
	b := frame.Packet{From: l.Remote, To: l.Local, Flags: flags}.Bytes()
	_, after := run(t, p.objects.PenstockIngress, b)
	return !bytes.Equal(after, b)
}

// TestPlaces: the program finds a session by its place if no other tuple has its hash, and otherwise in the
// table. It does not find a session that is forgotten.
func TestPlaces(t *testing.T) {
	p := load(t, 8)
	one := newRig(t, p, 3, false, [8]uint32{1: 9}, false)
	l, other := legs[false], legs[true] // both have the same ports
	if at := [2]uint32{placed(p, l[0]), placed(p, l[1])}; at != [2]uint32{7, 8} {
		t.Fatalf("places %v", at)
	}
	key := l[0].tuple()
	must.Do(t, p.objects.Flows.Delete(&key))
	if !isCarried(t, p, l[0], translate.ACK) {
		t.Error("a session with a place is looked for in the table")
	}
	must.Do(t, p.objects.Flows.Put(&key, &lanePlace{Slot: 3, Generation: 4}))
	two := newRig(t, p, 5, true, [8]uint32{1: 9}, false)
	for name, leg := range map[string]Leg{"the first": l[0], "the other one": other[0], "the other side": l[1]} {
		if placed(p, leg) != 0 || !isCarried(t, p, leg, translate.ACK) {
			t.Errorf("two tuples of one hash: %s has place %d, or is not found", name, placed(p, leg))
		}
	}
	two.end()
	one.end()
	for _, leg := range l {
		if placed(p, leg) != 0 || isCarried(t, p, leg, translate.ACK) {
			t.Errorf("after the end of both: place %d of %v", placed(p, leg), leg)
		}
	}
}

// TestPlaceOfNewConnection: after the end of a session, a SYN with its tuple makes the tuple belong to no
// session at once.
func TestPlaceOfNewConnection(t *testing.T) {
	p := load(t, 8)
	newRig(t, p, 3, false, [8]uint32{1: 9}, false)
	p.Session(3).Word = uint64(state.Done)
	l := legs[false][0]
	if !isCarried(t, p, l, translate.ACK) {
		t.Fatal("a straggler is not carried")
	}
	for _, flags := range []byte{translate.SYN, translate.ACK} {
		if isCarried(t, p, l, flags) || placed(p, l) != 0 {
			t.Errorf("flags %x: the packet is of the session before, at %d", flags, placed(p, l))
		}
	}
	if !isCarried(t, p, legs[false][1], translate.ACK) {
		t.Error("nor is the other side's")
	}
}

// TestEndpointIsOfNone: a packet that an endpoint on this host sends has another hash than a packet that
// arrives from the endpoint.
func TestEndpointIsOfNone(t *testing.T) {
	for _, l := range legs[false] {
		there, back := l.tuple(), Leg{Remote: l.Local, Local: l.Remote}.tuple()
		if hash(&there) == hash(&back) {
			t.Errorf("%v: hash %x both ways", l, hash(&there))
		}
	}
}

// BenchmarkOthers measures a packet without a session, and a packet that an endpoint on this host sends. The
// kernel measures the time.
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
