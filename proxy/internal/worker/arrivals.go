package worker

import (
	"context"
	"encoding/binary"
	"iter"
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/internal/source"
)

// An Arrival is a client that has come, or was refused.
type Arrival struct {
	Source source.Source // without its port; unknown for a unix client if its user was not asked for
	// Unix says that the client came by a unix socket.
	Unix bool
	// Share is how much the client adds to a rate per second: 1 divided by the seconds that its loop remembers of the time
	// asked for.
	Share float64
}

// arrivals are the last clients of a loop, in a ring that grows on demand. Noting a client costs as much as writing its 24
// bytes.
type arrivals struct {
	chunks [][]arrival
	chunk  int       // arrivals in a chunk
	most   int       // chunks at most
	n      uint64    // arrivals noted so far
	rest   []arrival // of the present chunk
}

// An arrival is an address, or a user, and a time.
type arrival struct {
	hi, lo uint64
	at     int64 // loop clock, with the kind in the lowest bits
}

// The kinds of an arrival.
const (
	fromTCP = iota
	fromUnix
	fromUnixUser
	kindBits = 2
)

const (
	arrivalChunk = 4096
	// mostArrivals are about three seconds of a loop that accepts as fast as it can. mostRefusals are as many as anyone
	// needs.
	mostArrivals, mostRefusals = 16 * arrivalChunk, 4 * arrivalChunk
)

func newArrivals(most int) arrivals {
	return arrivals{chunk: arrivalChunk, most: most / arrivalChunk}
}

func (r *arrivals) note(c *Client, now int64) {
	if len(r.rest) == 0 {
		r.rest = r.next()
	}
	r.rest[0].set(c, now)
	r.rest = r.rest[1:]
	r.n++
}

func (r *arrivals) next() []arrival {
	at := int(r.n / uint64(r.chunk) % uint64(r.most))
	if at == len(r.chunks) {
		r.chunks = append(r.chunks, make([]arrival, r.chunk))
	}
	return r.chunks[at]
}

// set notes a client. It asks the kernel for nothing.
func (a *arrival) set(c *Client, now int64) {
	ip := c.peer.AddrPort().Addr()
	if c.Header.Known() {
		ip = c.Header.Source.Addr()
	}
	if ip.IsValid() {
		b := ip.As16()
		a.hi, a.lo, a.at = binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), now<<kindBits
		return
	}
	*a = arrival{at: now<<kindBits | fromUnix}
	if peer, known := c.peer.Credentials(); known {
		a.lo, a.at = uint64(peer.UID), now<<kindBits|fromUnixUser
	}
}

func (a *arrival) arrival(share float64) Arrival {
	switch a.at & (1<<kindBits - 1) {
	case fromUnix:
		return Arrival{Unix: true, Share: share}
	case fromUnixUser:
		return Arrival{Source: source.Unix(source.Credentials{UID: uint32(a.lo)}), Unix: true, Share: share}
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return Arrival{Source: source.TCP(netip.AddrPortFrom(netip.AddrFrom16(b), 0)), Share: share}
}

// An arrivalPart is a part of the arrivals, the newest last.
type arrivalPart struct {
	list []arrival
	next uint64 // the next part ends before this number; 0: there is none
	full time.Duration
}

// part returns a chunk of the arrivals before a number (0: the newest) and since a time.
func (r *arrivals) part(before uint64, since, now int64) (p arrivalPart) {
	most := uint64(r.chunk * r.most)
	if before == 0 || before > r.n {
		before = r.n
	}
	oldest := r.n - min(r.n, most)
	p.full = time.Duration(now - since)
	if r.n > most { // only the time that the ring remembers
		first := r.chunks[r.n%most/uint64(r.chunk)][r.n%uint64(r.chunk)].at >> kindBits
		p.full = min(p.full, time.Duration(now-first))
	}
	for p.next = before; p.next > oldest && len(p.list) < r.chunk; {
		a := r.chunks[(p.next-1)%most/uint64(r.chunk)][(p.next-1)%uint64(r.chunk)]
		if a.at>>kindBits < since {
			oldest = p.next
			break
		}
		p.list = append(p.list, a)
		p.next--
	}
	if p.next <= oldest {
		p.next = 0
	}
	return p
}

// Arrivals yields the clients that came, or were refused, within a time, as far as the loops remember them: each loop
// keeps the last 65,536 clients, and 16,384 that were refused. It may be called in the same way as [Group.Sessions].
func (g *Group) Arrivals(ctx context.Context, within time.Duration, refused bool) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		if !g.started.Load() {
			return
		}
		for _, w := range g.workers {
			for before, more := uint64(0), true; more; {
				p, ok := askPart(ctx, g, w, func() arrivalPart {
					now := w.loop.Now()
					list := &w.arrived
					if refused {
						list = &w.turnedAway
					}
					return list.part(before, now-int64(within), now)
				})
				if !ok {
					return
				}
				share := 1 / max(p.full, time.Millisecond).Seconds()
				for i := range p.list {
					if !yield(p.list[i].arrival(share)) {
						return
					}
				}
				before, more = p.next, p.next > 0
			}
		}
	}
}
