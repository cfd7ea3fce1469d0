package program

import (
	"bytes"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// TestCongestionMark: a packet with a mark is lost for a socket that was made anew, if its connection has ECN: the
// socket knows nothing of it, and the endpoint would not slow down. Others pass, and the lane carries it.
func TestCongestionMark(t *testing.T) {
	p := load(t, 4)
	for _, v6 := range []bool{false, true} {
		for name, c := range map[string]struct {
			ecn, restored uint8
			traffic       byte
			state         state.State
			want          int32
		}{
			"restored":            {1, 1, 3, state.User, drop},
			"restored, armed":     {1, 1, 3, state.Armed, drop},
			"restored, no mark":   {1, 1, 2, state.User, next},
			"restored, no ECN":    {0, 1, 3, state.User, next},
			"the first socket":    {1, 0, 3, state.User, next},
			"restored, next lane": {1, 1, 3, state.Lane, next},
		} {
			r := newRig(t, p, 1, v6, [8]uint32{}, false)
			s := p.Session(1)
			s.Word, s.Half[0].Ecn, s.Half[0].Restored = uint64(c.state), c.ecn, c.restored
			l := legs[v6][0]
			b := frame.Packet{From: l.Remote, To: l.Local, Flags: translate.ACK, Traffic: c.traffic, Payload: make([]byte, 10)}.Bytes()
			if answer, after := run(t, p.objects.PenstockIngress, b); answer != c.want || c.state != state.Lane && !bytes.Equal(b, after) {
				t.Errorf("IPv6 %v, %s: answer %d, want %d", v6, name, answer, c.want)
			}
			r.end()
		}
	}
}

// TestConnection: a socket goes on where the endpoints have acknowledged, in the unit and with the options of its
// own connection, after the last timestamp that was carried; and the program is told how far its endpoint may be.
func TestConnection(t *testing.T) {
	p := load(t, 4)
	r := newRig(t, p, 1, false, [8]uint32{100, 7000, 50, 3, 0xfffffff0, 9000, 60, 9}, false)
	s := p.Session(1)
	for i := range s.Half {
		s.Half[i].Takes, s.Half[i].Sack, s.Half[i].Timestamps = 1460+uint16(i), 1, 1
	}
	stamps := func(n byte) []byte { return []byte{1, 1, 8, 10, 0, 0, 0, n, 0, 0, 0, 0} }
	for _, sent := range []struct {
		side   int
		seq    uint32
		ack    uint32
		window uint16
		size   int
		stamp  byte
	}{{0, 100, r.flow[0].FirstAck, 1000, 30, 77}, {1, 0xfffffff0, r.flow[1].FirstAck + 10, 200, 40, 88}, {0, 130, r.flow[0].FirstAck + 40, 900, 5, 70}} {
		l := legs[false][sent.side]
		r.judge(sent.side, frame.Packet{From: l.Remote, To: l.Local, Seq: sent.seq, Ack: sent.ack, Window: sent.window, Flags: translate.ACK, Options: stamps(sent.stamp), Payload: make([]byte, sent.size)}.Bytes())
	}
	if !s.Stop(false) || s.ToBeReset() || s.State() != state.Held {
		t.Fatal("not held:", s.State())
	}
	l := legs[false]
	want := [2]sys.Connection{
		{
			Local: l[0].Local, Remote: l[0].Remote, Send: r.flow[0].FirstAck + 40, Receive: 110, SendWindow: 900 << 3, ReceiveWindow: 200 << 9,
			SendScale: 3, ReceiveScale: 3, SACK: true, Timestamps: true, Timestamp: 88 + 60, SegmentSize: 1460,
		},
		{
			Local: l[1].Local, Remote: l[1].Remote, Send: r.flow[1].FirstAck + 10, Receive: 24, SendWindow: 200 << 9, ReceiveWindow: 65536 - 40,
			SendScale: 9, ReceiveScale: 9, SACK: true, Timestamps: true, Timestamp: 77 + 50, SegmentSize: 1461,
		},
	}
	for i := range want {
		if got := s.Connection(i); got != want[i] {
			t.Errorf("side %d:\ngot  %+v\nwant %+v", i, got, want[i])
		}
	}
	s.Half[0].Noted = 5
	s.Restored()
	if s.State() != state.User || s.Half[0].Noted != 0 {
		t.Errorf("state %v, noted %#x", s.State(), s.Half[0].Noted)
	}
	// 25 bytes of side 0 are on the way to endpoint 1, and none of side 1.
	if s.Half[0].Behind != 0 || s.Half[1].Behind != 1 || s.Half[1].Reach != r.flow[1].FirstAck+35 {
		t.Errorf("behind: %d, %d; reach %d, want %d", s.Half[0].Behind, s.Half[1].Behind, s.Half[1].Reach, r.flow[1].FirstAck+35)
	}
}
