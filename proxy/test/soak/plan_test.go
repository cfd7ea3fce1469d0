//go:build linux

package soak_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

type role int

const (
	client role = iota
	server
)

func (r role) other() role { return 1 - r }

func (r role) String() string { return [2]string{"client", "server"}[r] }

// plan is the behaviour of the two ends of a connection.
type plan struct {
	id     id
	silent bool // the client sends nothing, not even its number, so the server knows no plan
	parts  [2]part
}

// exact reports whether all bytes must arrive.
func (p *plan) exact() bool {
	return !p.parts[client].end.how.rough() && !p.parts[server].end.how.rough()
}

type part struct {
	sends  []send
	total  int64 // bytes of all sends; the client's greeting is not among them
	read   reading
	socket options
	end    ending
}

// send is bytes to send, after some condition and a pause.
type send struct {
	await    int64 // so many bytes of the other end's must have come
	awaitEnd bool  // the other end's end of file must have come
	pause    time.Duration
	n        int64
	piece    int  // how many in one call
	urgent   bool // n is 1, by MSG_OOB
}

// reading is how an end receives.
type reading struct {
	size   int // of its buffer
	stalls []stall
}

// stall is not to read for a while, once so many bytes have come.
type stall struct {
	at int64
	d  time.Duration
}

// options are of the socket; 0 is the kernel's choice.
type options struct {
	sendBuffer, receiveBuffer int  // SO_SNDBUF, SO_RCVBUF
	segment                   int  // TCP_MAXSEG
	nagle                     bool // no TCP_NODELAY
	probes                    int  // seconds between keepalive probes, see soak.probes; 0: none
}

// how is the way in which an end ends.
type how int

const (
	finish     how = iota // an end of file after the last byte, and close after the other's
	quietReset            // a reset once everything has arrived at both ends
	reset                 // a reset
	shutReset             // an end of file after the last byte, then a reset
	leave                 // close, with or without bytes unread
)

var hows = [...]string{"end of file", "reset once all had arrived", "reset", "reset after its end of file", "close"}

func (h how) String() string { return hows[h] }

// rough reports whether bytes may be lost by it.
func (h how) rough() bool { return h >= reset }

// ending is how and when an end ends: after so many bytes sent and received, and a pause. The
// bytes are of the parts' sends, without the greeting.
type ending struct {
	how            how
	sent, received int64
	pause          time.Duration
}

// length is an upper bound of all pauses together.
func (p *plan) length() (d time.Duration) {
	for _, part := range p.parts {
		for _, s := range part.sends {
			d += s.pause
		}
		for _, s := range part.read.stalls {
			d += s.d
		}
		d += part.end.pause
	}
	return d
}

func (p *plan) String() string {
	if p.silent {
		return fmt.Sprintf("a silent client, ends by %v after %v", p.parts[client].end.how, p.length())
	}
	return fmt.Sprintf("client %v; server %v", &p.parts[client], &p.parts[server])
}

// String describes the part, without the times.
func (p *part) String() string {
	var b strings.Builder
	urgent, ended := 0, ""
	for _, s := range p.sends {
		if s.urgent {
			urgent++
		}
		if s.awaitEnd {
			ended = ", some of them after the other's end"
		}
	}
	fmt.Fprintf(&b, "sends %d times %d bytes, %d urgent%s, stalls %d times, buffers %d and %d, ends by %v",
		len(p.sends), p.total, urgent, ended, len(p.read.stalls), p.socket.sendBuffer, p.socket.receiveBuffer, p.end.how)
	if p.end.how != finish {
		fmt.Fprintf(&b, " at %d sent and %d received", p.end.sent, p.end.received)
	}
	return b.String()
}

const (
	// longestIdle is how long a pause may be, unless Config.Longest says otherwise;
	// longestStall of those in which an end does not read.
	longestIdle  = 3 * time.Second
	longestStall = 500 * time.Millisecond
	// A buffer below tiny holds so little that a connection with large segments crawls by the
	// kernel's timers; smallSegment lets it walk.
	tiny         = 32 << 10
	smallSegment = 1000
	// mostTiny is how many bytes one end sends to or by tiny buffers.
	mostTiny = 96 << 10
	// mostCalls bounds in how many pieces bytes are sent.
	mostCalls = 256
)

// drawing is a plan in the making.
type drawing struct {
	*rand.Rand
	longest time.Duration
	plan    *plan
	left    [2]int64 // bytes that may still be sent
}

