package program

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

var legs = map[bool][2]Leg{
	false: {
		{netip.MustParseAddrPort("192.0.2.1:40000"), netip.MustParseAddrPort("192.0.2.2:443")},
		{netip.MustParseAddrPort("198.51.100.2:8443"), netip.MustParseAddrPort("198.51.100.1:51000")},
	},
	true: {
		{netip.MustParseAddrPort("[2001:db8::1]:40000"), netip.MustParseAddrPort("[2001:db8::2]:443")},
		{netip.MustParseAddrPort("[2001:db8:1::2]:8443"), netip.MustParseAddrPort("[2001:db8:1::1]:51000")},
	},
}

// A rig is a session in the lane, in the programs and in Go.
type rig struct {
	*Program
	t     testing.TB
	slot  uint32
	side  [2]translate.Side
	flow  [2]translate.Flow
	clock translate.Clock
	reset bool
	v6    bool
	pause uint64 // before each packet, in ns
	flags uint32 // of test runs
}

// clock returns the time of the programs' clock.
func clock(t testing.TB) uint64 {
	now := must.Get(sys.Monotonic())(t)
	return uint64(now)
}

// newRig makes a session that is in the lane from the beginning, with constants of the test.
func newRig(t testing.TB, p *Program, slot uint32, v6 bool, constants [8]uint32, forwarded bool) *rig {
	t.Helper()
	l := legs[v6]
	must.Do(t, p.Register(slot, slot+1, l))
	r := &rig{Program: p, t: t, slot: slot, v6: v6}
	s := p.Session(slot)
	s.Looped = 1
	for i := range 2 {
		h, o := &s.Half[i], constants[4*i:]
		h.First, h.FirstAck, h.Time, h.Edge = o[0], constants[4*(1-i)]+constants[4*i+1], o[2], 1<<16
		h.Sequence, h.Scale, h.Unit, h.Device = o[1], uint8(o[3]%15), uint8(constants[4*(1-i)+3]%15), 1
		h.Takes, h.LeastRtt, h.Widest = 1447, 1, 1<<16
		r.flow[i] = translate.Flow{First: h.First, FirstAck: h.FirstAck, Edge: h.Edge, Takes: h.Takes, Widest: h.Widest}
	}
	for i := range 2 {
		h, o := &s.Half[i], &s.Half[1-i]
		r.side[i] = translate.Side{
			Source: l[1-i].Local, Destination: l[1-i].Remote, Sequence: h.Sequence, Acknowledged: o.Sequence,
			Time: h.Time, Echo: o.Time, Scale: h.Scale, Unit: h.Unit,
		}
		if forwarded {
			s.Looped, r.side[i].HopLimit = 0, 64
		}
	}
	s.Word = uint64(state.Lane)
	s.Last = clock(t)
	t.Cleanup(r.end)
	return r
}

func (r *rig) end() {
	r.Forget(r.slot)
	r.Session(r.slot).Word = 0
}

// ethernet puts an IP packet in a frame.
func ethernet(packet []byte) []byte {
	f := make([]byte, 14, 14+len(packet))
	f[12], f[13] = 8, 0
	if len(packet) > 0 && packet[0]>>4 == 6 {
		f[12], f[13] = 0x86, 0xdd
	}
	return append(f, packet...)
}

// run gives a packet to a program, and returns its answer and the packet afterwards.
func run(t testing.TB, p *ebpf.Program, packet []byte) (int32, []byte) {
	t.Helper()
	return runAs(t, p, packet, 0)
}

// complete makes the kernel sum a packet before the program, and compare the sum after it
// (BPF_F_TEST_SKB_CHECKSUM_COMPLETE, Linux 6.14).
const complete = 1 << 2

// sums reports whether the kernel knows the flag complete.
func sums(p *ebpf.Program) bool {
	_, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64), Flags: complete})
	return err == nil
}

func runAs(t testing.TB, p *ebpf.Program, packet []byte, flags uint32) (int32, []byte) {
	t.Helper()
	in := ethernet(packet)
	out := make([]byte, len(in)+64)
	o := ebpf.RunOptions{Data: in, DataOut: out, Flags: flags}
	answer := must.Get(p.Run(&o))(t)
	return int32(answer), o.DataOut[14:]
}

