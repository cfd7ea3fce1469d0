package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A descriptor is an end that is moved beneath Go. It can be source or sink, but belongs to one direction, as
// one of them.
type descriptor struct {
	raw  syscall.RawConn // of a *net.TCPConn, *net.UnixConn or *os.File, which owns fd
	leg  *legState
	fd   int // borrowed; set and valid inside a callback of raw
	kind kind
}

type kind uint8

const (
	socket kind = iota
	tcpSocket
	fifo
	regular
)

// newDescriptor returns the descriptor of c, or nil if c has to be moved by its own Read and Write, because it
// has another type or is a file that is neither regular nor on the runtime's poller.
func newDescriptor(c any, leg *legState) *descriptor {
	if !isPlain(c) {
		return nil
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	d := &descriptor{raw: raw, leg: leg}
	switch c.(type) {
	case *net.TCPConn:
		d.kind = tcpSocket
	case *net.UnixConn:
		d.kind = socket
	default:
		ok := false
		if err := raw.Control(func(fd uintptr) { d.kind, ok = kindOfFile(int(fd)) }); err != nil || !ok {
			return nil
		}
	}
	return d
}

// kindOfFile returns the kind of an *os.File. A FIFO or socket that blocks is not on the
// runtime's poller, so a driver could not wait for it.
func kindOfFile(fd int) (k kind, ok bool) {
	mode, err := sys.FstatMode(fd)
	if err != nil {
		return 0, false
	}
	switch mode & sys.S_IFMT {
	case sys.S_IFREG:
		return regular, true
	case sys.S_IFIFO:
		k = fifo
	case sys.S_IFSOCK:
		if t, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, syscall.SO_TYPE); err != nil || t != syscall.SOCK_STREAM {
			return 0, false // it has messages, and an empty message is no end of file
		}
		k = socket
		if _, err := sys.TCPState(fd); err == nil {
			k = tcpSocket
		}
	default:
		return 0, false
	}
	flags, err := sys.GetFl(fd)
	return k, err == nil && flags&sys.O_NONBLOCK != 0
}

// wholeMessages returns a reader of r's messages that fails instead of cutting a message off, if r may have
// longer messages than any buffer: datagrams of a unix socket (unix(7)). A datagram of IP has less than 64 KiB.
func wholeMessages(r io.Reader) io.Reader {
	if c, ok := r.(*net.UnixConn); ok && framingOf(c) == datagrams {
		return unixMessages{c}
	}
	return r
}

type unixMessages struct{ *net.UnixConn }

// Read returns io.ErrShortBuffer, and nothing of the message, if the message is longer than a whole buffer. A
// smaller p is a copy of n bytes that wants only a part; it gets the part, as from io.CopyN.
func (c unixMessages) Read(p []byte) (int, error) {
	if len(p) < bufferSize {
		return c.UnixConn.Read(p)
	}
	n, _, flags, _, err := c.ReadMsgUnix(p, nil)
	switch {
	case errors.Is(err, io.EOF): // the io.EOF is inside an OpError
		return n, io.EOF
	case err == nil && flags&syscall.MSG_TRUNC != 0:
		return 0, io.ErrShortBuffer
	}
	return n, err
}

// framingOfFile returns the framing of a file that is not on the runtime's poller. A device (tun) or a pipe
// (pipe(2), O_DIRECT) may have packets.
func framingOfFile(f *os.File) (is framing) {
	withSocket(f, func(fd int) {
		mode, err := sys.FstatMode(fd)
		if err != nil {
			return
		}
		switch mode & sys.S_IFMT {
		case sys.S_IFREG:
			is = streaming
		case sys.S_IFIFO:
			if flags, err := sys.GetFl(fd); err == nil && flags&syscall.O_DIRECT == 0 {
				is = streaming
			}
		case sys.S_IFSOCK:
			is = datagrams
			if t, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, syscall.SO_TYPE); err == nil && t == syscall.SOCK_STREAM {
				is = streaming
			}
		}
	})
	return is
}

func (d *descriptor) isSocket() bool { return d.kind <= tcpSocket }

func (d *descriptor) recv(p []byte) (int, error) {
	if d.isSocket() {
		return sys.Recv(d.fd, p, sys.MSG_DONTWAIT)
	}
	return sys.Read(d.fd, p)
}

// stopped reports whether the source can be read although a read answered EAGAIN. It is asked before each wait,
// because the runtime's poller does not report urgent data. Asking for the mark costs less than the wait.
func (d *descriptor) stopped() bool {
	if d.kind != tcpSocket {
		return false
	}
	at, err := sys.SIOCATMARK(d.fd)
	return at && err == nil && stoppedAtMark(d.fd)
}

// stoppedAtMark reports whether a read of a TCP socket has answered EAGAIN only because a signal, such as one
// of the runtime's, was pending when the read came to the urgent mark (net/ipv4/tcp.c, tcp_recvmsg_locked):
// there are bytes to read, and no edge reports them. If the urgent byte is not inline, FIONREAD does not count
// the bytes behind the mark, but poll sees them.
func stoppedAtMark(fd int) bool {
	events, err := sys.Poll(fd, sys.POLLIN)
	return err == nil && events&sys.POLLIN != 0
}