// draw makes the plan of a connection; talks has it send small messages, and pause seldom.
func draw(seed uint64, i id, longest time.Duration, talks bool) *plan {
	d := &drawing{Rand: i.random(seed), longest: longest, plan: &plan{id: i}}
	if d.chance(0.06) {
		d.silent()
		return d.plan
	}
	d.sockets()
	if talks {
		d.conversation()
	} else {
		d.steps()
	}
	d.endings()
	d.readings()
	return d.plan
}

func (d *drawing) chance(p float64) bool { return d.Float64() < p }

func (d *drawing) either() role { return role(d.IntN(2)) }

// between draws so that each power of two is as likely.
func (d *drawing) between(low, high float64) float64 {
	return low * math.Exp(d.Float64()*math.Log(high/low))
}

func (d *drawing) time(longest time.Duration) time.Duration {
	longest = min(longest, d.longest)
	return time.Duration(d.between(float64(min(longest, 100*time.Microsecond)), float64(longest)))
}

// silent: a client that sends nothing.
func (d *drawing) silent() {
	p := &d.plan.parts[client]
	d.plan.silent, p.read.size = true, 1<<10
	if d.chance(0.6) {
		p.sends = []send{{pause: d.time(longestIdle)}}
	}
	switch x := d.Float64(); {
	case x < 0.3:
		p.end.how = leave
	case x < 0.6 && rough(d.plan.id.round):
		p.end.how = reset
	}
}

// sockets: mostly the kernel's buffers.
func (d *drawing) sockets() {
	d.left = [2]int64{1 << 40, 1 << 40}
	for r := range d.plan.parts {
		o := &d.plan.parts[r].socket
		o.nagle = d.chance(0.1)
		switch x := d.Float64(); {
		case x < 0.12:
			o.sendBuffer = int(d.between(2<<10, tiny))
			d.left = [2]int64{mostTiny, mostTiny}
			if role(r) == client { // a server's is too late once it has accepted
				o.receiveBuffer, o.segment = int(d.between(2<<10, tiny)), smallSegment
			}
		case x < 0.3:
			o.sendBuffer, o.receiveBuffer = int(d.between(128<<10, 1<<20)), int(d.between(128<<10, 1<<20))
		}
	}
}

func (d *drawing) size() int64 {
	switch x := d.Float64(); {
	case x < 0.55:
		return int64(d.between(1, 256))
	case x < 0.78:
		return int64(d.between(256, 16<<10))
	case x < 0.93:
		return int64(d.between(16<<10, 256<<10))
	case x < 0.99:
		return int64(d.between(256<<10, 2<<20))
	}
	return int64(d.between(2<<20, 12<<20))
}

// steps draws the sends, as one sequence. Each send may wait for earlier sends of the other
// end; so no two can wait for each other.
func (d *drawing) steps() {
	from := d.either()
	for range 1 + int(d.ExpFloat64()*4) {
		if d.chance(0.6) {
			from = from.other()
		}
		switch x := d.Float64(); {
		case x < 0.08:
			d.urgent(from)
		case x < 0.16:
			d.pipelined(from)
		case x < 0.20:
			d.burst(from)
		default:
			d.add(from, send{n: d.size(), pause: d.pause()})
		}
	}
}

// pause: mostly none.
func (d *drawing) pause() time.Duration {
	switch x := d.Float64(); {
	case x < 0.7:
		return 0
	case x < 0.95:
		return d.time(20 * time.Millisecond)
	}
	return d.time(longestIdle)
}

// urgent: some urgent bytes, alone or amid others, with and without time for the
// first to be taken.
func (d *drawing) urgent(from role) {
	for range 1 + d.IntN(3) {
		if d.chance(0.5) {
			d.add(from, send{n: int64(d.between(1, 8<<10)), pause: d.pause()})
		}
		d.add(from, send{n: 1, urgent: true, pause: d.pause()})
	}
}

// pipelined: many small messages, none of which waits for an answer.
func (d *drawing) pipelined(from role) {
	n := int64(d.between(8, 200))
	d.add(from, send{n: n * int64(d.between(1, 300)), piece: 1 + d.IntN(300)})
}

// burst: much at once after a long time of nothing.
func (d *drawing) burst(from role) {
	d.add(from, send{n: int64(d.between(256<<10, 6<<20)), pause: d.longest/10 + d.time(longestIdle)})
}

// add appends a send, of bytes that are left to be sent.
func (d *drawing) add(from role, s send) {
	p := &d.plan.parts[from]
	if s.n = min(s.n, d.left[from]); s.n == 0 {
		return
	}
	if d.chance(0.5) {
		s.await = d.plan.parts[from.other()].total
	}
	if s.piece == 0 {
		s.piece = int(d.between(1, float64(s.n)+1))
	}
	s.piece = max(s.piece, int(s.n/mostCalls)+1)
	p.sends = append(p.sends, s)
	p.total += s.n
	d.left[from] -= s.n
}

