package load

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// errNoEcho means that the message of a connection did not come back.
var errNoEcho = errors.New("the message has not come back")

// connect begins the workload Connect. The server closes first, as in HTTP/1.0 (traffic.AppendOnce), and all sides
// see an orderly end. The side that closes first keeps the TIME_WAIT (RFC 9293, 3.6). That is the server on one side
// of the proxy, and the proxy's listening port on the other. It is never an ephemeral port, because there are only
// 28,000, enough for a second or two. A new connection from a used port has a newer time stamp than the TIME_WAIT.
// So the kernel reopens the connection at once (net/ipv4/tcp_minisocks.c, tcp_timewait_state_process).
func (d *drive) connect() error {
	for i := range d.plan.Connections {
		v := &visitor{conn: conn{d, -1, i}, content: traffic.NewStream(d.r.nextSeed()), message: make([]byte, ConnectSize)}
		v.prefix = len(traffic.AppendOnce(v.message[:0], ConnectSize))
		d.all = append(d.all, v)
		if err := v.visit(time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// visitor makes one connection after the other.
type visitor struct {
	conn
	content *traffic.Stream
	message []byte
	prefix  int // bytes of message that are the request
	got     int // bytes of message that have come back
	began   time.Time
}

func (v *visitor) stuck() error {
	if v.got < ConnectSize {
		return errNoEcho
	}
	return errNotEnded
}

// visit opens a connection and sends the message. On loopback the handshake is over when connect returns, so there
// is no need to wait before sending.
func (v *visitor) visit(now time.Time) error {
	copy(v.message[v.prefix:], v.content.Next(ConnectSize-v.prefix))
	v.began, v.got = now, 0
	if err := v.dial(readable, v); err != nil {
		return err
	}
	rest, ok := v.send(v.message)
	if ok && len(rest) > 0 {
		v.d.loop.Hand(v.fd, &latecomer{v, rest})
		v.want(sys.EPOLLOUT)
	}
	return nil
}

// latecomer is a visitor that must wait until it is connected.
type latecomer struct {
	*visitor
	rest []byte
}

func (l *latecomer) Ready(uint32) {
	if !l.connected() {
		return
	}
	rest, ok := l.send(l.rest)
	switch {
	case !ok:
	case len(rest) > 0:
		l.fail(io.ErrShortWrite)
	default:
		l.d.loop.Hand(l.fd, l.visitor)
		l.want(readable)
	}
}

func (v *visitor) Ready(events uint32) {
	for {
		n, ok := v.receive(v.d.buf, 0)
		switch {
		case !ok:
			return
		case n == 0:
			v.finish()
			return
		case v.got+n > ConnectSize || !bytes.Equal(v.d.buf[:n], v.message[v.got:v.got+n]):
			v.fail(errMismatch)
			return
		}
		v.got += n
		if events&sys.EPOLLRDHUP == 0 {
			return
		}
	}
}

// finish checks the end of file, and makes the next connection.
func (v *visitor) finish() {
	if v.got < ConnectSize {
		v.fail(io.ErrUnexpectedEOF)
		return
	}
	now := time.Now()
	if err := v.d.latency.RecordValue(int64(now.Sub(v.began))); err != nil {
		v.fail(err)
		return
	}
	if !now.Before(v.d.until()) {
		v.end()
		return
	}
	v.close()
	v.d.result.Connections++
	if err := v.visit(time.Now()); err != nil {
		v.d.loop.Stop(err)
	}
}
