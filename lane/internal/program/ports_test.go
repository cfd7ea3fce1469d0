package program

import (
	"net/netip"
	"slices"
	"testing"
)

// marked are the bits that are set.
func marked(p *Program) (bits []uint16) {
	for bit := range 1 << 16 {
		if word, mask := p.ports.word(uint16(bit)); *word&mask != 0 {
			bits = append(bits, uint16(bit))
		}
	}
	return bits
}

// TestPorts: a bit is set for as long as a session has two ports of that hash, whoever has removed its tuple.
func TestPorts(t *testing.T) {
	p := load(t, 8)
	one, other := legs[false], legs[true] // of the same ports
	both := one[0].tuple()
	want := []uint16{hash(&both)}
	back := one[1].tuple()
	want = append(want, hash(&back))
	slices.Sort(want)
	for slot, l := range [][2]Leg{one, other} {
		if err := p.Register(uint32(slot), uint32(slot)+1, l); err != nil {
			t.Fatal(err)
		}
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
	if err := p.objects.Flows.Delete(&last); err != nil { // as a SYN does
		t.Fatal(err)
	}
	p.Forget(1)
	if got := marked(p); len(got) > 0 || len(p.ports.counts) > 0 || len(p.ports.of) > 0 {
		t.Errorf("no session is left: bits %v, counts %v of %v", got, p.ports.counts, p.ports.of)
	}
}

// TestPortsOfRefused: a session that cannot be registered leaves no bit.
func TestPortsOfRefused(t *testing.T) {
	p := load(t, 8)
	if err := p.Register(0, 1, legs[false]); err != nil {
		t.Fatal(err)
	}
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

// TestPortsOfOpen: the tuples of a table that is there already are counted.
func TestPortsOfOpen(t *testing.T) {
	p := load(t, 8)
	if err := p.Register(0, 1, legs[true]); err != nil {
		t.Fatal(err)
	}
	before := marked(p)
	if err := p.ports.close(); err != nil {
		t.Fatal(err)
	}
	if err := p.ports.open(p.objects.Ports, p.objects.Flows, p.leads); err != nil {
		t.Fatal(err)
	}
	if got := marked(p); !slices.Equal(got, before) || len(p.ports.of) != 2 {
		t.Errorf("bits %v of %v, want %v", got, p.ports.of, before)
	}
	p.Forget(0)
	if got := marked(p); len(got) > 0 {
		t.Errorf("no session is left: bits %v", got)
	}
}