// judge gives a packet of a side to the program and to the oracle, and compares what they do.
func (r *rig) judge(side int, packet []byte) {
	r.t.Helper()
	want := bytes.Clone(packet)
	s := r.Session(r.slot)
	s.Last -= min(r.pause, s.Last)
	last := s.Last
	r.flow[0].Takes, r.flow[1].Takes = s.Half[0].Takes, s.Half[1].Takes
	_, least, _ := s.RoundTrip(side)
	err := r.side[side].Packet(want)
	answer, got := runAs(r.t, r.objects.PenstockIngress, packet, r.flags)
	if !frame.Alike(got, want) {
		r.t.Fatalf("side %d, %v: answer %d\npacket  %x\nprogram %x\noracle  %x", side, err, answer, packet, got, want)
	}
	if err != nil {
		return
	}
	l, _ := translate.Parse(packet)
	b := packet[l.TCP:]
	stamp, stamped := translate.Stamp(b[:l.Header])
	open := translate.OpenWait(&r.flow, side)
	fate := r.flow[side].Note(&r.flow[1-side], translate.Segment{
		Sequence: binary.BigEndian.Uint32(b[4:]), Ack: binary.BigEndian.Uint32(b[8:]), Length: uint32(l.Payload),
		Window: r.side[side].Offered(binary.BigEndian.Uint16(b[14:])), Flags: b[13], Stamp: stamp, Stamped: stamped,
	})
	r.reset = r.reset || fate.Reset
	ticks := s.Last>>translate.Tick - last>>translate.Tick
	r.clock.Pass(open, fate, l.Payload > 0, side, uint32(ticks), least)
	if got := s.Clock(); got != r.clock {
		r.t.Fatalf("after %x of %d, %d ticks, %+v, %+v:\nprogram %+v\noracle  %+v", packet, side, ticks, open, fate, got, r.clock)
	}
	for i := range 2 {
		if got := s.Flow(i); got != r.flow[i] {
			r.t.Fatalf("side %d, after %x of %d:\nprogram %+v\noracle  %+v", i, packet, side, got, r.flow[i])
		}
	}
	done := r.reset || translate.Ended(&r.flow[0], &r.flow[1])
	if is := s.State() == state.Done; is != done {
		r.t.Fatalf("after %x of %d: state %v, the oracle: ended %v", packet, side, s.State(), done)
	}
}

var optionLayouts = [][]byte{
	nil,
	{1, 1, 8, 10, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xf0},
	{8, 10, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xf0, 1, 1},
	{1, 8, 10, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xf0, 5, 10, 0, 0, 0, 9, 0, 0, 0, 12},
	{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 26, 0, 0, 0, 9, 0, 0, 0, 12, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4},
	{5, 34, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0},
	{5, 11, 0, 0, 0, 9, 0, 0, 0, 12, 7}, // not a whole number of blocks
	{254, 6, 1, 2, 3, 4, 8, 10, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xf0, 0, 8},
	{254, 0, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1},
	{8, 10, 0, 0, 0, 1, 0, 0, 0, 1, 8, 10, 0, 0, 0, 2, 0, 0, 0, 2},
	{1, 1, 1, 5},
	{8},
	{5, 200},
	{1, 1, 8, 10},
}

