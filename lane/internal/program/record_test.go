package program

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// TestCongestionMark: a packet with a congestion mark is dropped before a socket that was made again, if its
// connection has ECN. The socket does not know that it has ECN, and the endpoint would not slow down. Other
// packets pass, and the lane carries the mark.
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

// TestConnection: a socket goes on where the endpoints have acknowledged, in the unit and with the options of
// its own connection, and after the last timestamp that was carried. The program learns how far its endpoint
// may be.
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
	// 25 bytes of side 0 are on the way to endpoint 1, and no bytes of side 1 are on the way.
	if s.Half[0].Behind != 0 || s.Half[1].Behind != 1 || s.Half[1].Reach != r.flow[1].FirstAck+35 {
		t.Errorf("behind: %d, %d; reach %d, want %d", s.Half[0].Behind, s.Half[1].Behind, s.Half[1].Reach, r.flow[1].FirstAck+35)
	}
}

// TestShut: if a side is shut and has no socket any more, its endpoint sees a window of 0 in everything that is
// sent to it, with the right checksum, except in a SYN and an RST. (With a socket: TestGapIsMade of lane.) The
// endpoint of the other side sees the window of its socket.
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

// recordOf makes a record from bytes. Missing bytes are 0.
func recordOf(t *testing.T, b []byte) (s Session) {
	t.Helper()
	whole := make([]byte, sessionSize)
	copy(whole, b)
	must.Do(t, binary.Read(bytes.NewReader(whole), binary.NativeEndian, (*laneSession)(&s)))
	return s
}

// FuzzRecord: whatever a record of the pinned table contains, everything that is read from it is within its
// bounds.
func FuzzRecord(f *testing.F) {
	f.Add([]byte{}, uint32(0))
	f.Add(bytes.Repeat([]byte{200}, sessionSize), uint32(1))
	f.Add(bytes.Repeat([]byte{255}, sessionSize), uint32(1<<32-1))
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		b := make([]byte, sessionSize)
		for i := range b {
			if b[i] = byte(rnd.Uint32()); i%2 == 0 {
				b[i] %= 4
			}
		}
		b[0] %= 9
		f.Add(b, rnd.Uint32())
	}
	f.Fuzz(func(t *testing.T, b []byte, ticks uint32) {
		s := recordOf(t, b)
		flows, clock := s.Flows(), s.Clock()
		clock.Now(&flows, ticks)
		s.NotAfter(time.Hour)
		if by, last := s.By(), s.LastNew(); by < -1 || by > 1 || last < -1 || last > 1 || s.Spent() < 0 || s.LastPacket() > uint64(time.Hour) || s.Began() > time.Hour || s.Began() < 0 {
			t.Errorf("ended by %d, last %d, spent %v, last packet %d, began %v", by, last, s.Spent(), s.LastPacket(), s.Began())
		}
		_, _ = translate.Delivered(&flows[0], &flows[1]), translate.Carried(&flows[0], &flows[1])
		_, _ = s.Bounded()
		_, _ = s.Refusal()
		_ = s.State().String()
		p := &Program{memory: make([]byte, sessionSize), size: 1}
		*p.Session(0) = s
		sound := p.IsSound(0)
		for i := range s.Half {
			_, _, _ = s.RoundTrip(i)
			_, _ = s.Packets(i), s.IsShut(i)
			c := s.Connection(i)
			_ = s.Resets(i, func(sys.Connection) error { return nil })
			if sound && (c.SendScale > mostScale || c.ReceiveScale > mostScale || c.Local.Addr().Is4() != c.Remote.Addr().Is4() || !c.Local.IsValid()) {
				t.Errorf("a connection of a sound record: %+v", c)
			}
		}
		if at := s.State(); sound && (at < state.Lane || at > state.Reset) {
			t.Errorf("sound, in state %d", at)
		}
	})
}

// TestLost: when a table is opened, tuples are removed that lead to no session, or to a session with another
// tuple. Such a session is not sound.
func TestLost(t *testing.T) {
	p := load(t, 4)
	r := newRig(t, p, 1, false, [8]uint32{}, false)
	s := p.Session(1)
	if !p.IsSound(1) {
		t.Fatalf("the record of the rig: %+v", s)
	}
	stranger := s.Half[0].In
	stranger.RemotePort++
	for _, at := range []lanePlace{{Slot: 4}, {Slot: 1, Generation: s.Generation, Side: 2}, {Slot: 1, Generation: s.Generation + 1}, {Slot: 0}, {Slot: 1, Generation: s.Generation}} {
		must.Do(t, p.objects.Flows.Put(&stranger, &at))
		must.Do(t, p.ports.close())
		must.Do(t, p.ports.open(p.size, &p.objects, p.leads))
		if err := p.objects.Flows.Lookup(&stranger, new(lanePlace)); err == nil {
			t.Errorf("%+v is there still", at)
		}
		other := at.Slot == 1 && at.Generation == s.Generation && at.Side == 0
		if p.IsSound(1) == other {
			t.Errorf("%+v: sound %v", at, !other)
		}
	}
	if n := p.ports.tuples(); n != 2 {
		t.Errorf("%d tuples are counted", n)
	}
	p.Discard(1)
	if p.Session(1).State() != state.Free || p.ports.tuples() != 0 {
		t.Errorf("%v after Discard, %d tuples", p.Session(1).State(), p.ports.tuples())
	}
	_ = r
}
