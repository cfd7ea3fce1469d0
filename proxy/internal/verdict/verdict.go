package verdict

import "time"

// A Verdict says what limits a session.
type Verdict struct {
	Kind Kind
	// Young says that the sample is shorter than [Least], so Kind is Unknown.
	Young bool
	// Shares divides the session's time by kind. The shares add up to 1; all are 0 if the session has lasted for
	// no time.
	Shares [Kinds]float64
	sample Sample
	parts  parts
}

// parts divides the times of [Client], [Endpoint] and [Proxy] further.
type parts struct {
	a, b      hostParts
	cpu, turn time.Duration // without a CPU, and waiting for a turn of the loop
}

// hostParts divides the time in which a peer kept the session waiting: it sent nothing, it took nothing, or its
// window was shut though nothing waited for room.
type hostParts struct{ sent, took, shut time.Duration }

// Kept returns the shares of the time in which the session was kept waiting. It leaves out the idle time and the
// client's silence, which keep nobody waiting.
func (v *Verdict) Kept() [Kinds]float64 {
	kept := v.Shares
	kept[Idle] = 0
	if v.sample.Duration > 0 {
		kept[Client] = max(0, kept[Client]-float64(v.parts.a.sent)/float64(v.sample.Duration))
	}
	return kept
}

// Least is the shortest time in user space that can be judged. The clocks of the waits and of the kernel have
// steps of milliseconds, and an acknowledgment may be delayed for 40 ms. From this age on, the end of a session
// costs two system calls for its verdict.
const Least = 100 * time.Millisecond

// Of judges a sample. It allocates nothing.
func Of(s *Sample) Verdict {
	if s.Duration <= 0 || s.Duration >= Least || s.Lane != nil {
		return of(s)
	}
	v := Verdict{sample: *s, Young: true}
	v.Shares[Unknown] = 1
	return v
}

// of judges a sample of any length.
func of(s *Sample) Verdict {
	v := Verdict{sample: *s}
	if s.Duration <= 0 {
		return v
	}
	var t [Kinds]time.Duration
	if s.Lane != nil {
		t = s.laneTimes(&v.parts)
	} else {
		t = s.times(&v.parts)
	}
	for k := range t {
		v.Shares[k] = float64(t[k]) / float64(s.Duration)
		if v.Shares[k] > v.Shares[v.Kind] {
			v.Kind = Kind(k)
		}
	}
	return v
}

// times divides the time of a sample by kind.
func (s *Sample) times(p *parts) (t [Kinds]time.Duration) {
	w := &s.Waits
	sum := w.ForA + w.ForB + w.ToA + w.ToB
	t[Limit], p.turn = min(w.Bandwidth, s.Duration), min(w.Loop, s.Duration)
	waited := min(sum, max(s.Duration-t[Limit]-p.turn, 0)) // a larger sum has a wait from before the sample, or is rounded up to ticks
	if sum > 0 {
		a, b := s.A.divide(w.ForA, w.ToA, w.PausesA), s.B.divide(w.ForB, w.ToB, w.PausesB)
		scale := float64(waited) / float64(sum)
		a.scale(scale)
		b.scale(scale)
		p.cpu = s.starve(&a, &b)
		p.a, p.b = hostParts{sent: a.hostFor, took: a.hostTo}, hostParts{sent: b.hostFor, took: b.hostTo}
		t[ClientNetwork], t[EndpointNetwork] = a.networkFor+a.networkTo, b.networkFor+b.networkTo
		t[Unknown] = a.unknown + b.unknown
	}
	t[Client], t[Endpoint], t[Proxy] = p.a.sent+p.a.took, p.b.sent+p.b.took, p.turn+p.cpu
	rest := s.Duration
	for _, d := range t {
		rest -= d
	}
	rest = max(rest, 0)
	rest -= s.A.outstanding(rest, w.ForA+w.ToA, &p.a.shut, &t[ClientNetwork])
	rest -= s.B.outstanding(rest, w.ForB+w.ToB, &p.b.shut, &t[EndpointNetwork])
	t[Client] += p.a.shut
	t[Endpoint] += p.b.shut
	t[s.quiet()] += rest
	return t
}

// outstanding returns the part of a quiet time in which bytes for the peer were outstanding. It divides that part
// between the peer's program and the network. Time that already counts as a wait for the peer is left out.
func (p *Peer) outstanding(quiet, waits time.Duration, host, network *time.Duration) time.Duration {
	busy := min(quiet, p.Busy-waits)
	if busy < quiet/10 { // the clock of Busy is coarse
		return 0
	}
	shut := time.Duration(float64(busy) * p.window())
	*host = shut
	if p.clear() {
		return shut // a delayed acknowledgment is no fault of the path
	}
	*network += busy - shut
	return busy
}