func (d *descriptor) send(p []byte) (int, error) {
	if d.isSocket() {
		return sys.Send(d.fd, p, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
	}
	return sys.Write(d.fd, p)
}

func (d *descriptor) fill(c splicePipe, max int) (int, error) {
	if d.isSocket() {
		return c.FillSocket(d.fd, max)
	}
	return c.Fill(d.fd, max)
}

func (d *descriptor) drain(c splicePipe, max int) (int, error) {
	if d.isSocket() {
		return c.DrainSocket(d.fd, max)
	}
	return c.Drain(d.fd, max)
}

// peek looks at one byte. It leaves the answer of splice as it is for a FIFO or a file, which have no urgent
// marks and no sockmap.
func (d *descriptor) peek(spliceErr error) (int, error) {
	if !d.isSocket() {
		return 0, spliceErr
	}
	var b [1]byte
	return sys.Recv(d.fd, b[:], sys.MSG_PEEK|sys.MSG_DONTWAIT)
}

// transfer sends a regular file: by copy_file_range(2) into another file, for which a file system may share
// blocks, otherwise by sendfile(2).
func (d *descriptor) transfer(dst sink, max int) (n int, op string, err error) {
	to := dst.(*descriptor)
	if to.kind == regular {
		n, err = sys.CopyFileRange(d.fd, to.fd, max)
		return n, "copy_file_range", err
	}
	n, err = sys.Sendfile(to.fd, d.fd, nil, max)
	return n, "sendfile", err
}

// raiseMark raises the mark of TCP alone: poll ignores it on other kinds.
func (d *descriptor) raiseMark(n int) bool {
	return d.kind == tcpSocket && sys.SetsockoptInt(d.fd, sys.SOL_SOCKET, sys.SO_RCVLOWAT, n) == nil
}

// lowerMark fails only on a connection that is closed.
func (d *descriptor) lowerMark() {
	_ = d.raw.Control(func(fd uintptr) {
		_ = sys.SetsockoptInt(int(fd), sys.SOL_SOCKET, sys.SO_RCVLOWAT, 1)
	})
}

func (d *descriptor) aborted() bool {
	return d.kind == tcpSocket && d.leg.tcpAborted(d.fd)
}

func (d *descriptor) queued() int {
	if !d.isSocket() {
		return 0
	}
	n, err := sys.FIONREAD(d.fd)
	if err != nil {
		return 0
	}
	return n
}

func (d *descriptor) untaken(sent bool) int64 {
	if d.kind != tcpSocket {
		return 0
	}
	return untaken(d.fd, sent)
}

// untaken returns how much of a TCP socket's send queue was never sent, or if sent is set, how much the peer has not
// acknowledged: bytes, and 1 for an end of file. The kernel keeps both numbers after a reset and a time-out, which empty
// the queue (net/ipv4/tcp.c, tcp_ioctl).
func untaken(fd int, sent bool) int64 {
	ask := sys.SIOCOUTQNSD
	if sent {
		ask = sys.SIOCOUTQ
	}
	n, err := ask(fd)
	if err != nil {
		return 0
	}
	return int64(n)
}

func (d *descriptor) closeWrite() error {
	if d.leg.over {
		return nil
	}
	d.leg.shut.Store(true)
	if !d.isSocket() {
		return errNoHalfClose
	}
	return sys.ShutdownWrite(d.fd)
}

// tcpAborted looks for a reset after a write has collected its error (sk_err): tcp_reset leaves the socket in
// TCP_CLOSE, and a read then returns 0 (net/ipv4/tcp.c, tcp_recvmsg_locked). A FIN leaves the socket in
// CLOSE_WAIT or, if we have sent our FIN, in states that may reach TCP_CLOSE too; but then no write was left to
// collect an error. If others may have ended the connection, as in a Copy, TCP_CLOSE means nothing.
func (l *legState) tcpAborted(fd int) bool {
	if !l.ours {
		return false
	}
	state, err := sys.TCPState(fd)
	return err == nil && state == sys.TCP_CLOSE && !l.shut.Load() // shut is read after the state, because it is set before the state changes
}

// look finds out whether the owner of c has ended it before. In TCP_CLOSE both sides have ended it, or a reset
// has come. If the reset's error is still unread, poll(2) shows it (net/ipv4/tcp.c, tcp_poll); otherwise the
// owner has read it and knows.
func (l *legState) look(c any) {
	withSocket(c, func(fd int) {
		switch state, err := sys.TCPState(fd); {
		case err != nil:
		case state == sys.TCP_FIN_WAIT1, state == sys.TCP_FIN_WAIT2, state == sys.TCP_CLOSING, state == sys.TCP_LAST_ACK,
			state == sys.TCP_CLOSE && !sys.HasError(fd):
			l.over = true
			l.shut.Store(true)
		}
	})
}

// aborted reports whether the socket beneath c, if any, is tcpAborted.
func (l *legState) aborted(c any) (is bool) {
	withSocket(c, func(fd int) { is = l.tcpAborted(fd) })
	return is
}

// withSocket calls f with the descriptor of the socket beneath c, if there is one.
func withSocket(c any, f func(fd int)) {
	sc, ok := innermost(c).(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// legOf returns the kernel's account of a TCP socket.
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
	if i.Min_rtt != ^uint32(0) { // otherwise there was no sample (net/ipv4/tcp_input.c, tcp_init_sock)
		l.MinRTT = us(uint64(i.Min_rtt))
	}
	if i.Retransmits > 0 && i.Unacked > 0 { // the timeout is in backoff (include/uapi/linux/tcp.h; net/ipv4/tcp_timer.c, tcp_retransmit_timer)
		l.Unanswered = time.Duration(i.Last_ack_recv) * time.Millisecond
	}
	l.Gap = l.OutOfOrder > 0 && gap(fd)
	return l
}

// gap reports whether the receive queue has bytes, but none that can be read, as far as is known.
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

// quietSocket reports whether a socket has nothing to read, and its peer has acknowledged (on a unix socket:
// read) everything. If the kernel does not say, it is not quiet.
func quietSocket(fd int) bool {
	unread, err := sys.FIONREAD(fd)
	if err != nil || unread > 0 {
		return false
	}
	unsent, err := sys.SIOCOUTQ(fd)
	return err == nil && unsent == 0
}

func (p *loopSocket) quiet() bool { return quietSocket(int(p.fd)) }

// unacknowledged returns how many bytes a reset would throw away: none on a unix socket, which knows no reset.
func (p *loopSocket) unacknowledged() int {
	if !p.is(tcp) {
		return 0
	}
	return unacknowledged(int(p.fd))
}

// unacknowledged returns how many bytes the peer of a TCP socket has not acknowledged, or 0 if it was reset or
// the kernel does not say.
func unacknowledged(fd int) int {
	state, err := sys.TCPState(fd)
	if err != nil || state == sys.TCP_CLOSE {
		return 0
	}
	n, err := sys.SIOCOUTQ(fd)
	switch {
	case err != nil:
		return 0
	case n > 0 && (state == sys.TCP_FIN_WAIT1 || state == sys.TCP_CLOSING || state == sys.TCP_LAST_ACK):
		n-- // the FIN
	}
	return n
}

// cutOff returns how many bytes a close(2) throws away, because it resets a connection with unread bytes.
func cutOff(fd int) int {
	if n, err := sys.FIONREAD(fd); err != nil || n == 0 {
		return 0
	}
	return unacknowledged(fd)
}

func (p *loopSocket) cutOff() int { return cutOff(int(p.fd)) }

// cutOffBy is cutOff for the TCP socket beneath c.
func cutOffBy(c any) (n int) {
	withSocket(c, func(fd int) { n = cutOff(fd) })
	return n
}

// quiet is quietSocket for the socket beneath c, or false if there is none.
func quiet(c any) (is bool) {
	withSocket(c, func(fd int) { is = quietSocket(fd) })
	return is
}

// unacknowledgedBy does what unacknowledged does, for the TCP socket beneath c.
func unacknowledgedBy(c any) (n int) {
	withSocket(c, func(fd int) { n = unacknowledged(fd) })
	return n
}

// acksOf returns what the peer of a TCP socket has acknowledged, and whether the kernel knows it.
func acksOf(fd int) (a acks, known bool) {
	var i sys.TCPInfo
	n, err := sys.ReadTCPInfo(fd, &i)
	if err != nil || n < sys.TCPInfoWithBytes {
		return a, false
	}
	return acks{int64(i.Bytes_acked), unacknowledged(fd), time.Duration(i.Last_ack_recv) * time.Millisecond}, true
}

func (p *loopSocket) acks() (a acks) {
	if p.is(tcp) {
		a, _ = acksOf(int(p.fd))
	}
	return a
}

// acksBy is acksOf for the TCP socket beneath c; known is false if there is none.
func acksBy(c any) (a acks, known bool) {
	withSocket(c, func(fd int) { a, known = acksOf(fd) })
	return a, known
}

// unreadBy returns how many bytes wait in the receive queue of the socket beneath c.
func unreadBy(c any) (n int) {
	withSocket(c, func(fd int) { n, _ = sys.FIONREAD(fd) })
	return n
}

// isReset reports whether the TCP connection beneath c was reset, or has ended both ways.
func isReset(c any) (is bool) {
	withSocket(c, func(fd int) {
		state, err := sys.TCPState(fd)
		is = err == nil && state == sys.TCP_CLOSE
	})
	return is
}

// inspect returns the kernel's account of the TCP connection beneath c.
func inspect(c any) (l Leg) {
	withSocket(c, func(fd int) { l = legOf(fd) })
	return l
}
