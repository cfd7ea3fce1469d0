package program

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// withOptions puts options behind the IPv4 header of a packet.
func withOptions(b []byte, options ...byte) []byte {
	b = slices.Insert(bytes.Clone(b), 20, options...)
	b[0] += byte(len(options) / 4)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// withExtensions puts extension headers behind the IPv6 header of a packet: each kind with a length of eight bytes, but for that of authentication,
// which is of twelve.
func withExtensions(b []byte, kinds ...byte) []byte {
	b = bytes.Clone(b)
	next := b[6]
	for _, kind := range slices.Backward(kinds) {
		header := []byte{next, 0, 0, 0, 0, 0, 0, 0}
		switch kind {
		case 44:
			header[3] = 1 // the first of more fragments
		case 51:
			header[1] = 1
			header = append(header, 0, 0, 0, 0)
		}
		b = slices.Insert(b, 40, header...)
		next = kind
	}
	b[6] = next
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	return b
}

// odds are packets of one connection that the lane does not translate.
func odds(p frame.Packet, v6 bool) map[string][]byte {
	b := p.Bytes()
	if v6 {
		return map[string][]byte{
			"hop by hop":                        withExtensions(b, 0),
			"first fragment":                    withExtensions(b, 44),
			"authentication":                    withExtensions(b, 51),
			"all kinds":                         withExtensions(b, 0, 60, 43, 44, 51, 60),
			"a hundred, as many as a frame has": withExtensions(b, slices.Repeat([]byte{60}, 100)...),
		}
	}
	cut := bytes.Clone(b)
	cut[32] = 0xf0 // a TCP header longer than the packet
	first := bytes.Clone(b)
	first[6] = 0x20
	return map[string][]byte{
		"one option":                 withOptions(b, 1, 1, 1, 0),
		"record route":               withOptions(b, append([]byte{7, 15, 4}, make([]byte, 13)...)...),
		"all options":                withOptions(b, slices.Repeat([]byte{1}, 40)...),
		"first fragment":             first,
		"first fragment and options": withOptions(first, 1, 1, 1, 0),
		"longer header than packet":  cut,
	}
}

// TestOdd: packets of a session in the lane that it does not translate are lost, both ways, a SYN as well; those of others pass, and have their session stay in user space.
func TestOdd(t *testing.T) {
	p := load(t, 4)
	for _, v6 := range []bool{false, true} {
		l := legs[v6][0]
		for _, flags := range []byte{translate.SYN, translate.ACK} {
			arriving := odds(frame.Packet{From: l.Remote, To: l.Local, Flags: flags}, v6)
			leaving := odds(frame.Packet{From: l.Local, To: l.Remote, Flags: flags | translate.ACK}, v6)
			for name := range arriving {
				for _, before := range state.All() {
					r := newRig(t, p, 1, v6, [8]uint32{}, false)
					s := p.Session(1)
					s.Word = uint64(before)
					want, after := int32(next), before
					switch before {
					case state.Lane, state.Done, state.Held:
						want = drop
					case state.Claimed:
						after = state.User
					}
					if answer, _ := run(t, p.objects.PenstockEgress, leaving[name]); answer != want || s.State() != before {
						t.Errorf("%s leaves in state %v: answer %d, state %v", name, before, answer, s.State())
					}
					if answer, _ := run(t, p.objects.PenstockIngress, arriving[name]); answer != want || s.State() != after || s.Half[0].Noted != 1<<34 {
						t.Errorf("%s in state %v: answer %d, state %v, noted %x", name, before, answer, s.State(), s.Half[0].Noted)
					}
					r.end()
				}
			}
		}
	}
}

// TestMapped: an IPv6 packet with the addresses of an IPv4 session is of no session, whatever it has, on its way in and out.
func TestMapped(t *testing.T) {
	p := load(t, 4)
	l := legs[false][0]
	six := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	for _, flags := range []byte{translate.RST, translate.ACK} {
		r := newRig(t, p, 1, false, [8]uint32{}, false)
		s := p.Session(1)
		s.Word = uint64(state.Lane)
		before := *s
		arrives := frame.Packet{From: six(l.Remote), To: six(l.Local), Flags: flags, Payload: []byte("data")}
		leaves := frame.Packet{From: six(l.Local), To: six(l.Remote), Flags: flags, Payload: []byte("data")}
		in, _ := run(t, p.objects.PenstockIngress, arrives.Bytes())
		odd, _ := run(t, p.objects.PenstockIngress, odds(arrives, true)["first fragment"])
		out, _ := run(t, p.objects.PenstockEgress, leaves.Bytes())
		if in != next || odd != next || out != next || *s != before {
			t.Errorf("flags %x: answers %d, %d and %d", flags, in, odd, out)
		}
		r.end()
	}
}

// TestOddOthers: such packets of no session pass, and so does a fragment that is not the first, or of another protocol.
func TestOddOthers(t *testing.T) {
	p := load(t, 4)
	for _, v6 := range []bool{false, true} {
		newRig(t, p, uint32(1+btoi(v6)), v6, [8]uint32{}, false)
		l := legs[v6][0]
		// The ports are those of the session, so that their bit is set.
		stranger := odds(frame.Packet{From: legs[v6][1].Remote, To: l.Local, Flags: translate.SYN}, v6)
		ours := odds(frame.Packet{From: l.Remote, To: l.Local, Flags: translate.SYN}, v6)
		passing := map[string][]byte{}
		for name, b := range stranger {
			passing["of no session, "+name] = b
		}
		later := bytes.Clone(ours["first fragment"])
		if v6 {
			later[43] |= 8
		} else {
			later[7] = 1
		}
		passing["a later fragment"] = later
		udp := bytes.Clone(ours["first fragment"])
		if v6 {
			udp[40] = 17
		} else {
			udp[9] = 17
		}
		passing["UDP"] = udp
		for name, b := range passing {
			if answer, after := run(t, p.objects.PenstockIngress, b); answer != next || !bytes.Equal(after, b) {
				t.Errorf("IPv6 %v, %s: answer %d", v6, name, answer)
			}
		}
	}
}
