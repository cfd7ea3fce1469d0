package translate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/penstock/penstock/lane/internal/translate"
)

// A peer is an endpoint of a scripted session: as much of TCP as decides which bytes count. Positions are those of its Flow.
type peer struct {
	*rand.Rand
	flow  *translate.Flow
	total int64 // bytes that it has to send

	una, next, most int64 // first that is not acknowledged, next to send, and end of all that was ever sent, its end of file included
	edge            int64 // how far it may send

	got      int64 // bytes that it has taken
	end      int64 // position of the other's end of file, once it was seen
	room     int64 // its window
	promised int64 // the highest right edge of a window that it has shown
}

// expects is the number that it acknowledges.
func (p *peer) expects() int64 {
	if p.end > 0 && p.got == p.end {
		return p.got + 1
	}
	return p.got
}

// packet is one that p sends: positions of its own, and flags.
type packet struct {
	at, length int64
	flags      uint8
	ack, room  int64
}

// send draws a packet of those that kernels send.
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

// take is what an endpoint does with a packet of the other one.
func (p *peer) take(k packet) {
	if k.ack > p.most+1 || k.ack < p.una-1<<20 {
		return
	}
	if k.ack > p.una {
		p.una, p.next = k.ack, max(p.next, k.ack)
	}
	p.edge = max(p.edge, k.ack+k.room)
	if p.end == 0 && k.at <= p.got {
		edge := max(p.promised, p.got+p.Int64N(2)) // a byte beyond is taken or not
		end := k.at + k.length
		p.got = max(p.got, min(end, edge))
		if k.flags&translate.FIN != 0 && p.got == end {
			p.end = end
		}
	}
}

// TestCourses: over a link that loses, doubles and delays before the lane, with keepalive probes with a byte of garbage or without, probes of a
// closed window with a byte that is taken or not, ends of file and resets, no byte more counts as delivered than the endpoint has taken, none more as
// carried than its sender has sent within a window, and at the end all do.
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
