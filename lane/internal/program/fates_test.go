package program

import (
	"bytes"
	"testing"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

const (
	next = -1
	drop = 2
)

// TestArriving: in every state the ingress program does with every kind of packet as the table has
// it. There are no sockets here, so a claim is always given up.
func TestArriving(t *testing.T) {
	p := load(t, 4)
	l := legs[false][0]
	for kind, flags := range map[string]byte{"data": translate.ACK | translate.PSH, "FIN": translate.ACK | translate.FIN, "RST": translate.RST, "acknowledgement": translate.ACK, "SYN": translate.SYN} {
		for _, before := range state.All() {
			r := newRig(t, p, 1, false, [8]uint32{1: 9}, false)
			s := p.Session(1)
			s.Word = uint64(before)
			b := frame.Packet{From: l.Remote, To: l.Local, Flags: flags, Payload: make([]byte, 10*btoi(kind == "data"))}.Bytes()
			answer, after := run(t, p.objects.PenstockIngress, b)
			fate, counts := state.Arriving(before), kind == "data" || kind == "FIN" || kind == "RST"
			wantAnswer, wantState, translated := int32(next), before, fate == state.Translate
			switch {
			case fate == state.Drop:
				wantAnswer = drop
			case fate == state.Spoil && counts, fate == state.Try && kind == "data":
				wantState = state.User
			case before == state.Lane && kind == "RST":
				wantState = state.Done
			case before == state.Done && kind == "SYN":
				translated = false // a new connection
			}
			noted := s.Half[0].Noted != 0
			if answer != wantAnswer || s.State() != wantState || !bytes.Equal(b, after) != translated {
				t.Errorf("%v in state %v: answer %d, want %d; state %v, want %v; changed %v, want %v", kind, before, answer, wantAnswer, s.State(), wantState, !bytes.Equal(b, after), translated)
			}
			if want := counts && (fate == state.Note || fate == state.Try || fate == state.Spoil); noted != want {
				t.Errorf("%v in state %v: noted %v, want %v", kind, before, noted, want)
			}
			r.end()
		}
	}
}

// TestLeaving: in every state the guard lets out of a socket as the table has it.
func TestLeaving(t *testing.T) {
	p := load(t, 4)
	l := legs[true][1]
	for kind, flags := range map[string]byte{"data": translate.ACK | translate.PSH, "FIN": translate.ACK | translate.FIN, "RST": translate.RST, "acknowledgement": translate.ACK} {
		for _, before := range state.All() {
			r := newRig(t, p, 1, true, [8]uint32{}, false)
			s := p.Session(1)
			s.Word = uint64(before)
			b := frame.Packet{From: l.Local, To: l.Remote, Flags: flags, Payload: make([]byte, 10*btoi(kind == "data"))}.Bytes()
			answer, after := run(t, p.objects.PenstockEgress, b)
			want, wantState, end := int32(next), before, kind == "FIN" || kind == "RST"
			switch fate := state.Leaving(before); {
			case fate == state.Drop, fate == state.Confine && kind != "acknowledgement":
				want = drop
			case fate == state.Disarm && (end || before == state.Claimed && kind == "data"):
				wantState = state.User
			}
			if answer != want || s.State() != wantState || !bytes.Equal(b, after) {
				t.Errorf("%v in state %v: answer %d, want %d; state %v, want %v", kind, before, answer, want, s.State(), wantState)
			}
			r.end()
		}
	}
}

// TestOthers: packets of no session, of one whose slot is another's by now, and on a VLAN or other
// protocol pass.
func TestOthers(t *testing.T) {
	p := load(t, 4)
	r := newRig(t, p, 1, false, [8]uint32{}, false)
	l := legs[false][0]
	stranger := frame.Packet{From: l.Remote, To: legs[false][1].Local, Flags: translate.ACK}.Bytes()
	ours := frame.Packet{From: l.Remote, To: l.Local, Flags: translate.ACK, Seq: 5}.Bytes()
	if answer, after := run(t, p.objects.PenstockIngress, stranger); answer != next || !bytes.Equal(after, stranger) {
		t.Error("a stranger was touched", answer)
	}
	is := p.Session(1).Half[0].In
	p.Session(1).Generation += 7
	p.Session(1).Half[0].In.LocalPort++
	if answer, after := run(t, p.objects.PenstockIngress, ours); answer != next || !bytes.Equal(after, ours) {
		t.Error("a packet of a session of before was touched", answer)
	}
	p.Session(1).Generation -= 7
	p.Session(1).Half[0].In = is
	r.end()
	if answer, after := run(t, p.objects.PenstockIngress, ours); answer != next || !bytes.Equal(after, ours) {
		t.Error("a packet of a forgotten session was touched", answer)
	}
}

// TestRegisterRefuses: a tuple of another session, in either direction.
func TestRegisterRefuses(t *testing.T) {
	p := load(t, 4)
	newRig(t, p, 1, false, [8]uint32{}, false)
	l := legs[false]
	turned := [2]Leg{{l[0].Local, l[0].Remote}, legs[true][1]}
	for name, l := range map[string][2]Leg{"the same": l, "the other end": turned} {
		if err := p.Register(2, 9, l); err == nil {
			t.Errorf("%s is registered", name)
		}
		if s := p.Session(2).State(); s != state.Free {
			t.Errorf("%s: the slot is %v", name, s)
		}
	}
	if s := p.Session(1).State(); s != state.Lane {
		t.Errorf("the first session is %v", s)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
