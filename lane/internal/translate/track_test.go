package translate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/penstock/penstock/lane/internal/translate"
)

const window = 1000

// pair returns the two flows of a session that begins shortly before its numbers wrap.
func pair() (a, b *translate.Flow) {
	a = &translate.Flow{First: 1<<32 - 10, FirstAck: 1<<31 - 10, Edge: window}
	b = &translate.Flow{First: 1<<31 - 10, FirstAck: 1<<32 - 10, Edge: window}
	return a, b
}

// segment returns a segment of a flow, given by positions.
func segment(f *translate.Flow, at, length, ack int64, flags uint8) translate.Segment {
	return translate.Segment{Sequence: f.First + uint32(at), Ack: f.FirstAck + uint32(ack), Length: uint32(length), Window: window, Flags: flags | translate.ACK}
}

// TestCarriedProbe: the byte with which some kernels probe a closed window is carried, but it counts only once it is acknowledged.
func TestCarriedProbe(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, window, 0, 0))
	shut := segment(b, 0, 0, window, 0)
	shut.Window = 0
	b.Note(a, shut)
	a.Note(b, segment(a, window, 1, 0, 0))
	if a.Sent != window+1 || translate.Carried(a, b) != window {
		t.Errorf("%d were sent, %d carried, want %d and %d", a.Sent, translate.Carried(a, b), window+1, window)
	}
	shut = segment(b, 0, 0, window+1, 0)
	shut.Window = 0
	if b.Note(a, shut); translate.Carried(a, b) != window+1 || translate.Delivered(a, b) != window+1 {
		t.Errorf("acknowledged: %d carried, %d delivered", translate.Carried(a, b), translate.Delivered(a, b))
	}
}

// TestCarriedEnd: an end of file does not count as a byte, whether it is read before or after its number.
func TestCarriedEnd(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	a.Fin = 101
	if n := translate.Carried(a, b); n != 100 {
		t.Errorf("%d were carried, want 100", n)
	}
	a.Sent = 101
	if n := translate.Carried(a, b); n != 100 {
		t.Errorf("%d were carried, want 100", n)
	}
}

// TestUnseenEnd: an end of file and the bytes before it are lost before the lane. An acknowledgement whose
// number is behind them does not make them count as carried.
func TestUnseenEnd(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	a.Note(b, segment(a, 201, 0, 0, 0)) // 100 bytes and the end of file are lost before the lane
	if n := translate.Carried(a, b); n != 100 || a.Sent != 100 {
		t.Errorf("%d carried, %d sent, want 100", n, a.Sent)
	}
	a.Note(b, segment(a, 100, 100, 0, translate.FIN))
	if n := translate.Carried(a, b); n != 200 || a.Sent != 201 || a.Repeats != 0 {
		t.Errorf("%d carried, %d sent, %d repeated, want 200, 201 and 0", n, a.Sent, a.Repeats)
	}
}