// A division divides the waits for a peer's bytes (For), and for room at the peer (To), between the peer's program
// and the network.
type division struct {
	hostFor, networkFor, hostTo, networkTo, unknown time.Duration
	networkHere                                     time.Duration // part of networkFor: bytes may have arrived here meanwhile
}

func (d *division) scale(by float64) {
	shrink(&d.hostFor, by)
	shrink(&d.networkFor, by)
	shrink(&d.networkHere, by)
	shrink(&d.hostTo, by)
	shrink(&d.networkTo, by)
	shrink(&d.unknown, by)
}

func shrink(d *time.Duration, by float64) { *d = time.Duration(float64(*d) * by) }

// latest is the longest time for which a thread waits for a CPU after its bytes have come: the period of a CPU
// bandwidth limit (cpu.max).
const latest = 100 * time.Millisecond

// starve takes the time without a CPU out of the waits for bytes, and returns it: the bytes may have arrived
// during that time. Waits for room stay, because they show in the time in which bytes are outstanding. During a
// wait for a network, bytes keep arriving, so such waits count only if the process hardly ran and if many bytes
// came at a time.
//
// The result is limited, because the process also had no CPU when this session did not wait. A question or an
// answer comes at any moment. So a wait for it can be longer by the time that one event waits for the process. The
// next bytes of a stream come after a turn of this process, which may have used up its CPU time. So they can wait
// for the whole time without a CPU, which is twice as long. A question waits no longer than an answer, and answers
// wait no longer than the session waited for them.
func (s *Sample) starve(a, b *division) time.Duration {
	hardlyRan := s.Starved+s.Waits.Loop > s.Duration*2/5
	w := &s.Waits
	each := latest
	if s.Late >= 0 {
		each = 2 * s.Late
		if 2*w.PausesB > w.PausesA && 2*w.PausesA > w.PausesB && a.hostFor > 3*s.Late*time.Duration(w.PausesA) {
			each = s.Late // questions and answers, and the client takes its time
		}
		each = min(each, latest)
	}
	ofA := min(a.here(hardlyRan), time.Duration(w.PausesA+1)*each)
	ofB := min(b.here(hardlyRan), time.Duration(w.PausesB+1)*each)
	if w.PausesB > 0 && 2*w.PausesB > w.PausesA {
		ofA = min(ofA, time.Duration(float64(ofB)*float64(w.PausesA+1)/float64(w.PausesB)))
	}
	sum := ofA + ofB
	taken := min(max(s.Starved, 0), sum)
	if taken == 0 {
		return 0
	}
	fromA := time.Duration(float64(taken) * float64(ofA) / float64(sum))
	a.take(fromA, hardlyRan)
	b.take(taken-fromA, hardlyRan)
	return taken
}

// here returns the time of the waits during which bytes may have arrived here.
func (d *division) here(hardlyRan bool) time.Duration {
	if hardlyRan {
		return d.hostFor + d.unknown + d.networkHere
	}
	return d.hostFor + d.unknown
}

// take takes a part of the time of here out of the division.
func (d *division) take(part time.Duration, hardlyRan bool) {
	all := d.here(hardlyRan)
	if all == 0 {
		return
	}
	left := 1 - float64(part)/float64(all)
	shrink(&d.hostFor, left)
	shrink(&d.unknown, left)
	if hardlyRan {
		d.networkFor -= d.networkHere
		shrink(&d.networkHere, left)
		d.networkFor += d.networkHere
	}
}

// quiet returns the kind of the time in which the session waited for nothing.
func (s *Sample) quiet() Kind {
	switch {
	case s.B.Gap:
		return EndpointNetwork
	case s.A.Gap:
		return ClientNetwork
	}
	return Idle
}

// divide divides the waits for a peer between its program and the network.
func (p *Peer) divide(bytes, room time.Duration, pauses int64) (d division) {
	switch {
	case p.Local:
		return division{hostFor: bytes, hostTo: room}
	case !p.Known:
		return division{unknown: bytes + room}
	}
	asking := p.asking(min(max(p.Busy-room, 0), bytes), pauses)
	receiving := p.receiving(bytes-asking, pauses)
	d.networkFor, d.networkTo, d.networkHere = asking+receiving, p.sending(room), asking
	if p.SegmentsReceived > manyAtATime*pauses {
		d.networkHere += receiving
	}
	d.hostFor, d.hostTo = bytes-d.networkFor, room-d.networkTo
	return d
}

// sending returns the network's part of a wait for room: the time in which something other than the peer's window
// kept bytes back. BBR paces to the rate at which a slow peer reads. That is no fault of a network that neither
// loses packets nor queues them.
func (p *Peer) sending(room time.Duration) time.Duration {
	switch {
	case p.Busy <= 0, p.window() >= shut && !p.troubled(), p.clear():
		return 0
	}
	return time.Duration(float64(room) * (1 - p.window()))
}

// shut is the share of the busy time above which the peer's window counts as what keeps bytes back, if the network
// shows no other cause.
const shut = 0.1

