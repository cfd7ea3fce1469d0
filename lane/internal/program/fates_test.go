package program

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

const (
	next = -1
	drop = 2
)

// TestArriving: in every state, the ingress program treats every kind of packet as the table says. There are no
// sockets here, so a claim is always given up.
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

// TestLeaving: in every state, the guard lets the packets of a socket out as the table says.
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

// TestOthers: three kinds of packets pass: packets without a session, packets of a session whose slot another
// session has by now, and packets on a VLAN or of other protocols.
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

// TestRegisterRefuses: Register refuses a tuple of another session, in either direction.
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

// withOptions puts options behind the IPv4 header of a packet.
func withOptions(b []byte, options ...byte) []byte {
	b = slices.Insert(bytes.Clone(b), 20, options...)
	b[0] += byte(len(options) / 4)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// withExtensions puts extension headers behind the IPv6 header of a packet. Each has eight bytes, except that
// the authentication header has twelve.
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

// odds returns packets of a connection that the lane does not translate.
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

// TestOdd: packets that the lane does not translate are dropped if their session is in the lane, in both
// directions, and so is a SYN. For other sessions such packets pass, and keep their session in user space.
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

// TestMapped: an IPv6 packet with the mapped addresses of an IPv4 session does not belong to the session,
// whatever it contains, on its way in and out.
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

// TestOddOthers: such packets pass if they have no session. A fragment that is not the first passes too, and so
// does a fragment of another protocol.
func TestOddOthers(t *testing.T) {
	p := load(t, 4)
	for _, v6 := range []bool{false, true} {
		newRig(t, p, uint32(1+btoi(v6)), v6, [8]uint32{}, false)
		l := legs[v6][0]
		// The ports are the session's, so their bit is set.
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

// carried is how many bytes the sessions of these tests have carried when they end.
const carried = 1000

// TestEndIsNoByte: an end of file that is carried and acknowledged while the accounts are read never counts as
// a byte. The writer takes the same steps as the programs.
func TestEndIsNoByte(t *testing.T) {
	var s Session
	h, o := &s.Half[0], &s.Half[1]
	var turn atomic.Int64
	const turns = 30_000
	rnd := rand.New(rand.NewPCG(1, 1))
	go func() {
		for i := int64(1); i <= turns; i++ {
			for turn.Load() != 2*i-1 {
				runtime.Gosched()
			}
			for range rnd.IntN(60) {
				_ = turn.Load() // so that the steps can fall anywhere between the reader's steps
			}
			atomic.StoreUint64(&h.Fin, carried+1)
			atomic.StoreUint64(&h.Sent, carried+1)
			atomic.StoreUint64(&o.Acked, carried+1)
			turn.Store(2 * i)
		}
	}()
	for i := int64(1); i <= turns; i++ {
		h.Sent, h.Fin, o.Acked, o.Edge = carried, 0, carried, 2*carried
		turn.Store(2*i - 1)
		f := s.Flows()
		if d, c := translate.Delivered(&f[0], &f[1]), translate.Carried(&f[0], &f[1]); d != carried || c != carried {
			t.Errorf("turn %d: %d bytes delivered and %d carried, want %d: sent %d, acknowledged %d, end %d", i, d, c, carried, f[0].Sent, f[1].Acked, f[0].Fin)
		}
		for turn.Load() != 2*i {
			runtime.Gosched()
		}
		if t.Failed() {
			return
		}
	}
}

// TestEndIsNotedFirst: the programs note an end of file before they raise the number that counts it as a byte.
func TestEndIsNotedFirst(t *testing.T) {
	p := load(t, 4)
	r := newRig(t, p, 1, false, [8]uint32{}, false)
	s := r.Session(r.slot)
	h := &s.Half[0]
	l := legs[false][0]
	fin := frame.Packet{From: l.Remote, To: l.Local, Flags: translate.FIN | translate.ACK, Window: 1000, Seq: h.First + carried, Ack: h.FirstAck}.Bytes()
	var turn atomic.Int64 // a multiple of 4 plus 3 while the program may run, and negative at the end
	seen := make(chan uint64)
	go func() {
		var wrong uint64
		for {
			at := turn.Load()
			sent, end := atomic.LoadUint64(&h.Sent), atomic.LoadUint64(&h.Fin)
			switch {
			case at < 0:
				seen <- wrong
				return
			case at%4 == 3 && sent > carried && end == 0 && turn.Load() == at:
				wrong++
			}
		}
	}()
	for range 5000 {
		turn.Add(1)
		atomic.StoreUint64(&h.Sent, carried)
		atomic.StoreUint64(&h.Fin, 0)
		turn.Add(1)
		atomic.StoreUint64(&s.Word, uint64(state.Lane))
		turn.Add(1)
		run(t, p.objects.PenstockIngress, fin)
		turn.Add(1)
	}
	turn.Store(-1)
	if n := <-seen; n > 0 {
		t.Errorf("the number was read %d times without the end", n)
	}
}

const redirect = 7 // TC_ACT_REDIRECT

// TestTooBig: a router's error about a packet that was sent on goes to the endpoint that has sent the packet,
// and quotes that packet, as the oracle does it. Other errors pass.
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
			must.Do(t, r.side[side].Packet(onWire))
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
			// The error quotes the packet as the endpoint has sent it.
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
			other := frame.TooBig(router, 1300, sent) // about a packet that was not sent on
			if answer, got := run(t, p.objects.PenstockIngress, other); answer != next || !bytes.Equal(got, other) {
				t.Errorf("another packet's error: answer %d", answer)
			}
			r.end()
		}
	}
}

// inFlight puts the bytes of a side between two positions on the way.
func (r *rig) inFlight(side int, acked, sent uint64) {
	s := r.Session(r.slot)
	s.Half[side].Sent, s.Half[1-side].Acked, s.Half[side].Gives = sent, acked, 1448
	r.flow = [2]translate.Flow{s.Flow(0), s.Flow(1)}
}

// TestTooBigForged: an error that no router on the session's path would send is dropped. It is about a number
// that is not on the way, or has an MTU that no segment exceeds, or has an MTU so small that it would hurt
// other sessions of the endpoint.
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
			must.Do(t, r.side[0].Packet(onWire))
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