// TestStrays: a packet that no socket would take changes nothing, and resets nothing.
func TestStrays(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	b.Note(a, segment(b, 0, 0, 60, 0))
	bare := func(at, length int64, flags uint8) translate.Segment {
		s := segment(a, at, length, 0, flags)
		s.Flags = flags
		return s
	}
	for name, s := range map[string]translate.Segment{
		"data without ACK":                     bare(100, 10, 0),
		"data without ACK that came before":    bare(70, 10, translate.PSH),
		"data without ACK behind a gap":        bare(150, 10, 0),
		"FIN without ACK":                      bare(100, 0, translate.FIN),
		"FIN without ACK of before":            bare(20, 0, translate.FIN),
		"FIN of before":                        segment(a, 20, 0, 0, translate.FIN),
		"FIN at the last byte acknowledged":    segment(a, 59, 0, 0, translate.FIN),
		"FIN that acknowledges too little":     segment(a, 100, 0, -1<<20-1, translate.FIN),
		"FIN that acknowledges too much":       segment(a, 100, 0, 1, translate.FIN),
		"data from further back than a window": segment(a, -1<<20+59, 10, 0, 0),
		"RST and FIN before":                   segment(a, 20, 0, 0, translate.RST|translate.FIN),
		"beyond the window":                    segment(a, 5000, 10, 0, 0),
		"FIN beyond the window":                segment(a, 5000, 0, 0, translate.FIN),
		"acknowledges what was never sent":     segment(a, 100, 10, 500, 0),
		"RST beyond the window":                segment(a, 5000, 0, 0, translate.RST),
		"RST between, which is challenged":     segment(a, 80, 0, 0, translate.RST),
		"RST before":                           segment(a, 30, 0, 0, translate.RST),
		"SYN":                                  segment(a, 100, 0, 0, translate.SYN),
		"two gigabytes away":                   segment(a, -1<<31+200, 10, 0, 0),
		"acknowledges from two gigabytes of":   segment(a, 100, 10, -1<<31+1, 0),
	} {
		wasA, wasB := *a, *b
		if fate := a.Note(b, s); fate != (translate.Fate{}) || *a != wasA || *b != wasB {
			t.Errorf("%s: %+v, %+v, was %+v", name, fate, *a, wasA)
		}
	}
	for name, at := range map[string]int64{"at what is acknowledged": 60, "after all that was sent": 100} {
		if !a.Note(b, segment(a, at, 0, 0, translate.RST)).Reset {
			t.Errorf("an RST %s resets nothing", name)
		}
	}
}

// TestEndOfFile: only a FIN with ACK at a byte that is not acknowledged counts as an end of file, and only the
// first one. An RST counts after it as before it.
func TestEndOfFile(t *testing.T) {
	for name, c := range map[string]struct {
		at   int64
		fits bool
	}{"at the end": {100, true}, "between": {60, true}, "ahead": {300, true}, "acknowledged": {59, false}} {
		a, b := pair()
		a.Note(b, segment(a, 0, 100, 0, 0))
		b.Note(a, segment(b, 0, 0, 60, 0))
		if fate := a.Note(b, segment(a, c.at, 0, 0, translate.FIN)); fate.Fits != c.fits || (a.Fin != 0) != c.fits {
			t.Errorf("%s: %+v, FIN %d", name, fate, a.Fin)
		}
		was := *a
		if fate := a.Note(b, segment(a, c.at-1, 0, 0, translate.FIN)); fate != (translate.Fate{}) || *a != was {
			t.Errorf("%s, another FIN before it: %+v", name, fate)
		}
		again := a.Note(b, segment(a, c.at, 0, 0, translate.FIN))
		if again.Fits != c.fits || *a != was {
			t.Errorf("%s, again: %+v", name, again)
		}
		for _, at := range []int64{60, int64(a.Sent)} {
			x, y := *a, *b
			if !x.Note(&y, segment(a, at, 0, 0, translate.RST)).Reset {
				t.Errorf("%s: an RST at %d resets nothing", name, at)
			}
		}
		if fate := a.Note(b, segment(a, 500, 0, 0, translate.RST)); fate != (translate.Fate{}) {
			t.Errorf("%s, an RST that is challenged: %+v", name, fate)
		}
		if fate := a.Note(b, segment(a, 500, 1, 0, translate.RST)); fate.Beyond != c.fits {
			t.Errorf("%s, an RST with data behind: %+v", name, fate)
		}
	}
}

// TestResent: a segment that came again counts as resent only if it has the first byte that the other endpoint
// has not acknowledged.
func TestResent(t *testing.T) {
	a, b := pair()
	a.Note(b, segment(a, 0, 100, 0, 0))
	b.Note(a, segment(b, 0, 0, 40, 0))
	a.Note(b, segment(a, 200, 100, 0, 0)) // this leaves a hole
	for _, c := range []struct {
		at, length int64
		want       uint32
	}{{200, 100, 0}, {100, 10, 0}, {41, 10, 0}, {0, 40, 0}, {39, 1, 0}, {40, 60, 1}, {40, 1, 1}, {0, 41, 1}, {0, 100, 1}, {290, 50, 0}} {
		x, y := *a, *b
		if x.Note(&y, segment(a, c.at, c.length, 0, 0)); x.Resent != c.want {
			t.Errorf("%d bytes at %d: %d, want %d", c.length, c.at, x.Resent, c.want)
		}
	}
}