// random makes a packet of a side with numbers close to the session's.
func (r *rig) random(rnd *rand.Rand, side int) []byte {
	l := legs[r.v6][side]
	f := &r.flow[side]
	near := func(n uint64) uint32 {
		switch rnd.IntN(8) {
		case 0:
			return rnd.Uint32()
		case 1:
			return uint32(n) + uint32(rnd.IntN(200)) - 100
		}
		return uint32(n)
	}
	flags := []byte{translate.ACK, translate.ACK | translate.PSH, translate.ACK | translate.URG, 0, translate.FIN | translate.ACK, translate.FIN, translate.RST | translate.FIN, translate.RST, translate.RST | translate.ACK, translate.SYN}
	pick := flags[0]
	if rnd.IntN(4) == 0 {
		pick = flags[rnd.IntN(len(flags))]
	}
	p := frame.Packet{
		From: l.Remote, To: l.Local, Flags: pick, Window: uint16(rnd.Uint32()), Traffic: byte(rnd.Uint32()),
		Seq: f.First + near(f.Sent), Ack: f.FirstAck + near(r.flow[1-side].Sent),
		Options: optionLayouts[rnd.IntN(len(optionLayouts))], Payload: make([]byte, []int{0, 0, 1, 64, 1447}[rnd.IntN(5)]),
	}
	for i := range p.Payload {
		p.Payload[i] = byte(i * 7)
	}
	b := p.Bytes()
	if rnd.IntN(6) == 0 { // the length of many segments; test runs take one page
		at := 2
		if r.v6 {
			at = 4
		}
		binary.BigEndian.PutUint16(b[at:], binary.BigEndian.Uint16(b[at:])+20000)
	}
	return b
}

// TestAgainstOracle: the program translates every packet like the translator in Go, and accounts for it in the
// same way. This holds for IPv4 and IPv6, and for both ways to send a packet on.
func TestAgainstOracle(t *testing.T) {
	p := load(t, 64)
	rnd := rand.New(rand.NewPCG(1, 2))
	known := sums(p.objects.PenstockIngress)
	if !known {
		t.Log("sums of whole packets are not tested: the kernel does not know that")
	}
	for round := range 200 {
		var constants [8]uint32
		for i := range constants {
			constants[i] = rnd.Uint32()
		}
		if round%2 == 0 { // scales of most connections
			constants[3], constants[7] = 7, 7
		}
		r := newRig(t, p, uint32(round)%64, round%4 < 2, constants, round%8 == 7 || round%8 == 1)
		if round%3 == 0 { // another session has the same ports, so this one is found in the table
			beside := uint32(round+1) % 64
			must.Do(t, p.Register(beside, beside+1, legs[!r.v6]))
		}
		if known && rnd.IntN(2) == 0 {
			r.flags = complete
		}
		for range 60 {
			side := rnd.IntN(2)
			r.pause = []uint64{0, 1e6, 40e6, 3e9}[rnd.IntN(4)]
			r.judge(side, r.random(rnd, side))
			if r.Session(r.slot).State() == state.Done {
				break
			}
		}
		r.end()
		if beside := uint32(round+1) % 64; round%3 == 0 {
			p.Forget(beside)
			p.Session(beside).Word = 0
		}
	}
}

// FuzzProgram: for any bytes, the program does the same as the oracle.
func FuzzProgram(f *testing.F) {
	p := load(f, 4)
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 40 {
		r := rig{v6: i%2 == 0}
		f.Add(r.random(rnd, 0), rnd.Uint32(), rnd.Uint32(), uint8(i))
	}
	l := legs[false][0]
	for _, flags := range []byte{translate.FIN, translate.PSH, translate.FIN | translate.ACK, translate.RST, translate.RST | translate.FIN, translate.RST | translate.SYN} {
		for _, at := range []uint32{0, 10, 1<<32 - 10, 1<<32 - 1<<20 - 10} {
			f.Add(frame.Packet{From: l.Remote, To: l.Local, Flags: flags, Seq: at, Payload: make([]byte, at&8)}.Bytes(), uint32(0), uint32(0), uint8(0))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, sequence, time uint32, scale uint8) {
		l, err := translate.Parse(b)
		if len(b) < 40 || len(b) > 2000 { // test runs do not take such a frame
			return
		}
		r := newRig(t, p, 1, l.V6, [8]uint32{1: sequence, 2: time, 3: uint32(scale), 5: time, 6: sequence, 7: 7}, false)
		defer r.end()
		if err == nil {
			b = b[:l.TCP+l.Header+min(l.Payload, len(b)-l.TCP-l.Header)]
			frame.Address(b, legs[l.V6][0].Remote, legs[l.V6][0].Local)
		}
		r.judge(0, b)
	})
}