// troubled reports whether packets for the peer are lost, or wait in a queue.
func (p *Peer) troubled() bool {
	return p.Retransmitted*100 >= p.SegmentsSent && p.Retransmitted > 0 || p.Unanswered > 0 || p.RTT > p.MinRTT+delayed
}

// clear reports whether the path to the peer shows nothing that keeps bytes back: nothing was sent again, the
// least round trip is short, and other round trips are not clearly longer.
func (p *Peer) clear() bool {
	return p.Retransmitted == 0 && p.Unanswered == 0 && p.MinRTT < time.Millisecond && !p.slowed()
}

// window returns the share of the busy time in which the peer's window limited the sending. While nothing is
// acknowledged, the kernel goes on counting that time, so the time without an acknowledgment is left out.
func (p *Peer) window() float64 {
	shut := min(p.PeerWindow, p.Busy-p.Unanswered)
	return float64(max(shut, 0)) / float64(max(p.Busy, 1))
}

const (
	// longQueue is by how much a round trip exceeds the least round trip if bytes wait in a queue. It is more than
	// a delayed acknowledgment adds to the average.
	longQueue = 10 * time.Millisecond
	// shortQueue is the same for packets that come one by one, as from a link, and not in bursts, as from a
	// program.
	shortQueue = 3 * time.Millisecond
	// delayed is the same where each round trip may include a delayed acknowledgment (include/net/tcp.h,
	// TCP_DELACK_MIN).
	delayed = 50 * time.Millisecond
	// fullFlight: if bytes wait in a queue, the queue takes at least fullFlight times the mean pause between them.
	// BBR keeps four packets under way (net/ipv4/tcp_bbr.c, bbr_cwnd_min_target).
	fullFlight = 3
	// leastMeasured is the payload of the smallest packets by which the kernel measures a round trip
	// (net/ipv4/tcp_input.c, tcp_rcv_rtt_measure_ts; include/net/tcp.h, TCP_MIN_MSS and TCP_MSS_DEFAULT).
	leastMeasured = 536
	// atOnce is how many packets of an answer are sent without waiting for an acknowledgment (RFC 6928). So few
	// packets fill no queue.
	atOnce = 10
	// behindGap: if losses limit the sender, one in behindGap packets or more comes behind a gap. A sender that
	// loses a share p has a window of 1.2/√p packets (Mathis and others, "The macroscopic behavior of the TCP
	// congestion avoidance algorithm", 1997), and most of the window comes behind the lost packet. A sender that
	// pauses has fewer packets behind a gap.
	behindGap = 50
	// manyAtATime is more packets than a link delivers between two turns of a loop that is awake and waits for the
	// link.
	manyAtATime = 4
	// lossTime is how long a lost packet may keep the others waiting: the least timeout of a retransmission
	// (net/ipv4/tcp.c, TCP_RTO_MIN).
	lossTime = 200 * time.Millisecond
)

// receiving returns the network's part of a wait for bytes: the time in which the peer's bytes were on their way.
func (p *Peer) receiving(bytes time.Duration, pauses int64) time.Duration {
	switch {
	case p.OutOfOrder > 0 && p.OutOfOrder*behindGap >= p.SegmentsReceived:
		return min(bytes, time.Duration(p.OutOfOrder)*lossTime)
	case p.queued(bytes, pauses):
		return bytes
	}
	return 0
}

// asking returns the network's part of the time in which the session waited for the peer while bytes for the peer
// were outstanding. The peer may send its acknowledgment only with its answer. So without a loss or a queue, the
// network's part is one round trip for each segment.
func (p *Peer) asking(busy time.Duration, pauses int64) time.Duration {
	if p.Retransmitted > 0 || p.Unanswered > 0 || p.queueing(pauses) {
		return time.Duration(float64(busy) * (1 - p.window()))
	}
	return min(busy, time.Duration(p.SegmentsSent)*p.MinRTT)
}

// queued reports whether the peer's bytes wait in a queue on their way. Then the queue takes much longer than the
// pauses between the bytes. The kernel's estimate of the round trip includes one of the peer's own pauses, or the
// time it takes to receive a whole window. For small packets, and perhaps for answers, it is only that time, which
// says nothing about a queue. One pause for each packet that we sent is a wait for the answer, and does not count.
func (p *Peer) queued(bytes time.Duration, pauses int64) bool {
	if p.Received < p.SegmentsReceived*leastMeasured || p.SegmentsReceived <= p.SegmentsSent*atOnce {
		return false
	}
	least := longQueue
	if 2*pauses >= p.SegmentsReceived {
		least = shortQueue
	}
	pauses -= p.SegmentsSent
	queue := p.ReceiverRTT - p.MinRTT
	return pauses > 0 && queue > least && queue > fullFlight*bytes/time.Duration(pauses)
}