// TestWraps: positions go on when numbers wrap, more than once.
func TestWraps(t *testing.T) {
	a, b := pair()
	const step = 1 << 29
	a.Edge, b.Edge = step, step
	for i := int64(0); i < 40; i++ {
		s := segment(a, i*step, step, 0, 0)
		a.Note(b, s)
		r := segment(b, 0, 0, (i+1)*step, 0)
		r.Window = step
		b.Note(a, r)
	}
	if translate.Delivered(a, b) != 40*step || a.Sent != 40*step {
		t.Errorf("delivered %d, sent %d, want %d", translate.Delivered(a, b), a.Sent, 40*step)
	}
}

// FuzzFlows: no sequence of segments makes a position fall, or acknowledges more than was sent.
func FuzzFlows(f *testing.F) {
	f.Add([]byte{0, 100, 0, 0, 1, 0, 100, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		a, b := pair()
		for ; len(script) >= 4; script = script[4:] {
			x, y := a, b
			if script[3]&1 != 0 {
				x, y = b, a
			}
			was := *x
			s := segment(x, int64(x.Sent)+int64(int8(script[0])), int64(script[1]), int64(y.Sent)+int64(int8(script[2])), script[3]>>1)
			x.Note(y, s)
			if x.Sent < was.Sent || x.Acked < was.Acked || x.Edge < was.Edge || (was.Fin != 0 && x.Fin != was.Fin) {
				t.Fatalf("%+v after %+v by %+v", *x, was, s)
			}
			if x.Acked > y.Sent || x.Sent > y.Edge+1 {
				t.Fatalf("%+v and %+v", *x, *y)
			}
		}
	})
}

// A peer is an endpoint of a scripted session. It has the part of TCP that decides which bytes count. Positions
// are the positions of its Flow.
type peer struct {
	*rand.Rand
	flow  *translate.Flow
	total int64 // bytes that it has to send

	una, next, most int64 // the first byte that is not acknowledged, the next one to send, and the end of everything that was ever sent, with its end of file
	edge            int64 // how far it may send

	got      int64 // bytes that it has accepted
	end      int64 // position of the other peer's end of file, once it was seen
	room     int64 // its window
	promised int64 // the highest right edge of a window that it has shown
}

// expects returns the number that it acknowledges.
func (p *peer) expects() int64 {
	if p.end > 0 && p.got == p.end {
		return p.got + 1
	}
	return p.got
}

// A packet is a packet of a peer, with positions and flags.
type packet struct {
	at, length int64
	flags      uint8
	ack, room  int64
}

// send returns a random packet of a kind that kernels send.
func (p *peer) send() packet {
	k := packet{at: p.next, ack: p.expects(), room: p.room}
	p.promised = max(p.promised, k.ack+k.room)
	switch p.IntN(8) {
	case 0, 1: // new data
		k.length = max(0, min(p.total-p.next, p.edge-p.next, 1+p.Int64N(100)))
		p.next += k.length
	case 2: // the unacknowledged bytes again
		if k.at = p.una; k.at < p.total {
			k.length = max(0, min(min(p.next, p.total)-k.at, 1+p.Int64N(100)))
		}
		if p.next > p.total && k.at+k.length == p.total {
			k.flags = translate.FIN
		}
	case 3: // keepalive: the byte before, with garbage or without (RFC 9293, 3.8.4)
		if p.una == p.next {
			k.at, k.length = p.una-1, p.Int64N(2)
		}
	case 4: // a probe of a closed window: one new byte (RFC 9293, 3.8.6.1), which does not count as sent
		if p.una == p.next && p.edge <= p.next && p.next < p.total {
			k.length = 1
		}
	case 5: // an end of file
		if p.next == p.total {
			k.flags, p.next = translate.FIN, p.total+1
		}
	case 6: // its window changes
		p.room = []int64{0, 0, 1, 50, 300}[p.IntN(5)]
	}
	p.most = max(p.most, k.at+k.length)
	return k
}

