package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// legOf returns the account of a TCP socket.
func legOf(fd int) (l Leg) {
	var i sys.TCPInfo
	n, err := sys.ReadTCPInfo(fd, &i)
	if err != nil || n < sys.TCPInfoWithBytes {
		return l
	}
	us := func(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }
	l = Leg{
		Known: true,
		Busy:  us(i.Busy_time), PeerWindow: us(i.Rwnd_limited), SendBuffer: us(i.Sndbuf_limited),
		RTT: us(uint64(i.Rtt)), ReceiverRTT: us(uint64(i.Rcv_rtt)),
		DeliveryRate: int64(i.Delivery_rate), AppLimited: sys.AppLimited(&i),
		Sent: int64(i.Bytes_sent), Received: int64(i.Bytes_received), NotSent: int64(i.Notsent_bytes),
		SegmentsSent: int64(i.Data_segs_out), SegmentsReceived: int64(i.Data_segs_in),
		Retransmitted: int64(i.Total_retrans), OutOfOrder: int64(i.Rcv_ooopack),
	}
	if i.Min_rtt != ^uint32(0) { // there was no sample (net/ipv4/tcp_input.c, tcp_init_sock)
		l.MinRTT = us(uint64(i.Min_rtt))
	}
	if i.Retransmits > 0 && i.Unacked > 0 { // in the backoff of the timeout (include/uapi/linux/tcp.h; net/ipv4/tcp_timer.c, tcp_retransmit_timer)
		l.Unanswered = time.Duration(i.Last_ack_recv) * time.Millisecond
	}
	l.Gap = l.OutOfOrder > 0 && gap(fd)
	return l
}

// gap reports whether bytes are in the receive queue of which none can be read, as far as is known.
func gap(fd int) bool {
	memory, err := sys.ReceiveMemory(fd)
	if err != nil || memory == 0 {
		return false
	}
	n, err := sys.FIONREAD(fd)
	return err == nil && n == 0
}

func (p *loopSocket) inspect() (l Leg) {
	if p.is(tcp) {
		l = legOf(int(p.fd))
	}
	return l
}

// quietSocket reports whether a socket has nothing to be read, and nothing that its peer has not acknowledged or,
// of a unix socket, not read. What the kernel does not say counts as something.
func quietSocket(fd int) bool {
	unread, err := sys.FIONREAD(fd)
	if err != nil || unread > 0 {
		return false
	}
	unsent, err := sys.SIOCOUTQ(fd)
	return err == nil && unsent == 0
}

func (p *loopSocket) quiet() bool { return quietSocket(int(p.fd)) }

// unacknowledged is how many bytes a reset would throw away: none of a unix socket, which has none.
func (p *loopSocket) unacknowledged() int {
	if !p.is(tcp) {
		return 0
	}
	return unacknowledged(int(p.fd))
}

// unacknowledged is how many bytes the peer of a TCP socket has not acknowledged; 0 also if the kernel does not say that.
func unacknowledged(fd int) int {
	n, err := sys.SIOCOUTQ(fd)
	if err != nil {
		return 0
	}
	return n
}

// quiet is quietSocket of the socket beneath c; false: there is none.
func quiet(c any) (is bool) {
	withSocket(c, func(fd int) { is = quietSocket(fd) })
	return is
}

// unacknowledgedBy is unacknowledged of the TCP socket c; 0: it has been reset.
func unacknowledgedBy(c any) (n int) {
	withSocket(c, func(fd int) {
		if state, err := sys.TCPState(fd); err == nil && state != sys.TCP_CLOSE {
			n = unacknowledged(fd)
		}
	})
	return n
}

// inspect returns the account of the TCP connection beneath c.
func inspect(c any) (l Leg) {
	withSocket(c, func(fd int) { l = legOf(fd) })
	return l
}
