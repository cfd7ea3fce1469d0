package sessionlog

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/file"
)

// datagrams sends each line as one datagram. Lines are lost if the receiver is absent or too slow.
type datagrams struct {
	address net.Addr
	conn    interface {
		net.Conn
		rawConner
	} // nil without a connection
	tried time.Time // time of the last attempt to connect

	written, dropped int64
	err              error
}

// retryEvery is the time between two attempts to connect.
const retryEvery = time.Second

// ready reports whether there is a connection. If there is none and the next attempt is due, it connects.
func (d *datagrams) ready() bool {
	if d.conn != nil {
		return true
	}
	if time.Since(d.tried) < retryEvery {
		return false
	}
	d.tried = time.Now()
	switch at := d.address.(type) {
	case *net.UnixAddr:
		conn, err := dialUnix(at.Name)
		if err != nil {
			d.err = fmt.Errorf("send to %s: %w", d.address, cause(err))
			return false
		}
		d.conn = conn
	case *net.UDPAddr:
		conn, err := net.DialUDP("udp", nil, at)
		if err != nil {
			d.err = fmt.Errorf("send to %s: %w", d.address, cause(err))
			return false
		}
		d.conn = conn
	}
	return true
}

// dialUnix connects to the socket at a path, which other users must not be able to replace.
func dialUnix(path string) (*net.UnixConn, error) {
	return file.Change(path, func() (*net.UnixConn, error) {
		place, err := file.At(path)
		if err != nil {
			return nil, err
		}
		defer place.Close()
		fd, err := place.Open(sys.O_PATH, 0)
		if err != nil {
			return nil, err
		}
		defer func() { _ = sys.Close(fd) }()
		return net.DialUnix("unixgram", nil, &net.UnixAddr{Name: sys.OpenName(fd), Net: "unixgram"})
	}, func(late *net.UnixConn) { _ = late.Close() })
}

// openUnix returns the datagrams to the socket at a path. A socket that is not there, or does not answer, is tried again.
func openUnix(path string) (datagrams, error) {
	d := datagrams{address: &net.UnixAddr{Name: path, Net: "unixgram"}}
	if d.ready(); errors.Is(d.err, file.ErrUnsafe) {
		return d, d.err
	}
	return d, nil
}

// send sends a line, or counts it as dropped.
func (d *datagrams) send(b []byte) {
	if !d.ready() {
		d.dropped++
		return
	}
	err := d.sendOnce(b)
	if err != nil && !isBlocked(err) && d.again() {
		err = d.sendOnce(b)
	}
	if err != nil {
		d.dropped++
		d.err = fmt.Errorf("send to %s: %w", d.address, cause(err))
		return
	}
	d.written++
}

// again reports whether to send a datagram once more: another process may have taken over the receiver's unix socket.
// An error of UDP means that an earlier datagram was lost (udp(7)), but it was counted as written. To make up for that,
// this datagram is counted as dropped.
func (d *datagrams) again() bool {
	if _, udp := d.address.(*net.UDPAddr); udp {
		return false
	}
	_ = d.conn.Close()
	d.conn, d.tried = nil, time.Time{}
	return d.ready()
}

// sendOnce sends without waiting.
func (d *datagrams) sendOnce(b []byte) error {
	raw, err := d.conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Write(func(fd uintptr) bool {
		_, sent = sys.Send(int(fd), b, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		return true
	}); err != nil {
		return err
	}
	return sent
}

func (d *datagrams) flush() {}

func (d *datagrams) look(again bool) {
	if again && d.conn != nil {
		_ = d.conn.Close()
		d.conn, d.tried = nil, time.Time{}
	}
}

func (d *datagrams) counts() (written, dropped int64, err error) {
	written, dropped, err = d.written, d.dropped, d.err
	d.written, d.dropped, d.err = 0, 0, nil
	return written, dropped, err
}

func (d *datagrams) close() {
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// syslog writes to a syslog server (RFC 5424).
type syslog struct {
	datagrams
	context *context
	b       []byte
}

// sessionPriority is facility local0, severity informational (RFC 5424, 6.2.1).
const sessionPriority = "<134>"

func (s *syslog) add(line []byte, e *Event) {
	b := append(s.b[:0], sessionPriority+"1 "...)
	b = s.context.appendTime(b, e.now)
	b = append(append(b, ' '), s.context.host...)
	b = append(append(b, " penstock "...), s.context.pid...)
	b = append(append(append(b, ' '), e.Kind.String()...), " - "...)
	s.b = append(b, line...)
	s.send(s.b)
}

// journal writes to journald in its native protocol.
type journal struct {
	datagrams
	context *context
	b       []byte
}

func (j *journal) add(line []byte, e *Event) {
	b := append(j.b[:0], "PRIORITY=6\nSYSLOG_IDENTIFIER=penstock\nMESSAGE="...)
	b = append(append(b, line...), '\n')
	j.b = appendJournal(b, e, j.context)
	j.send(j.b)
}
