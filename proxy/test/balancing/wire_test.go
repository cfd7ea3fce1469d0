package balancing

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// A database is a connection of PostgreSQL's protocol, version 3
// (https://www.postgresql.org/docs/current/protocol.html).
type database struct {
	net.Conn
	in *bufio.Reader
}

// connect opens a connection as the cluster's owner, and returns once it accepts queries.
func connect(addr string, within time.Duration) (*database, error) {
	end := time.Now().Add(within)
	c, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return nil, err
	}
	d := &database{Conn: c, in: bufio.NewReader(c)}
	err = errors.Join(c.SetDeadline(end), d.startUp(), c.SetDeadline(time.Time{}))
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return d, nil
}

func (d *database) startUp() error {
	const version = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, version)
	body = append(body, "user\x00penstock\x00database\x00postgres\x00\x00"...)
	if _, err := d.Write(append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), body...)); err != nil {
		return err
	}
	_, err := d.answer()
	return err
}

func (d *database) query(sql string) (string, error) {
	message := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(sql)+1))
	if _, err := d.Write(append(append(message, sql...), 0)); err != nil {
		return "", err
	}
	return d.answer()
}

// answer reads until the server is ready for a query.
func (d *database) answer() (value string, failed error) {
	for {
		var header [5]byte
		if _, err := io.ReadFull(d.in, header[:]); err != nil {
			return "", err
		}
		body := make([]byte, binary.BigEndian.Uint32(header[1:])-4)
		if _, err := io.ReadFull(d.in, body); err != nil {
			return "", err
		}
		switch header[0] {
		case 'D': // the number of columns, and each column's length and value
			if n := int32(binary.BigEndian.Uint32(body[2:])); n >= 0 {
				value = string(body[6 : 6+n])
			}
		case 'E':
			failed = fmt.Errorf("the server reports %q", strings.Split(strings.Trim(string(body), "\x00"), "\x00"))
		case 'Z':
			return value, failed
		}
	}
}

// A session is a watched connection to a database. It asks continuously, or it is idle.
type session struct {
	*database
	queries atomic.Int64
	ended   chan struct{} // closed when the connection has ended and err is set
	err     error
}

// watch opens a session that asks sql again and again, and expects the same answer each time.
// Without sql it is idle.
func watch(t testing.TB, addr, sql string) *session {
	t.Helper()
	d, err := connect(addr, condition.Patience)
	must(t, err)
	s := &session{database: d, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		if sql == "" {
			_, s.err = d.in.ReadByte()
			return
		}
		s.err = s.ask(sql)
	}()
	t.Cleanup(s.close)
	return s
}

func (s *session) ask(sql string) error {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	first, err := s.query(sql)
	for ; err == nil; <-tick.C {
		s.queries.Add(1)
		var again string
		if again, err = s.query(sql); err == nil && again != first {
			err = fmt.Errorf("the answer was %q and is %q", first, again)
		}
	}
	return err
}

// close ends a session, which may have ended already.
func (s *session) close() {
	_ = s.Close()
	<-s.ended
}

// alive reports whether a session has not ended.
func (s *session) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// A visit is the result of a client that connected, asked whether its server is a standby, and
// left.
type visit struct {
	began, ended time.Time
	standby      string // t or f
	err          error
}

// visits connects clients, one after the other, until it is stopped, and returns the result of
// each.
func visits(t testing.TB, addr string) (soFar func() []visit) {
	var list atomic.Pointer[[]visit]
	stop, done := make(chan struct{}), make(chan struct{})
	list.Store(new([]visit))
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				next := append(*list.Load(), pay(addr))
				list.Store(&next)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return func() []visit { return *list.Load() }
}

func pay(addr string) visit {
	v := visit{began: time.Now()}
	var d *database
	if d, v.err = connect(addr, condition.Patience); v.err == nil {
		v.err = d.SetDeadline(v.began.Add(condition.Patience))
		if v.err == nil {
			v.standby, v.err = d.query("SELECT pg_is_in_recovery()")
		}
		_ = d.Close()
	}
	v.ended = time.Now()
	return v
}
