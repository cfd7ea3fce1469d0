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
			sent := frame.Packet{From: l.Remote, To: l.Local, Flags: translate.ACK, Seq: 77, Payload: make([]byte, 1001)}.Bytes()
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