// take handles a packet of the other peer.
func (p *peer) take(k packet) {
	if k.ack > p.most+1 || k.ack < p.una-1<<20 {
		return
	}
	if k.ack > p.una {
		p.una, p.next = k.ack, max(p.next, k.ack)
	}
	p.edge = max(p.edge, k.ack+k.room)
	if p.end == 0 && k.at <= p.got {
		edge := max(p.promised, p.got+p.Int64N(2)) // a byte beyond the window is accepted or not
		end := k.at + k.length
		p.got = max(p.got, min(end, edge))
		if k.flags&translate.FIN != 0 && p.got == end {
			p.end = end
		}
	}
}

// TestCourses: two peers talk over a link that loses, doubles and delays packets before the lane. They send
// keepalive probes with or without a byte of garbage, probes of a closed window with a byte that is accepted or
// not, ends of file and resets. No more bytes count as delivered than the endpoint has accepted, and no more
// count as carried than its sender has sent within a window. At the end all bytes count.
func TestCourses(t *testing.T) {
	const courses, steps = 400, 2000
	ended := 0
	for course := range uint64(courses) {
		rnd := rand.New(rand.NewPCG(7, course))
		fa, fb := pair()
		fa.Edge, fb.Edge = 300, 300
		ends := [2]*peer{
			{Rand: rnd, flow: fa, total: rnd.Int64N(2000), edge: 300, room: 300, promised: 300},
			{Rand: rnd, flow: fb, total: rnd.Int64N(2000), edge: 300, room: 300, promised: 300},
		}
		var way [2][]packet
		for step := range steps {
			if step > steps/2 {
				ends[0].room, ends[1].room = 300, 300
			}
			side := rnd.IntN(2)
			p, o := ends[side], ends[1-side]
			k := p.send()
			if rnd.IntN(5) > 0 {
				way[side] = append(way[side], k)
			}
			if rnd.IntN(5) == 0 {
				way[side] = append(way[side], k)
			}
			for len(way[side]) > rnd.IntN(4) {
				i := rnd.IntN(len(way[side]))
				if rnd.IntN(3) > 0 {
					i = 0
				}
				k := way[side][i]
				way[side] = append(way[side][:i], way[side][i+1:]...)
				s := segment(p.flow, k.at, k.length, k.ack, k.flags)
				s.Window = uint32(k.room)
				if fate := p.flow.Note(o.flow, s); !fate.Beyond {
					o.take(k)
				}
			}
			for i, f := range ends {
				to := ends[1-i]
				delivered, carried := translate.Delivered(f.flow, to.flow), translate.Carried(f.flow, to.flow)
				if int64(delivered) > to.got || int64(carried) > min(f.most, f.total) || carried < delivered || int64(carried) < min(to.got, int64(to.flow.Edge)) {
					t.Fatalf("course %d, step %d, side %d: %d delivered, %d carried of %d; %d were taken, total %d\n%+v\n%+v", course, step, i, delivered, carried, f.most, to.got, f.total, *f.flow, *to.flow)
				}
			}
			if translate.Ended(fa, fb) {
				ended++
				for i, f := range ends {
					if n := translate.Delivered(f.flow, ends[1-i].flow); int64(n) != f.total || ends[1-i].got != f.total {
						t.Fatalf("course %d, side %d: %d delivered, %d taken of %d", course, i, n, ends[1-i].got, f.total)
					}
				}
				break
			}
		}
	}
	if ended < courses/2 {
		t.Errorf("%d of %d courses came to their end", ended, courses)
	}
}
