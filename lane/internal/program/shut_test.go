package program

import (
	"bytes"
	"testing"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// TestShut: the endpoint of a side that is shut, and has no socket by now, sees a window of 0 in all that is sent to it, with the right checksum,
// but for a SYN and an RST. (With a socket: TestGapIsMade of lane.) The other side's sees that of the socket.
func TestShut(t *testing.T) {
	p := load(t, 4)
	for _, v6 := range []bool{false, true} {
		r := newRig(t, p, 1, v6, [8]uint32{}, false)
		s := p.Session(1)
		s.Word = uint64(state.Armed)
		s.ShutSides([2]bool{false, true})
		if s.IsShut(0) || !s.IsShut(1) {
			t.Error("another side is shut")
		}
		for side, l := range legs[v6] {
			for kind, flags := range map[string]byte{"data": translate.ACK | translate.PSH, "acknowledgement": translate.ACK, "SYN": translate.SYN | translate.ACK, "RST": translate.RST} {
				was := frame.Packet{From: l.Local, To: l.Remote, Seq: 7, Ack: 9, Window: 0x1234, Flags: flags, Payload: make([]byte, 10*btoi(kind == "data"))}
				want := was
				if side == 1 && kind != "SYN" && kind != "RST" {
					want.Window = 0
				}
				s.Word = uint64(state.Armed)
				if answer, after := run(t, p.objects.PenstockEgress, was.Bytes()); answer != next || !bytes.Equal(after, want.Bytes()) {
					t.Errorf("IPv6 %v, side %d, %s: answer %d\n%x, want\n%x", v6, side, kind, answer, after, want.Bytes())
				}
			}
		}
		s.ShutSides([2]bool{})
		l := legs[v6][1]
		b := frame.Packet{From: l.Local, To: l.Remote, Window: 0x1234, Flags: translate.ACK}.Bytes()
		if answer, after := run(t, p.objects.PenstockEgress, b); answer != next || !bytes.Equal(after, b) {
			t.Error("it is shut still")
		}
		r.end()
	}
}
