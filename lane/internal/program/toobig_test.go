package program

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

const redirect = 7 // TC_ACT_REDIRECT

// TestTooBig: a router's error about a packet that was sent on is given to the endpoint that has
// sent it, about the packet that it has sent, as the oracle does it. Others pass.
func TestTooBig(t *testing.T) {
	p := load(t, 4)
	for _, v6 := range []bool{false, true} {
		for side := range 2 {
			r := newRig(t, p, 1, v6, [8]uint32{11, 0xfffffff0, 5, 7, 22, 99, 6, 7}, true)
			l, router := legs[v6][side], netip.MustParseAddr("203.0.113.1")
			if v6 {
				router = netip.MustParseAddr("2001:db8:9::1")
			}
			r.inFlight(side, 200, 1000)
			sent := frame.Packet{From: l.Remote, To: l.Local, Flags: translate.ACK, Seq: r.flow[side].First + 200, Payload: make([]byte, 1001)}.Bytes()
			onWire := bytes.Clone(sent)
			if err := r.side[side].Packet(onWire); err != nil {
				t.Fatal(err)
			}
			b := frame.TooBig(router, 1300, onWire)
			if !frame.RightError(b) {
				t.Fatal("the test's own error is wrong")
			}
			want := bytes.Clone(b)
			if !r.side[side].TooBig(want, translate.Side{Source: l.Remote, Destination: l.Local}) || !frame.RightError(want) {
				t.Fatalf("the oracle: %x", want)
			}
			answer, got := run(t, p.objects.PenstockIngress, b)
			if answer != redirect || !bytes.Equal(got, want) {
				t.Errorf("IPv6 %v, side %d: answer %d\ngot  %x\nwant %x", v6, side, answer, got, want)
			}
			// The quoted packet is the one that the endpoint has sent.
			head := 28
			if v6 {
				head = 48
			}
			quoted := got[head:]
			from, to := 12, 20
			if v6 {
				from, to = 8, 40
			}
			if !bytes.Equal(quoted[from:to+8], sent[from:to+8]) {
				t.Errorf("quotes %x, want %x", quoted[:to+8], sent[:to+8])
			}
			for _, s := range []state.State{state.User, state.Held, state.Reset} {
				p.Session(1).Word = uint64(s)
				if answer, got := run(t, p.objects.PenstockIngress, b); answer != next || !bytes.Equal(got, b) {
					t.Errorf("state %v: answer %d", s, answer)
				}
			}
			p.Session(1).Word = uint64(state.Lane)
			other := frame.TooBig(router, 1300, sent) // of no packet that was sent on
			if answer, got := run(t, p.objects.PenstockIngress, other); answer != next || !bytes.Equal(got, other) {
				t.Errorf("another packet's error: answer %d", answer)
			}
			r.end()
		}
	}
}

// inFlight has bytes of a side from a position to another one be on the way.
func (r *rig) inFlight(side int, acked, sent uint64) {
	s := r.Session(r.slot)
	s.Half[side].Sent, s.Half[1-side].Acked, s.Half[side].Gives = sent, acked, 1448
	r.flow = [2]translate.Flow{s.Flow(0), s.Flow(1)}
}

// TestTooBigForged: an error that no router of the session's path has to send is dropped: about a number that is not on the way, or with an MTU that no segment
// exceeds, or one so small that it would hurt other sessions of the endpoint.
func TestTooBigForged(t *testing.T) {
	p := load(t, 4)
	var flags uint32
	if sums(p.objects.PenstockIngress) {
		flags = complete
	}
	for _, v6 := range []bool{false, true} {
		r := newRig(t, p, 1, v6, [8]uint32{11, 0xfffffff0, 5, 7, 22, 99, 6, 7}, true)
		r.inFlight(0, 200, 1000)
		l, router, most := legs[v6][0], netip.MustParseAddr("203.0.113.1"), uint16(1448+40)
		if v6 {
			router, most = netip.MustParseAddr("2001:db8:9::1"), 1448+60
		}
		for _, c := range []struct {
			name  string
			at    uint32
			mtu   uint16
			wants bool
		}{
			{"the first on the way", 200, 1300, true},
			{"the last", 999, 1300, true},
			{"acknowledged", 199, 1300, false},
			{"not sent", 1000, 1300, false},
			{"far away", 1 << 31, 1300, false},
			{"the least", 200, 1280, true},
			{"too small", 200, 1279, false},
			{"the least of kernels", 200, 552, false},
			{"none", 200, 0, false},
			{"smaller than a segment", 200, most - 1, true},
			{"as large as a segment", 200, most, false},
			{"the largest", 200, 65535, false},
		} {
			onWire := frame.Packet{From: l.Remote, To: l.Local, Flags: translate.ACK, Seq: r.flow[0].First + c.at, Payload: make([]byte, 1001)}.Bytes()
			if err := r.side[0].Packet(onWire); err != nil {
				t.Fatal(err)
			}
			b := frame.TooBig(router, c.mtu, onWire)
			if got := r.side[0].Believed(b, &r.flow[0], &r.flow[1], 1448); got != c.wants {
				t.Errorf("IPv6 %v, %s: the oracle: %v", v6, c.name, got)
			}
			want := int32(drop)
			if c.wants {
				want = redirect
			}
			if answer, _ := runAs(t, p.objects.PenstockIngress, b, flags); answer != want {
				t.Errorf("IPv6 %v, %s: answer %d, want %d", v6, c.name, answer, want)
			}
		}
		r.end()
	}
}
