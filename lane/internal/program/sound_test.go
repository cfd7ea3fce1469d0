package program

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// recordOf makes a record of bytes; those that are missing are 0.
func recordOf(t *testing.T, b []byte) (s Session) {
	t.Helper()
	whole := make([]byte, sessionSize)
	copy(whole, b)
	if err := binary.Read(bytes.NewReader(whole), binary.NativeEndian, (*laneSession)(&s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// FuzzRecord: whatever is in a record of the pinned table, all that is read of it is within its bounds.
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

// TestLost: tuples that lead to no session, or to one that has another tuple, are removed when a table is opened, and the latter one is not
// sound.
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
		if err := p.objects.Flows.Put(&stranger, &at); err != nil {
			t.Fatal(err)
		}
		if err := p.ports.close(); err != nil {
			t.Fatal(err)
		}
		if err := p.ports.open(p.size, &p.objects, p.leads); err != nil {
			t.Fatal(err)
		}
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