func (d *drawing) endings() {
	switch x := d.Float64(); {
	case rough(d.plan.id.round) && x < 0.5:
		d.tear(d.either())
		if d.chance(0.15) {
			d.tear(client)
			d.tear(server)
		}
	case x < 0.65:
		// One ends first, and the other goes on.
		last := d.either()
		for range d.IntN(3) {
			d.add(last, send{n: d.size(), pause: d.pause(), awaitEnd: true})
		}
	case x < 0.75:
		d.quiet(d.either())
	}
}

// quiet has one end reset the connection once everything has arrived.
func (d *drawing) quiet(r role) {
	p := &d.plan.parts[r]
	p.end = ending{how: quietReset, sent: p.total, received: d.plan.parts[r.other()].total, pause: d.pause()}
}

func (d *drawing) tear(r role) {
	p, peer := &d.plan.parts[r], &d.plan.parts[r.other()]
	p.end = ending{how: reset + how(d.IntN(3)), pause: d.pause()}
	if d.chance(0.7) {
		p.end.sent = d.Int64N(p.total + 1)
	}
	if d.chance(0.7) {
		p.end.received = d.Int64N(peer.total + 1)
	}
	if p.end.how == shutReset {
		p.end.sent = p.total
	}
}

func (d *drawing) readings() {
	for r := range d.plan.parts {
		p, comes := &d.plan.parts[r], d.plan.parts[role(r).other()].total
		p.read.size = int(max(d.between(1, 256<<10), float64(comes/mostCalls), 1))
		if !d.chance(0.35) {
			continue
		}
		at := int64(0)
		for range 1 + d.IntN(3) {
			if at >= comes {
				break
			}
			at += d.Int64N(comes - at)
			p.read.stalls = append(p.read.stalls, stall{at: at, d: d.time(longestStall)})
			at++
		}
	}
}

// Messages of a conversation are small, and now and then one is larger than a segment.
const (
	smallMessage = 300
	largeMessage = 9000
	// mostTurns bounds the turns of a conversation, and fewestTurns those of one that no small buffer ends before; turnMessages is how many messages
	// one end sends at most until it waits for as many of the other's.
	fewestTurns, mostTurns = 20, 1000
	turnMessages           = 8
)

// conversation draws messages in place of steps: some of one end, and as many of the other once these have come.
func (d *drawing) conversation() {
	from := d.either()
	for range int(d.between(fewestTurns, mostTurns)) {
		n := 1 + d.IntN(turnMessages)
		d.turn(from, n)
		d.turn(from.other(), n)
	}
}

// turn draws n messages of an end, which wait for all of the other end's so far.
func (d *drawing) turn(from role, n int) {
	p := &d.plan.parts[from]
	await := d.plan.parts[from.other()].total
	for range n {
		size := int64(d.IntN(smallMessage))
		if size == 0 {
			size = largeMessage
		}
		if size = min(size, d.left[from]); size == 0 {
			return
		}
		p.sends = append(p.sends, send{n: size, piece: int(size), await: await})
		p.total += size
		d.left[from] -= size
	}
}

// arrived returns how many of the part's sends have come whole, where so many of its bytes have come.
func (p *part) arrived(received int64) (n int64) {
	for _, s := range p.sends {
		if received -= s.n; received < 0 {
			break
		}
		if s.n > 0 {
			n++
		}
	}
	return n
}

// id is the number of a connection.
type id struct{ round, n uint32 }

// String is "3.117".
func (i id) String() string { return fmt.Sprintf("%d.%d", i.round, i.n) }

// rough reports whether the round is one in which connections are torn down.
func rough(round uint32) bool { return round%2 == 0 }

// greeting is the length of the first bytes of a client, in which it names its
// connection.
const greeting = 12

const magic = 0x736f616b

var errNoGreeting = errors.New("what a client began with is not the number of a connection")

func (i id) greet() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, greeting), magic)
	b = binary.BigEndian.AppendUint32(b, i.round)
	return binary.BigEndian.AppendUint32(b, i.n)
}

func parseGreeting(b []byte) (id, error) {
	if len(b) != greeting || binary.BigEndian.Uint32(b) != magic {
		return id{}, fmt.Errorf("%w: %x", errNoGreeting, b)
	}
	return id{binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])}, nil
}

// random is the source of everything that is drawn for a connection.
func (i id) random(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(i.round)<<32|uint64(i.n)))
}
